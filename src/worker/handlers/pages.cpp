// Handlers of the messages that keep the host's half of coherent memory and the device's the same.
#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "generated/handlers.h"
#include "worker/conversation/call.h"

namespace gpupool::worker {
namespace {

/// The device's primary context is current while this lives: the client may have none.
class AtHome {
 public:
  AtHome(Call& x, std::int32_t device) : x_(x), home_(x.primary(device)) { x.api.cuCtxSetCurrent_(home_); }
  ~AtHome() { x_.api.cuCtxSetCurrent_(x_.current()); }
  AtHome(const AtHome&) = delete;
  AtHome& operator=(const AtHome&) = delete;

  [[nodiscard]] CUresult stream(CUstream& out) const { return x_.session.side_stream(home_, out); }

 private:
  Call& x_;
  CUcontext home_;
};

bool mapped(Call& x, std::int32_t device, std::uint64_t address, std::uint64_t size) {
  const DeviceArena* const arena = x.equipment.arena(device);
  return arena != nullptr && address + size >= address && arena->covers(address, size);
}

/// What the pages hold once `contexts` have done what they were given.
template <class M>
CUresult read_pages(Call& x, const M& m, const std::vector<CUcontext>& contexts) {
  if (!mapped(x, m.device, m.address, m.size)) return CUDA_ERROR_INVALID_VALUE;
  const CUcontext home = x.primary(m.device);
  if (home == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  x.waits();
  x.touches_memory();
  const bool reachable = x.equipment.reachable_by_host(m.address, m.size);
  Wait wait;
  wait.context = home;
  wait.uses = {x.equipment.device_memory()};
  wait.uses.insert(wait.uses.end(), contexts.begin(), contexts.end());
  wait.ready = [&session = x.session, contexts] {
    return std::all_of(contexts.begin(), contexts.end(), [&](CUcontext one) { return session.idle(one); });
  };
  wait.finish = [&api = x.api, &from = x.conversation.copy_out(), home, finished = x.work.wait_for(contexts),
                 reachable, address = m.address, size = m.size](Answer& answer) {
    const CUresult result = finished();
    api.cuCtxSetCurrent_(home);
    if (result != CUDA_SUCCESS) return result;
    if (reachable) {
      answer.payload = {size, reinterpret_cast<const std::byte*>(address), {}};
      return CUDA_SUCCESS;
    }
    return answer_with_block(from, home, {address, size, size, 1, size, 1}, answer);
  };
  x.leave(std::move(wait));
  return CUDA_SUCCESS;
}

}  // namespace

// Every context is waited for: the program's kernels in any of them may have written to the pages.
CUresult run_ReadPages(Call& x, const messages::ReadPages& m, replies::ReadPages&) {
  return read_pages(x, m, x.session.contexts());
}

CUresult run_ReadPagesNow(Call& x, const messages::ReadPagesNow& m, replies::ReadPagesNow&) {
  return read_pages(x, m, {});
}

CUresult run_WritePages(Call& x, const messages::WritePages& m, replies::WritePages&) {
  const std::uint64_t size = x.payload_left();
  if (!mapped(x, m.device, m.address, size)) return CUDA_ERROR_INVALID_VALUE;
  x.touches_memory();
  if (x.equipment.reachable_by_host(m.address, size)) {
    static_cast<void>(x.take_payload(reinterpret_cast<void*>(m.address), size));
    return CUDA_SUCCESS;
  }
  const AtHome home(x, m.device);
  CUstream stream = nullptr;
  if (const CUresult bad = home.stream(stream); bad != CUDA_SUCCESS) return bad;
  for (std::uint64_t done = 0; done < size;) {
    const auto part = static_cast<std::size_t>(std::min<std::uint64_t>(size - done, Staging::chunk_bytes));
    std::byte* chunk = nullptr;
    if (const CUresult bad = x.session.staging().chunk(0, chunk); bad != CUDA_SUCCESS) return bad;
    if (!x.take_payload(chunk, part)) return CUDA_SUCCESS;  // the connection is gone; the loop sees that next
    CUresult result = x.api.cuMemcpyHtoDAsync_v2_(m.address + done, chunk, part, stream);
    if (result == CUDA_SUCCESS) result = x.api.cuStreamSynchronize_(stream);
    if (result != CUDA_SUCCESS) return result;
    done += part;
  }
  return CUDA_SUCCESS;  // every stream finds it in place
}

CUresult run_ClearPages(Call& x, const messages::ClearPages& m, replies::ClearPages&) {
  if (!mapped(x, m.device, m.address, m.size)) return CUDA_ERROR_INVALID_VALUE;
  x.touches_memory();
  if (x.equipment.reachable_by_host(m.address, m.size)) {
    std::memset(reinterpret_cast<void*>(m.address), 0, m.size);
    return CUDA_SUCCESS;
  }
  const AtHome home(x, m.device);
  CUstream stream = nullptr;
  if (const CUresult bad = home.stream(stream); bad != CUDA_SUCCESS) return bad;
  const CUresult result = x.api.cuMemsetD8Async_(m.address, 0, m.size, stream);
  return result == CUDA_SUCCESS ? x.api.cuStreamSynchronize_(stream) : result;
}

}  // namespace gpupool::worker

#include "worker/moving/device_bytes.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "worker/image/session_image.h"
#include "worker/session/session.h"

namespace gpupool::worker {

void need(CUresult result, const char* call) {
  if (result != CUDA_SUCCESS) {
    throw std::runtime_error(std::string(call) + " failed with error " + std::to_string(result));
  }
}

DeviceWindow::DeviceWindow(const DriverApi& api, std::shared_ptr<PhysicalMemory> memory)
    : api_(api), memory_(std::move(memory)) {
  need(api_.cuMemAddressReserve_(&address_, memory_->size(), 0, 0, 0), "cuMemAddressReserve");
  try {
    need(api_.cuMemMap_(address_, memory_->size(), 0, memory_->handle(), 0), "cuMemMap");
    mapped_ = true;
    CUmemAccessDesc access{};
    access.location = memory_->location();
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    need(api_.cuMemSetAccess_(address_, memory_->size(), &access, 1), "cuMemSetAccess");
  } catch (...) {
    give_up();
    throw;
  }
}

DeviceWindow::~DeviceWindow() {
  give_up();
}

void DeviceWindow::give_up() noexcept {
  if (mapped_) api_.cuMemUnmap_(address_, memory_->size());
  if (address_ != 0) api_.cuMemAddressFree_(address_, memory_->size());
}

void read_device(Session& session, const DeviceRange& range, std::uint64_t offset, std::uint64_t size,
                 const std::function<void(std::span<const std::byte>)>& use) {
  constexpr std::uint64_t piece = SessionImage::chunk_bytes;
  static_assert(piece <= Staging::chunk_bytes);
  if (range.reachable) {
    const auto* const memory = reinterpret_cast<const std::byte*>(range.address + offset);
    for (std::uint64_t at = 0; at < size; at += piece) use({memory + at, std::min(piece, size - at)});
    return;
  }
  Staging& staging = session.staging();
  need(session.api.cuCtxSetCurrent_(range.context), "cuCtxSetCurrent");
  // While a piece is used, the next one is on its way.
  const auto fetch = [&](std::uint64_t at) {
    const std::size_t n = at / piece % 2;
    std::byte* chunk = nullptr;
    need(staging.chunk(n, chunk), "cuEventSynchronize");
    need(session.api.cuMemcpyDtoHAsync_v2_(chunk, range.address + offset + at, std::min(piece, size - at),
                                           nullptr),
         "cuMemcpyDtoHAsync");
    need(staging.used(n, range.context, nullptr), "cuStreamSynchronize");
  };
  if (size != 0) fetch(0);
  for (std::uint64_t at = 0; at < size; at += piece) {
    const std::size_t n = at / piece % 2;
    if (at + piece < size) fetch(at + piece);
    need(staging.wait(n), "cuEventSynchronize");
    use({staging.memory(n), std::min(piece, size - at)});
  }
}

}  // namespace gpupool::worker

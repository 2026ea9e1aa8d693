#include "client/memory/exported_objects.h"

#include <algorithm>
#include <atomic>
#include <set>
#include <utility>

#include "base/mutex.h"
#include "client/call/call.h"
#include "client/memory/coherent_memory.h"
#include "client/process/session_belongings.h"

namespace gpupool::client {
namespace {

/// Objects with tickets, never destroyed.
struct Exported {
  Mutex mutex;
  std::set<std::pair<ExportKind, std::uint64_t>> objects GUARDED_BY(mutex);
  std::atomic<std::size_t> count{0};
};
Exported& exported() {
  static Exported& only = kept_for_session<Exported>([](Exported& kept) {
    const MutexLock lock(kept.mutex);
    kept.objects.clear();
    kept.count.store(0);
  });
  return only;
}

void remember(ExportKind kind, std::uint64_t object) {
  const MutexLock lock(exported().mutex);
  exported().objects.emplace(kind, object);
  exported().count.store(exported().objects.size());
}

template <class M>
CUresult ask_for_ticket(const M& message, std::uint64_t context,
                        std::span<std::byte, ExportTicket::bytes> out) {
  typename M::Reply reply;
  std::vector<std::byte> bytes;
  const CUresult result = ask(message, reply, context, bytes);
  if (result != CUDA_SUCCESS) return result;
  if (reply.ticket.size() != out.size()) return CUDA_ERROR_UNKNOWN;
  std::copy(reply.ticket.begin(), reply.ticket.end(), out.begin());
  return CUDA_SUCCESS;
}

}  // namespace

bool can_be_exported(const DeviceMemory::Found& block) {
  return wire::Handle::from(block.block.owner).kind == wire::Kind::context &&
         !coherent_memory().find(block.block.address);
}

CUresult export_memory(const DeviceMemory::Found& block, std::uint64_t pool,
                       std::span<std::byte, ExportTicket::bytes> out) {
  messages::ExportMemory m;
  m.device = block.device;
  m.address = block.block.address;
  m.size = block.block.requested;
  m.pool = pool;
  remember(ExportKind::memory, block.block.address);  // before: it may be freed while the answer travels
  return ask_for_ticket(m, any_context, out);
}

CUresult export_event(std::uint64_t event, std::uint64_t context,
                      std::span<std::byte, ExportTicket::bytes> out) {
  messages::ExportEvent m;
  m.event = event;
  remember(ExportKind::event, event);
  return ask_for_ticket(m, context, out);
}

CUresult export_physical(std::uint64_t memory, std::span<std::byte, ExportTicket::bytes> out) {
  messages::ExportPhysical m;
  m.memory = memory;
  return ask_for_ticket(m, any_context, out);
}

CUresult export_pool(std::uint64_t pool, int device, std::span<std::byte, ExportTicket::bytes> out) {
  messages::ExportPool m;
  m.device = device;
  m.pool = pool;
  remember(ExportKind::pool, pool);
  return ask_for_ticket(m, any_context, out);
}

void end_export(ExportKind kind, int device, std::uint64_t object) {
  Exported& all = exported();
  if (all.count.load(std::memory_order_relaxed) == 0) return;
  {
    const MutexLock lock(all.mutex);
    if (all.objects.erase({kind, object}) == 0) return;
    all.count.store(all.objects.size());
  }
  messages::EndExport m;
  m.kind = static_cast<std::uint8_t>(kind);
  m.device = device;
  m.object = object;
  static_cast<void>(post(m, any_context));
}

}  // namespace gpupool::client

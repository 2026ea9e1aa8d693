#include "client/memory/coherent_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/mutex.h"
#include "client/call/call.h"
#include "client/call/routing.h"
#include "client/link/payload_sinks.h"
#include "client/memory/fault_handler.h"
#include "client/process/log.h"
#include "client/process/session_belongings.h"

namespace gpupool::client {
namespace {

const std::uint64_t page_bytes = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
constexpr std::uint64_t message_bytes = std::uint64_t{64} << 20;  // of one transfer

void* at(std::uint64_t address) {
  return reinterpret_cast<void*>(address);
}

/// What the arena has where nothing is mapped.
void close_place(std::uint64_t base, std::uint64_t size) {
  mmap(at(base), size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

}  // namespace

CoherentMemory& coherent_memory() {
  static CoherentMemory& only = kept_for_session<CoherentMemory>([](CoherentMemory& kept) { kept.forget(); });
  return only;
}

CUresult CoherentMemory::add(const About& about, bool fresh) {
  const std::uint64_t pages = (about.size + page_bytes - 1) / page_bytes, bytes = pages * page_bytes;
  if (!serve_faults()) return CUDA_ERROR_OPERATING_SYSTEM;
  const int file = memfd_create("gpupool-coherent", MFD_CLOEXEC);
  if (file < 0) return CUDA_ERROR_OUT_OF_MEMORY;
  void* view = MAP_FAILED;
  void* place = MAP_FAILED;
  if (ftruncate(file, static_cast<off_t>(bytes)) == 0) {
    view = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
    if (view != MAP_FAILED) {
      place = mmap(at(about.base), bytes, PROT_READ, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, file, 0);
    }
  }
  close(file);
  if (place == MAP_FAILED) {
    if (view != MAP_FAILED) munmap(view, bytes);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  // As CUDA's own: a child has no managed memory, and must not write into its parent's.
  madvise(place, bytes, MADV_DONTFORK);
  madvise(view, bytes, MADV_DONTFORK);
  if (!fresh) {
    messages::ClearPages m;
    m.device = about.device;
    m.address = about.base;
    m.size = bytes;
    if (const CUresult bad = post(m, any_context); bad != CUDA_SUCCESS) {
      munmap(view, bytes);
      close_place(about.base, bytes);
      return bad;
    }
  }
  const MutexLock lock(mutex_);
  regions_.insert_or_assign(about.base,
                            Region{about, static_cast<std::byte*>(view), pages, PageStates(pages), {}});
  coherent_regions.store(regions_.size(), std::memory_order_release);
  return CUDA_SUCCESS;
}

void CoherentMemory::drop(std::uint64_t base) {
  if (!any()) return;
  const MutexLock lock(mutex_);
  const auto found = regions_.find(base);
  if (found == regions_.end()) return;
  const std::uint64_t bytes = found->second.pages * page_bytes;
  close_place(base, bytes);
  munmap(found->second.view, bytes);
  regions_.erase(found);
  coherent_regions.store(regions_.size(), std::memory_order_release);
}

CoherentMemory::Region* CoherentMemory::region_of(std::uint64_t address) {
  auto next = regions_.upper_bound(address);
  if (next == regions_.begin()) return nullptr;
  Region& region = std::prev(next)->second;
  return address - region.about.base < region.pages * page_bytes ? &region : nullptr;
}

std::optional<CoherentMemory::About> CoherentMemory::find(std::uint64_t address) {
  if (!any()) return std::nullopt;
  const MutexLock lock(mutex_);
  const Region* const region = region_of(address);
  if (region == nullptr || address - region->about.base >= region->about.size) return std::nullopt;
  return region->about;
}

void CoherentMemory::protect(Region& region, PageStates::Span span, int protection) {
  const std::uint64_t begin = region.about.base + span.first * page_bytes;
  if (mprotect(at(begin), span.count * page_bytes, protection) == 0) return;
  // Too many stretches of different protection for the kernel: this allocation becomes a single one, which
  // the host may write everywhere.
  for (const auto& missing : region.states.spans(PageStates::State::device)) fetch(region, missing);
  region.states.set({0, region.pages}, PageStates::State::dirty);
  mprotect(at(region.about.base), region.pages * page_bytes, PROT_READ | PROT_WRITE);
}

void CoherentMemory::send(Region& region, PageStates::Span span) {
  std::uint64_t offset = span.first * page_bytes;
  const std::uint64_t end = offset + span.count * page_bytes;
  while (offset < end) {
    const std::uint64_t size = std::min(end - offset, message_bytes);
    messages::WritePages m;
    m.device = region.about.device;
    m.address = region.about.base + offset;
    const iovec part{region.view + offset, size};
    runtime().counters.sent(size);
    static_cast<void>(post(m, any_context, {&part, 1, size}));  // a lost connection tells at the next call
    offset += size;
  }
}

template <class M>
CUresult CoherentMemory::read(Region& region, std::uint64_t offset, std::uint64_t size) {
  M m;
  m.device = region.about.device;
  m.address = region.about.base + offset;
  m.size = size;
  typename M::Reply reply;
  std::vector<std::byte> bytes;
  IntoMemory sink(region.view + offset, size);
  CUresult own = CUDA_ERROR_DEVICE_UNAVAILABLE;
  static_cast<void>(ask(m, reply, any_context, bytes, {}, &sink, &own));
  return own;
}

void CoherentMemory::fetch(Region& region, PageStates::Span span, By by) {
  std::uint64_t offset = span.first * page_bytes;
  const std::uint64_t end = offset + span.count * page_bytes;
  while (offset < end) {
    const std::uint64_t size = std::min(end - offset, message_bytes);
    const CUresult result = by == By::program ? read<messages::ReadPages>(region, offset, size)
                                              : read<messages::ReadPagesNow>(region, offset, size);
    if (result != CUDA_SUCCESS) {
      // The access cannot be given an error. Every CUDA call of the program will tell that the device failed.
      const std::string text = "the device failed (error " + std::to_string(result) +
                               "): memory shared with it shows the last content that this process has seen";
      if (!std::exchange(told_, true)) std::fprintf(stderr, "gpupool: %s\n", text.c_str());
      log_line(text);
      return;
    }
    runtime().counters.received(size);
    offset += size;
  }
}

void CoherentMemory::send_dirty(Region& region, PageStates::State then) {
  for (const auto& span : region.states.spans(PageStates::State::dirty)) {
    // Closed first: what another thread writes from now on is a new fault and not a lost write.
    protect(region, span, then == PageStates::State::device ? PROT_NONE : PROT_READ);
    send(region, span);
    region.states.set(span, then);
  }
}

HandedOver CoherentMemory::hand_over(const WorkerLink& worker) {
  HandedOver lock(mutex_);
  mutex_.assert_held();
  ++handed_over_;
  for (auto& [base, region] : regions_) {
    if (!region.states.any_on_host() || !worker.has_device(region.about.device)) continue;
    keep_serving_faults();
    mprotect(at(base), region.pages * page_bytes, PROT_NONE);
    for (const auto& span : region.states.spans(PageStates::State::dirty)) send(region, span);
    region.states.set({0, region.pages}, PageStates::State::device);
  }
  return lock;
}

void CoherentMemory::flush(const WorkerLink& worker) {
  const MutexLock lock(mutex_);
  for (auto& [base, region] : regions_) {
    if (worker.has_device(region.about.device)) send_dirty(region, PageStates::State::shared);
  }
}

/// Waits for the device without the lock, as it may wait for a host function that touches memory like this
/// and needs the lock. What was waited for counts if nobody has given the device work meanwhile. Returns how
/// the page is to be fetched then.
CoherentMemory::By CoherentMemory::wait_without_lock(MutexLock& lock, std::uint64_t address) {
  constexpr int tries = 100;
  for (int n = 0; n < tries; ++n) {
    const Region* const region = region_of(address);
    if (region == nullptr) return By::program;
    const std::uint64_t page = (address - region->about.base) / page_bytes;
    const int device = region->about.device;
    if (region->states.at(page) != PageStates::State::device ||
        !host_functions_are_expected(worker_of_device(device)))
      return By::program;
    messages::ReadPages m;  // of one page: what counts is that it waits
    m.device = device;
    m.address = region->about.base + page * page_bytes;
    m.size = page_bytes;
    const std::uint64_t before = handed_over_;
    lock.unlock();
    std::vector<std::byte> content(page_bytes), bytes;
    IntoMemory sink(content.data(), content.size());
    replies::ReadPages reply;
    const CUresult result = ask(m, reply, any_context, bytes, {}, &sink);
    lock.lock();
    if (result != CUDA_SUCCESS) return By::program;  // the fetch will tell
    if (handed_over_ == before) return By::host_function;
  }
  return By::program;
}

bool CoherentMemory::serve(std::uint64_t address, bool write, By by) {
  MutexLock lock(mutex_);
  if (by == By::program) by = wait_without_lock(lock, address);
  Region* const region = region_of(address);
  if (region == nullptr) return false;
  const auto step = region->states.touched((address - region->about.base) / page_bytes, write);
  if (step.kind == PageStates::Step::Kind::nothing) return true;  // another thread was here first
  if (step.kind == PageStates::Step::Kind::fetch) fetch(*region, step.span, by);
  region->states.set(step.span, step.then);
  protect(*region, step.span, step.then == PageStates::State::dirty ? PROT_READ | PROT_WRITE : PROT_READ);
  return true;
}

void CoherentMemory::open_views(std::vector<iovec>& parts) {
  if (!any()) return;
  const MutexLock lock(mutex_);
  for (iovec& part : parts) {
    const auto address = reinterpret_cast<std::uint64_t>(part.iov_base);
    Region* const region = region_of(address);
    if (region == nullptr) continue;
    const std::uint64_t offset = address - region->about.base;
    if (part.iov_len > region->pages * page_bytes - offset) continue;  // the kernel will refuse it
    const std::uint64_t first = offset / page_bytes;
    const std::uint64_t last = (offset + part.iov_len + page_bytes - 1) / page_bytes;
    for (const auto& missing : region->states.spans(PageStates::State::device)) {
      const std::uint64_t begin = std::max(first, missing.first);
      const std::uint64_t end = std::min(last, missing.first + missing.count);
      if (begin >= end) continue;
      fetch(*region, {begin, end - begin});
      region->states.set({begin, end - begin}, PageStates::State::shared);
      protect(*region, {begin, end - begin}, PROT_READ);
    }
    part.iov_base = region->view + offset;
  }
}

void CoherentMemory::forget() {
  const MutexLock lock(mutex_);
  // The program may have pointers into it: its memory stays, as ordinary memory.
  for (auto& [base, region] : regions_) mprotect(at(base), region.pages * page_bytes, PROT_READ | PROT_WRITE);
  regions_.clear();
  coherent_regions.store(0);
  told_ = false;
}

}  // namespace gpupool::client

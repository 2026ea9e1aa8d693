#include "client/memory/coherent_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/mutex.h"
#include "client/call/call.h"
#include "client/link/payload_sinks.h"
#include "client/memory/fault_handler.h"
#include "client/process/log.h"
#include "client/process/session_belongings.h"

namespace gpupool::client {
namespace {

const std::uint64_t page_bytes = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
constexpr std::uint64_t message_bytes = std::uint64_t{64} << 20;  // of one transfer
/// So often is waited without the lock where other threads give the device work all the time.
constexpr int most_tries = 100;

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
  regions_.insert_or_assign(
      about.base, Region{about, static_cast<std::byte*>(view), pages, PageStates(pages), {}, false, false});
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

bool CoherentMemory::protect(Region& region, PageStates::Span span, int protection) {
  const std::uint64_t begin = region.about.base + span.first * page_bytes;
  return mprotect(at(begin), span.count * page_bytes, protection) == 0;
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
CUresult CoherentMemory::read(const About& about, std::uint64_t offset, std::uint64_t size, std::byte* into) {
  M m;
  m.device = about.device;
  m.address = about.base + offset;
  m.size = size;
  typename M::Reply reply;
  std::vector<std::byte> bytes;
  IntoMemory sink(into, size);
  CUresult own = CUDA_ERROR_DEVICE_UNAVAILABLE;
  static_cast<void>(ask(m, reply, any_context, bytes, {}, &sink, &own));
  if (own == CUDA_SUCCESS) runtime().counters.received(size);
  return own;
}

void CoherentMemory::fetch(Region& region, PageStates::Span span, By by) {
  std::uint64_t offset = span.first * page_bytes;
  const std::uint64_t end = offset + span.count * page_bytes;
  while (offset < end) {
    const std::uint64_t size = std::min(end - offset, message_bytes);
    const auto read_them = by == By::program ? &CoherentMemory::read<messages::ReadPages>
                                             : &CoherentMemory::read<messages::ReadPagesNow>;
    const CUresult result = read_them(region.about, offset, size, region.view + offset);
    if (result != CUDA_SUCCESS) return tell_failure(result);
    offset += size;
  }
}

/// The access cannot be given an error. Every CUDA call of the program will tell that the device failed.
void CoherentMemory::tell_failure(CUresult result) {
  const std::string text = "the device failed (error " + std::to_string(result) +
                           "): memory shared with it shows the last content that this process has seen";
  if (!std::exchange(told_, true)) std::fprintf(stderr, "gpupool: %s\n", text.c_str());
  log_line(text);
}

void CoherentMemory::send_dirty(Region& region) {
  for (const auto& span : region.states.spans(PageStates::State::dirty)) {
    // Closed first: what another thread writes from now on is a new fault and not a lost write.
    const bool closed = protect(region, span, PROT_READ);
    send(region, span);
    if (closed) {
      region.states.set(span, PageStates::State::shared);
    } else {  // it can still be written, so it is sent again next time
      region.whole = true;
    }
  }
}

HandedOver CoherentMemory::hand_over(const WorkerLink& worker) {
  HandedOver lock(mutex_);
  mutex_.assert_held();
  ++handed_over_;
  for (auto& [base, region] : regions_) {
    if (region.states.any_on_host() && worker.has_device(region.about.device)) close_to_host(region);
  }
  return lock;
}

HandedOver CoherentMemory::hand_back(const WorkerLink& worker) {
  HandedOver lock(mutex_);
  mutex_.assert_held();
  for (auto& [base, region] : regions_) {
    if (!worker.has_device(region.about.device)) continue;
    if (!region.served_function && region.states.spans(PageStates::State::dirty).empty()) continue;
    ++handed_over_;
    close_to_host(region);
  }
  return lock;
}

/// The device has it from now on.
void CoherentMemory::close_to_host(Region& region) {
  keep_serving_faults();
  mprotect(at(region.about.base), region.pages * page_bytes, PROT_NONE);
  for (const auto& span : region.states.spans(PageStates::State::dirty)) send(region, span);
  region.states.set({0, region.pages}, PageStates::State::device);
  region.served_function = region.whole = false;
}

void CoherentMemory::flush(const WorkerLink& worker) {
  const MutexLock lock(mutex_);
  for (auto& [base, region] : regions_) {
    if (worker.has_device(region.about.device)) send_dirty(region);
  }
}

/// What the device has in these pages once it has done what it was given. The lock is not held while the
/// device is waited for: it may wait for a host function that touches such memory. False: something has
/// happened meanwhile, and all is to be looked at anew.
bool CoherentMemory::fetch_without_lock(const Region& region, PageStates::Span span) {
  const About about = region.about;
  const std::byte* const view = region.view;
  const std::uint64_t offset = span.first * page_bytes, before = handed_over_;
  std::vector<std::byte> content(span.count * page_bytes);
  CUresult result = CUDA_SUCCESS;
  {
    const MutexUnlock unlocked(mutex_);
    for (std::uint64_t done = 0; done < content.size() && result == CUDA_SUCCESS;) {
      const std::uint64_t size = std::min<std::uint64_t>(content.size() - done, message_bytes);
      result = read<messages::ReadPages>(about, offset + done, size, content.data() + done);
      done += size;
    }
  }
  const auto now = regions_.find(about.base);
  // Another allocation may have its address by now.
  if (now == regions_.end() || now->second.view != view || handed_over_ != before) return false;
  for (std::uint64_t page = span.first; page < span.first + span.count; ++page) {
    if (now->second.states.at(page) != PageStates::State::device) return false;
  }
  if (result == CUDA_SUCCESS) {
    std::memcpy(now->second.view + offset, content.data(), content.size());
  } else {
    tell_failure(result);
  }
  return true;
}

PageStates::Step CoherentMemory::open_whole(const Region& region) {
  using Kind = PageStates::Step::Kind;
  const auto missing = missing_in(region, 0, region.pages);
  if (!missing) return {Kind::open, {0, region.pages}, PageStates::State::dirty};
  const std::uint64_t count = std::min(missing->count, PageStates::last_window);
  return {Kind::fetch, {missing->first, count}, PageStates::State::shared};
}

bool CoherentMemory::serve(std::uint64_t address, bool write, By by) {
  using Kind = PageStates::Step::Kind;
  const MutexLock lock(mutex_);
  for (int tried = 0;;) {
    Region* const region = region_of(address);
    if (region == nullptr) return false;
    const auto step = region->whole
                          ? open_whole(*region)
                          : region->states.touched((address - region->about.base) / page_bytes, write);
    if (step.kind == Kind::nothing) return true;  // another thread was here first
    if (step.kind == Kind::fetch) {
      if (by == By::host_function || tried == most_tries) {
        fetch(*region, step.span, by);
      } else if (!fetch_without_lock(*region, step.span)) {
        ++tried;
        continue;
      }
    }
    region->states.set(step.span, step.then);
    region->served_function = region->served_function || by == By::host_function;
    if (region->whole && step.kind == Kind::fetch) continue;  // the rest, before anything is opened
    const bool opened = protect(*region, step.span,
                                step.then == PageStates::State::dirty ? PROT_READ | PROT_WRITE : PROT_READ);
    // Where not even the whole can be opened the access would come again and again: it is a fault then.
    if (opened || region->whole) {
      region->whole = !opened;
      return opened;
    }
    region->whole = true;
  }
}

/// The first pages among these that the device may have written.
std::optional<PageStates::Span> CoherentMemory::missing_in(const Region& region, std::uint64_t first,
                                                           std::uint64_t last) {
  for (const auto& missing : region.states.spans(PageStates::State::device)) {
    const std::uint64_t begin = std::max(first, missing.first);
    const std::uint64_t end = std::min(last, missing.first + missing.count);
    if (begin < end) return PageStates::Span{begin, end - begin};
  }
  return std::nullopt;
}

void CoherentMemory::open_views(std::vector<iovec>& parts) {
  if (!any()) return;
  const MutexLock lock(mutex_);
  for (iovec& part : parts) {
    const auto address = reinterpret_cast<std::uint64_t>(part.iov_base);
    for (int tried = 0;; ++tried) {
      Region* const region = region_of(address);
      if (region == nullptr) break;
      const std::uint64_t offset = address - region->about.base;
      if (part.iov_len > region->pages * page_bytes - offset) break;  // the kernel will refuse it
      const auto missing =
          missing_in(*region, offset / page_bytes, (offset + part.iov_len + page_bytes - 1) / page_bytes);
      if (!missing) {
        part.iov_base = region->view + offset;
        break;
      }
      if (tried >= most_tries) {
        fetch(*region, *missing, By::program);
      } else if (!fetch_without_lock(*region, *missing)) {
        continue;
      }
      region->states.set(*missing, PageStates::State::shared);
      // A page that stays closed is opened when the host touches it, as one that both have.
      static_cast<void>(protect(*region, *missing, PROT_READ));
    }
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

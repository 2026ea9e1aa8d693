#include "softgpu/driver/stream/shared_event.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <ctime>
#include <string>

#include "softgpu/driver/base/error.h"

namespace softgpu::driver {
namespace {

constexpr std::uint32_t event_magic = 0x54455653;  // "SVET"
constexpr std::size_t event_page_bytes = 4096;
constexpr std::size_t most_records = 128;  // as many records may be under way at once
constexpr int event_seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
constexpr long look_after_ns = 50'000'000;  // how often a waiter looks around

// What is in the 64 bytes that a program passes to another process.
struct Description {
  std::uint32_t magic;
  std::int32_t pid;
  std::int32_t descriptor;
  std::uint32_t zero;
  std::array<std::uint8_t, 16> id;
};
static_assert(sizeof(Description) <= sizeof(CUipcEventHandle));

bool lives(std::int32_t pid) {
  return pid > 0 && (kill(pid, 0) == 0 || errno != ESRCH);
}

}  // namespace

struct SharedEvent::Page {
  Id id;
  std::atomic<std::uint64_t> last;
  std::atomic<std::uint32_t> changes;  // what waiters sleep on
  struct Slot {
    std::atomic<std::uint64_t> completed;  // highest number of a completed record of this slot
    std::atomic<std::int32_t> recorder;    // process of the last record of this slot
  };
  std::array<Slot, most_records> slots;
};

std::shared_ptr<SharedEvent> SharedEvent::make() {
  static_assert(sizeof(Page) <= event_page_bytes);
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
  const int descriptor = memfd_create("softgpu-event", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  require(descriptor >= 0, CUDA_ERROR_OUT_OF_MEMORY);
  void* place = MAP_FAILED;
  if (posix_fallocate(descriptor, 0, event_page_bytes) == 0 &&
      fcntl(descriptor, F_ADD_SEALS, event_seals) == 0) {
    place = mmap(nullptr, event_page_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  }
  Page* const page = static_cast<Page*>(place);
  if (place == MAP_FAILED || getrandom(page->id.data(), sizeof(Id), 0) != sizeof(Id)) {
    if (place != MAP_FAILED) munmap(place, event_page_bytes);
    close(descriptor);
    fail(CUDA_ERROR_OUT_OF_MEMORY);
  }
  return std::shared_ptr<SharedEvent>(new SharedEvent(descriptor, page));
}

std::shared_ptr<SharedEvent> SharedEvent::open(const CUipcEventHandle& handle) {
  Description wanted{};
  std::memcpy(&wanted, &handle, sizeof(wanted));
  require(wanted.magic == event_magic && wanted.pid > 0 && wanted.descriptor >= 0, CUDA_ERROR_INVALID_HANDLE);
  require(wanted.pid != getpid(), CUDA_ERROR_INVALID_CONTEXT);
  const std::string path = "/proc/" + std::to_string(wanted.pid) + "/fd/" + std::to_string(wanted.descriptor);
  // The maker may have closed it and opened something else under its number: nothing is believed.
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  require(descriptor >= 0, CUDA_ERROR_INVALID_HANDLE);
  struct stat status{};
  const int seals = fcntl(descriptor, F_GET_SEALS);
  void* place = MAP_FAILED;
  if (seals >= 0 && (seals & event_seals) == event_seals && fstat(descriptor, &status) == 0 &&
      status.st_size == static_cast<off_t>(event_page_bytes)) {
    place = mmap(nullptr, event_page_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  }
  close(descriptor);
  require(place != MAP_FAILED, CUDA_ERROR_INVALID_HANDLE);
  Page* const page = static_cast<Page*>(place);
  if (page->id != wanted.id) {
    munmap(place, event_page_bytes);
    fail(CUDA_ERROR_INVALID_HANDLE);
  }
  return std::shared_ptr<SharedEvent>(new SharedEvent(-1, page));
}

SharedEvent::~SharedEvent() {
  munmap(page_, event_page_bytes);
  if (descriptor_ >= 0) close(descriptor_);
}

void SharedEvent::describe(CUipcEventHandle& out) const {
  require(descriptor_ >= 0, CUDA_ERROR_INVALID_HANDLE);  // only its maker can pass it on
  const Description own{event_magic, getpid(), descriptor_, 0, page_->id};
  std::memset(&out, 0, sizeof(out));
  std::memcpy(&out, &own, sizeof(own));
}

std::shared_ptr<SharedEvent::Record> SharedEvent::record(const std::shared_ptr<SharedEvent>& event) {
  const std::uint64_t number = event->page_->last.fetch_add(1) + 1;
  event->page_->slots[number % most_records].recorder.store(getpid());
  return std::make_shared<Record>(event, number);
}

void SharedEvent::complete(std::uint64_t number) {
  auto& completed = page_->slots[number % most_records].completed;
  std::uint64_t known = completed.load();
  while (known < number && !completed.compare_exchange_weak(known, number)) {
  }
  page_->changes.fetch_add(1);
  syscall(SYS_futex, &page_->changes, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

std::uint64_t SharedEvent::last() const {
  return page_->last.load();
}

bool SharedEvent::done(std::uint64_t number) const {
  const auto& slot = page_->slots[number % most_records];
  if (number == 0 || slot.completed.load() >= number) return true;
  const std::int32_t recorder = slot.recorder.load();
  // 0: another process is just about to say that it is the one.
  return recorder != 0 && !lives(recorder);
}

bool SharedEvent::wait(std::uint64_t number, const std::function<bool()>& given_up) const {
  for (;;) {
    const std::uint32_t seen = page_->changes.load();
    if (done(number)) return true;
    if (given_up()) return false;
    const timespec limit{0, look_after_ns};
    syscall(SYS_futex, &page_->changes, FUTEX_WAIT, seen, &limit, nullptr, 0);
  }
}

}  // namespace softgpu::driver

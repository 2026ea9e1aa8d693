#include "softgpu/exec/run/standstill.h"

#include "base/mutex.h"

namespace softgpu {
namespace {

/// How often a thread that stands still looks whether its work was given up: nobody tells it.
constexpr auto look_every = std::chrono::milliseconds(100);

}  // namespace

Standstill& Standstill::of_process() {
  static auto* const made = new Standstill;
  return *made;
}

void Standstill::begin() {
  gpupool::MutexLock lock(mutex_);
  on_.store(true, std::memory_order_seq_cst);
  changed_.wait(mutex_,
                [this]() REQUIRES(mutex_) { return running_.load(std::memory_order_seq_cst) == 0 || !on(); });
  if (!on() || stands_) return;  // another thread has ended it meanwhile, or has begun it before
  stands_ = true;
  since_ = Clock::now();
}

void Standstill::end() {
  const gpupool::MutexLock lock(mutex_);
  if (!on()) return;
  if (stands_) stood_.fetch_add((Clock::now() - since_).count());
  stands_ = false;
  on_.store(false, std::memory_order_seq_cst);
  changed_.notify_all();
}

bool Standstill::wait_for_end(const std::function<bool()>& given_up) {
  gpupool::MutexLock lock(mutex_);
  while (on()) {
    if (given_up()) return false;
    changed_.wait_for(mutex_, look_every);
  }
  return true;
}

bool Standstill::wait_to_enter(const std::function<bool()>& given_up) {
  do {
    leave();
    if (!wait_for_end(given_up)) return false;
    running_.fetch_add(1, std::memory_order_seq_cst);
  } while (on_.load(std::memory_order_seq_cst));
  return true;
}

void Standstill::pass(const std::function<bool()>& given_up) {
  if (on_.load(std::memory_order_seq_cst)) static_cast<void>(wait_for_end(given_up));
}

void Standstill::tell() {
  const gpupool::MutexLock lock(mutex_);
  changed_.notify_all();
}

Standstill::Clock::time_point Standstill::device_now() const {
  // Without the lock where nothing stands still, which is nearly always. A thread that is held up between
  // looking at the clock and taking off what was stood would take off too much if work stood still meanwhile.
  const auto stood = stood_.load();
  if (!on()) {
    const auto now = Clock::now();
    if (!on() && stood_.load() == stood) return now - Clock::duration(stood);
  }
  const gpupool::MutexLock lock(mutex_);
  return (stands_ ? since_ : Clock::now()) - Clock::duration(stood_.load());
}

}  // namespace softgpu

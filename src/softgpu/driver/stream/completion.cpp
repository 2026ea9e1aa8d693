#include "softgpu/driver/stream/completion.h"

#include <pthread.h>
#include <sched.h>

#include "base/patience.h"
#include "softgpu/driver/stream/launch_help.h"
#include "softgpu/driver/stream/stream.h"
#include "softgpu/exec/run/stack_room.h"
#include "softgpu/exec/run/standstill.h"

namespace softgpu::driver {
namespace {

// A thread that a program cancels while it waits ends when it has waited: half-done work would stay so.
class NotCancelled {
 public:
  NotCancelled() { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~NotCancelled() { pthread_setcancelstate(before_, nullptr); }
  NotCancelled(const NotCancelled&) = delete;
  NotCancelled& operator=(const NotCancelled&) = delete;

 private:
  int before_ = PTHREAD_CANCEL_ENABLE;
};

}  // namespace

void Completion::wait() const {
  while (!done()) {
    if (!work_meanwhile()) return done_.wait(0, std::memory_order_acquire);
  }
}

// False when there is nothing to do but to sleep.
bool Completion::work_meanwhile() const {
  if (!softgpu::has_room_for_kernels()) return false;
  const NotCancelled until_done;
  if (const auto stream = stream_.lock(); stream && stream->do_next_here(*this)) return true;
  // Not for long: what others do may want this core too.
  static thread_local gpupool::Patience patience(std::chrono::microseconds(10));
  const int core = core_.load(std::memory_order_acquire);
  if (core == not_begun || core == sched_getcpu()) return false;
  if (!patience.spin([this] { return done() || help_wanted(); })) return false;
  return done() || help(worker_);
}

void Completion::begin() {
  worker_ = std::this_thread::get_id();
  core_.store(sched_getcpu(), std::memory_order_release);
}

void Completion::finish() {
  finished_ = softgpu::device_now();
  done_.store(1, std::memory_order_release);
  done_.notify_all();
}

}  // namespace softgpu::driver

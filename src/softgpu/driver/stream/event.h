// Events: a mark in a stream that can be waited for and timed.
#pragma once

#include <memory>
#include <vector>

#include "base/mutex.h"
#include "softgpu/driver/base/cuda_api.h"
#include "softgpu/driver/stream/capture.h"
#include "softgpu/driver/stream/completion.h"
#include "softgpu/driver/stream/shared_event.h"

namespace softgpu::driver {

class Context;

class Event {
 public:
  // `shared`: of an event for several processes, else null.
  Event(std::shared_ptr<Context> context, unsigned flags, std::shared_ptr<SharedEvent> shared = nullptr)
      : context_(std::move(context)), flags_(flags), shared_(std::move(shared)) {}

  Context& context() const { return *context_; }
  unsigned flags() const { return flags_; }
  const std::shared_ptr<SharedEvent>& shared() const { return shared_; }
  bool timed() const { return !(flags_ & CU_EVENT_DISABLE_TIMING); }

  // Null until the first record.
  CompletionRef mark() const {
    const gpupool::MutexLock lock(mutex_);
    return mark_;
  }
  void set_mark(CompletionRef mark) {
    const gpupool::MutexLock lock(mutex_);
    mark_ = std::move(mark);
    captured_in_.reset();
    captured_tail_.clear();
  }
  // Recorded in a capturing stream: names nodes, not a point in time.
  void set_captured(const std::shared_ptr<Capture>& capture, std::vector<GraphNodeRef> tail) {
    const gpupool::MutexLock lock(mutex_);
    captured_in_ = capture;
    captured_tail_ = std::move(tail);
  }
  std::shared_ptr<Capture> captured_in() const {
    const gpupool::MutexLock lock(mutex_);
    return captured_in_.lock();
  }
  std::vector<GraphNodeRef> captured_tail() const {
    const gpupool::MutexLock lock(mutex_);
    return captured_tail_;
  }

 private:
  const std::shared_ptr<Context> context_;
  const unsigned flags_;
  const std::shared_ptr<SharedEvent> shared_;
  mutable gpupool::Mutex mutex_;
  CompletionRef mark_ GUARDED_BY(mutex_);
  std::weak_ptr<Capture> captured_in_ GUARDED_BY(mutex_);
  std::vector<GraphNodeRef> captured_tail_ GUARDED_BY(mutex_);
};

}  // namespace softgpu::driver

#include "softgpu/driver/stream/stream.h"

#include <signal.h>

#include <algorithm>
#include <thread>

#include "base/mutex.h"
#include "base/quiet_thread.h"
#include "softgpu/driver/base/error.h"
#include "softgpu/driver/stream/context.h"
#include "softgpu/driver/stream/launch_help.h"
#include "softgpu/exec/run/standstill.h"

namespace softgpu::driver {
namespace {

std::atomic<unsigned long long> next_stream_id{1};

// Pieces of work in a stream's queue. GPUs take about a thousand.
constexpr std::size_t queue_limit = 4096;

// Work of a stream may give work to a stream, and cannot wait for itself.
thread_local bool executes_a_stream = false;

}  // namespace

Stream::Stream(Context& context, Role role, unsigned flags, int priority)
    : context_(context), role_(role), flags_(flags), priority_(priority), id_(next_stream_id.fetch_add(1)) {}

void Stream::collect_pending(std::vector<CompletionRef>& into) const {
  if (has_pending()) into.push_back(last_);
}

std::vector<CompletionRef> Stream::dependencies() const {
  std::vector<CompletionRef> found;
  collect_pending(found);
  if (role_ == Role::legacy) {
    context_.collect_pending(found, Context::Which::blocking);
  } else if (blocking()) {
    context_.legacy_->collect_pending(found);
  }
  return found;
}

void Stream::execute(const std::function<void()>& work) const {
  // After a fault the context does nothing more: its pending work ends without running, as on a GPU.
  const auto given_up = [this] { return context_.fault() != CUDA_SUCCESS || context_.destroyed(); };
  if (!work || given_up()) return;
  softgpu::Standstill::of_process().pass(given_up);
  if (!given_up()) context_.attempt(work);
}

void Stream::wait_for_room() {
  if (executes_a_stream) return;
  gpupool::MutexLock lock(queue_mutex_);
  queue_has_room_.wait(queue_mutex_, [this]() REQUIRES(queue_mutex_) { return queue_.size() < queue_limit; });
}

CompletionRef Stream::submit(std::function<void()> work, std::vector<CompletionRef> extra, By by) {
  wait_for_room();  // before the lock, which whoever makes room may need
  const gpupool::MutexLock order(context_.submit_mutex);
  auto completion = std::make_shared<Completion>(weak_from_this(), ++submitted_);
  std::vector<CompletionRef> after = dependencies();
  for (CompletionRef& other : extra) {
    if (other && !other->done()) after.push_back(std::move(other));
  }
  if (!work && after.empty()) {
    completion->finish();  // a mark in an idle stream needs no thread
    last_ = completion;
    return completion;
  }
  if (!work) by = By::anyone;
  bool may_be_done_elsewhere = by == By::anyone;
  {
    const gpupool::MutexLock lock(queue_mutex_);
    may_be_done_elsewhere &= !busy_ && queue_.empty() && thread_started_;
    if (!thread_started_) start_thread();  // without a thread nothing is queued
    queue_.push_back({std::move(after), std::move(work), completion, by});
  }
  last_ = completion;
  // A program that waits for what it launches does it itself; waking another thread for it would take longer
  // than many kernels, and a core from the threads that help.
  const auto wake = [self = weak_from_this()] {
    if (const auto stream = self.lock()) stream->wake_if_wanted();
  };
  if (!may_be_done_elsewhere || !in_a_moment(wake)) queue_changed_.notify_one();
  return completion;
}

void Stream::wake_if_wanted() {
  const gpupool::MutexLock lock(queue_mutex_);
  if (wants_its_thread()) queue_changed_.notify_one();
}

void Stream::run_here(const std::function<void()>& work) {
  auto completion = std::make_shared<Completion>();
  std::vector<CompletionRef> after;
  {
    const gpupool::MutexLock order(context_.submit_mutex);
    after = dependencies();
    last_ = completion;
  }
  for (const CompletionRef& other : after) other->wait();
  execute(work);
  completion->finish();
}

void Stream::synchronize() {
  std::vector<CompletionRef> after;
  {
    const gpupool::MutexLock order(context_.submit_mutex);
    collect_pending(after);
    if (role_ == Role::legacy) after = dependencies();
  }
  for (const CompletionRef& other : after) other->wait();
}

bool Stream::idle() {
  const gpupool::MutexLock order(context_.submit_mutex);
  return role_ == Role::legacy ? dependencies().empty() : !has_pending();
}

bool Stream::ready() {
  const gpupool::MutexLock order(context_.submit_mutex);
  return dependencies().empty();
}

void Stream::start_thread() {
  // The thread keeps the stream and its context alive until the queue is empty. It is detached: at process
  // exit the driver object is never destroyed, so a thread that still runs touches nothing that is gone.
  // The program's signals are for the program's threads; a kernel's own faults are delivered regardless.
  gpupool::quiet_thread([self = shared_from_this()] { self->drain_queue(); },
                        {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT})
      .detach();
  thread_started_ = true;
  keeps_context_ = context_.shared_from_this();
}

void Stream::drain_queue() {
  executes_a_stream = true;
  for (;;) {
    gpupool::MutexLock lock(queue_mutex_);
    while (!wants_its_thread()) {
      if (busy_ && help_wanted()) {
        // The waiting thread was quicker: this one, awake already, is of use to it.
        const std::thread::id doer = doer_;
        lock.unlock();
        const bool helped = help(doer);
        lock.lock();
        if (helped || wants_its_thread()) continue;
      }
      queue_changed_.wait(queue_mutex_);
    }
    if (queue_.empty()) break;
    Work work = take_next();
    lock.unlock();
    for (const CompletionRef& other : work.after) other->wait();
    perform(work);
  }
  keeps_context_.reset();
}

bool Stream::do_next_here(const Completion& wanted) {
  if (executes_a_stream) return false;
  gpupool::MutexLock lock(queue_mutex_);
  if (busy_ || queue_.empty()) return false;
  const Work& next = queue_.front();
  const auto done = [](const CompletionRef& other) { return other->done(); };
  if (next.completion->place() > wanted.place()) return false;  // it may wait for this very thread
  if (next.by != By::anyone || !std::ranges::all_of(next.after, done)) return false;
  Work work = take_next();
  lock.unlock();
  executes_a_stream = true;
  perform(work);
  executes_a_stream = false;
  wake_if_wanted();
  return true;
}

bool Stream::wants_its_thread() const {
  return !busy_ && (closing_ || !queue_.empty());
}

Stream::Work Stream::take_next() {
  Work work = std::move(queue_.front());
  queue_.pop_front();
  if (queue_.size() + 1 == queue_limit) queue_has_room_.notify_all();
  busy_ = true;
  doer_ = std::this_thread::get_id();
  return work;
}

void Stream::perform(Work& work) {
  work.completion->begin();
  execute(work.run);
  work.run = nullptr;  // what the work holds (modules, buffers) goes before others learn that it is done
  {
    const gpupool::MutexLock lock(queue_mutex_);
    busy_ = false;
  }
  work.completion->finish();  // not under the lock: who waits for it wants that next
}

CUstreamAttrValue Stream::attribute(CUstreamAttrID id) const {
  const gpupool::MutexLock lock(attributes_mutex_);
  const auto found = attributes_.find(id);
  if (found != attributes_.end()) return found->second;
  CUstreamAttrValue value{};
  switch (id) {
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
      value.priority = priority_;
      return value;
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
      value.syncPolicy = CU_SYNC_POLICY_AUTO;
      return value;
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
      value.memSyncDomainMap = {0, 1};
      return value;
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
      return value;
    default:
      fail(CUDA_ERROR_INVALID_VALUE);
  }
}

void Stream::set_attribute(CUstreamAttrID id, const CUstreamAttrValue& value) {
  require(id == CU_LAUNCH_ATTRIBUTE_PRIORITY || id == CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY ||
          id == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP || id == CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW ||
          id == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN);
  const gpupool::MutexLock lock(attributes_mutex_);
  attributes_[id] = value;
}

void Stream::copy_attributes(const Stream& from) {
  if (this == &from) return;
  std::map<int, CUstreamAttrValue> copied;
  {
    const gpupool::MutexLock lock(from.attributes_mutex_);
    copied = from.attributes_;
  }
  const gpupool::MutexLock lock(attributes_mutex_);
  attributes_ = std::move(copied);
}

void Stream::close() {
  const gpupool::MutexLock lock(queue_mutex_);
  closing_ = true;
  queue_changed_.notify_one();
}

}  // namespace softgpu::driver

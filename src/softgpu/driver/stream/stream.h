// Streams: ordered queues of work, each executed by its own thread, or by one that waits for it.
//
// Every piece of work names the completions it must wait for: the one before it in its stream, the events the
// stream was told to wait for, and for the legacy default stream the rules of implicit synchronisation. Work
// only ever waits for work submitted earlier, so streams cannot deadlock each other.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "softgpu/driver/base/cuda_api.h"
#include "softgpu/driver/stream/capture.h"
#include "softgpu/driver/stream/completion.h"

namespace softgpu::driver {

class Context;

class Stream : public std::enable_shared_from_this<Stream> {
 public:
  enum class Role { legacy, per_thread, created };
  // The threads that may do a piece of work: the program's do no work that calls back into it or waits for
  // it.
  enum class By { own_thread, anyone };

  Stream(Context& context, Role role, unsigned flags, int priority);
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  Context& context() const { return context_; }
  Role role() const { return role_; }
  unsigned flags() const { return flags_; }
  int priority() const { return priority_; }
  unsigned long long id() const { return id_; }
  // Synchronises with the legacy default stream?
  bool blocking() const { return role_ != Role::legacy && !(flags_ & CU_STREAM_NON_BLOCKING); }

  // Puts work at the end of the stream; `extra` are further completions to wait for. Waits while the queue is
  // full, as a GPU's driver does. Errors thrown by the work become the context's sticky error. An empty
  // function marks a point in the stream.
  CompletionRef submit(std::function<void()> work, std::vector<CompletionRef> extra = {},
                       By by = By::own_thread);
  // The same in stream order, but executed by the calling thread; returns when it is done. An empty function
  // waits for the stream's turn.
  void run_here(const std::function<void()>& work);
  // For a thread that waits for `wanted`, work of this stream: does the stream's next piece of work, which is
  // that or before it, if that is for anyone, can begin, and nobody does work of this stream. Returns whether
  // it did.
  bool do_next_here(const Completion& wanted);
  // Waits until all work submitted so far is done (for the legacy stream: that of all blocking streams too).
  void synchronize();
  bool idle();
  // Whether work given to it now would wait for nothing.
  bool ready();
  // The stream ends when its queue is empty; called once, when the handle is destroyed.
  void close();

  // Hints for hardware that is not there: kept, so that they can be asked for.
  CUstreamAttrValue attribute(CUstreamAttrID id) const;
  void set_attribute(CUstreamAttrID id, const CUstreamAttrValue& value);
  void copy_attributes(const Stream& from);

  // Capture state, guarded by the context's submit mutex.
  std::shared_ptr<Capture> capture;
  std::vector<GraphNodeRef> capture_tail;

 private:
  friend class Context;
  struct Work {
    std::vector<CompletionRef> after;
    std::function<void()> run;
    CompletionRef completion;
    By by;
  };

  // All four need the context's submit mutex, the last the queue mutex too.
  bool has_pending() const { return last_ && !last_->done(); }
  std::vector<CompletionRef> dependencies() const;
  void collect_pending(std::vector<CompletionRef>& into) const;
  void start_thread() REQUIRES(queue_mutex_);

  Work take_next() REQUIRES(queue_mutex_);
  bool wants_its_thread() const REQUIRES(queue_mutex_);

  void wake_if_wanted();
  void wait_for_room();
  void perform(Work& work);
  void execute(const std::function<void()>& work) const;
  void drain_queue();

  Context& context_;
  const Role role_;
  const unsigned flags_;
  const int priority_;
  const unsigned long long id_;
  mutable gpupool::Mutex attributes_mutex_;
  std::map<int, CUstreamAttrValue> attributes_ GUARDED_BY(attributes_mutex_);
  // Guarded by the context's submit mutex.
  CompletionRef last_;
  std::uint64_t submitted_ = 0;

  gpupool::Mutex queue_mutex_;
  gpupool::CondVar queue_changed_, queue_has_room_;
  std::deque<Work> queue_ GUARDED_BY(queue_mutex_);
  bool thread_started_ GUARDED_BY(queue_mutex_) = false;
  bool closing_ GUARDED_BY(queue_mutex_) = false;
  bool busy_ GUARDED_BY(queue_mutex_) = false;     // somebody does a piece of work:
  std::thread::id doer_ GUARDED_BY(queue_mutex_);  // this thread, last
  std::shared_ptr<Context> keeps_context_;         // given up by the thread at its end
};

}  // namespace softgpu::driver

#include "client/progress/completion.h"

#include <sched.h>

#include <array>
#include <atomic>

#include "client/call/call.h"
#include "client/call/capture.h"
#include "generated/wire/control.h"
#include "wire/windows.h"

namespace gpupool::client {
namespace {

constexpr std::uint64_t per_thread_stream = 2;

/// Of one worker. Frames are numbered per connection, so nothing of this is compared with another's.
struct Known {
  FrameMark last_wait;                      ///< frame of the last wait of any kind that has ended well
  std::atomic<std::size_t> outstanding{0};  ///< watches that the worker has not answered
};
std::array<Known, SessionFile::max_workers> known_of;

Known& of(const WorkerLink& worker) {
  return known_of[worker.index];
}

Progress* progress_of_stream(std::uint64_t stream, std::uint64_t context) {
  if (stream == per_thread_stream) return nullptr;  // one for each thread: nothing is known of it
  if (stream < per_thread_stream) {
    Context* const found = tables().contexts.find(context);
    return found == nullptr ? nullptr : &found->legacy;
  }
  Stream* const found = tables().streams.find(stream);
  return found == nullptr ? nullptr : &found->progress;
}

/// The stream that an event was last recorded in, and the frame that did it; null when that is not known,
/// as while another thread records it anew (Event::recorded).
Progress* recorded_in(const Event& event, std::uint64_t& frame) {
  const std::uint64_t stream = event.stream.get();
  frame = event.progress.given.get();
  return event.stream.get() == stream ? progress_of_stream(stream, event.context) : nullptr;
}

std::uint64_t context_done(std::uint64_t context) {
  const Context* const found = tables().contexts.find(context);
  return found == nullptr ? 0 : found->done.get();
}

bool done(const Progress& progress, std::uint64_t context) {
  const std::uint64_t given = progress.given.get();
  return progress.done.get() >= given || context_done(context) >= given;
}

/// What a watch is called: the handle itself; the legacy stream goes by the name of its context.
Progress* watched(std::uint64_t watch) {
  switch (wire::Handle::from(watch).kind) {
    case wire::Kind::stream: {
      Stream* const found = tables().streams.find(watch);
      return found == nullptr ? nullptr : &found->progress;
    }
    case wire::Kind::event: {
      Event* const found = tables().events.find(watch);
      return found == nullptr ? nullptr : &found->progress;
    }
    case wire::Kind::context: {
      Context* const found = tables().contexts.find(watch);
      return found == nullptr ? nullptr : &found->legacy;
    }
    default:
      return nullptr;
  }
}

/// Whether what is watched is on that worker: one does not speak for another.
bool is_on(std::uint64_t watch, const WorkerLink& worker) {
  if (!runtime().several()) return true;
  std::uint64_t context = watch;
  if (const Stream* const stream = tables().streams.find(watch)) context = stream->context;
  if (const Event* const event = tables().events.find(watch)) context = event->context;
  return &worker_of_context(context) == &worker;
}

bool take_completed(Connection& connection, const WorkerLink& worker, const wire::Completed& completed) {
  if (of(worker).outstanding.load() == 0) return false;  // nothing was to be told
  --of(worker).outstanding;
  connection.keep_deferred(completed.deferred_error, completed.deferred_message);
  Progress* const progress = watched(completed.watch);
  if (progress == nullptr) return true;  // destroyed meanwhile
  if (!is_on(completed.watch, worker)) return false;
  if (completed.result == CUDA_SUCCESS) {
    progress->done.raise(completed.through);
  } else {
    progress->error.exchange(static_cast<std::uint64_t>(worker_result(completed.result)));
    progress->failed.raise(completed.through);
  }
  progress->watched.exchange(0);
  return true;
}

/// What is known now; CUDA_ERROR_NOT_READY when nothing is.
CUresult known(const Progress& progress, std::uint64_t context) {
  if (done(progress, context)) return CUDA_SUCCESS;
  if (progress.failed.get() >= progress.given.get()) return static_cast<CUresult>(progress.error.get());
  return CUDA_ERROR_NOT_READY;
}

/// Whether the program may know more than this process has been told: then it must be told the truth.
bool must_ask(Progress& progress, const WorkerLink& worker) {
  const std::uint64_t waited = of(worker).last_wait.get();
  if (waited <= progress.given.get() || waited <= progress.asked.get()) return false;
  progress.asked.raise(waited);
  return true;
}

template <class M, class Watch>
CUresult query(Progress& progress, std::uint64_t context, const M& question, const Watch& watch) {
  Runtime& r = runtime();
  if (const CUresult bad = r.enter(); bad != CUDA_SUCCESS) return bad;
  const WorkerLink& worker = worker_of_context(context);
  Connection& connection = *worker.connection.load(std::memory_order_acquire);
  CUresult result = known(progress, context);
  if (result == CUDA_ERROR_NOT_READY) {
    connection.read_arrived();
    result = known(progress, context);
  }
  if (result == CUDA_SUCCESS) return found_done(context);
  if (result != CUDA_ERROR_NOT_READY) return earlier_or(result, worker);
  if (connection.broken()) return r.lost();
  if (must_ask(progress, worker)) {
    typename M::Reply reply;
    std::vector<std::byte> bytes;
    CUresult own = CUDA_ERROR_UNKNOWN;
    std::uint64_t place = 0;
    const CUresult told = ask(question, reply, context, bytes, {}, nullptr, &own, &place);
    if (own == CUDA_SUCCESS) progress.done.raise(place);
    return told == CUDA_SUCCESS ? found_done(context) : told;
  }
  if (progress.watched.exchange(1) == 0) {
    note_watch(worker);
    if (const CUresult bad = post(watch, context); bad != CUDA_SUCCESS) {
      --of(worker).outstanding;
      progress.watched.exchange(0);
      return bad;
    }
  } else {
    sched_yield();  // a program that asks in a loop leaves the processor to who makes the answer
  }
  return CUDA_ERROR_NOT_READY;
}

/// Whether the answer to a query needs no share: what was complete when the share went is so still. Memory
/// allocators of frameworks ask for their events before anything else, and an error is more than they bear:
/// PyTorch's forgets the event at it, and uses it again with the next tensor. Where host memory would have to
/// be fetched with the answer, a share is needed.
bool complete_without_share(const Event& event) {
  Runtime& r = runtime();
  return !r.ready() && r.connected() && known_done(event) &&
         mirrored_regions.load(std::memory_order_acquire) == 0 && r.enter_without_lease() == CUDA_SUCCESS;
}

bool too_many(std::uint64_t context) {
  return of(worker_of_context(context)).outstanding.load() >=
         wire::watches - 64;  // several threads may pass here at once
}

}  // namespace

void note_work(std::uint64_t stream, std::uint64_t context, std::uint64_t place) {
  if (context == any_context) context = current_context();
  if (stream > per_thread_stream) {
    Stream* const found = tables().streams.find(stream);
    if (found == nullptr) return;
    found->progress.given.raise(place);
    if ((found->flags & CU_STREAM_NON_BLOCKING) != 0) return;
    context = found->context;
  }
  // The legacy stream waits for what blocking streams have been given.
  if (Context* const home = tables().contexts.find(context)) home->legacy.given.raise(place);
}

void note_watch(const WorkerLink& worker) {
  ++of(worker).outstanding;
}

void note_handed_out(std::uint64_t event) {
  if (Event* const found = tables().events.find(event)) found->elsewhere.raise(1);
}

void note_wait(const WorkerLink& worker, std::uint64_t place) {
  of(worker).last_wait.raise(place);
}

void note_context_done(std::uint64_t context, std::uint64_t place) {
  if (Context* const found = tables().contexts.find(context)) found->done.raise(place);
}

void note_drained(const WorkerLink& worker, std::uint64_t place) {
  tables().contexts.each([&](std::uint64_t context, Context& found) {
    if (is_on(context, worker)) found.done.raise(place);
  });
}

void note_stream_done(std::uint64_t stream, std::uint64_t context, std::uint64_t place) {
  if (Progress* const progress = progress_of_stream(stream, context)) progress->done.raise(place);
}

void note_event_done(Event& event, std::uint64_t place) {
  event.progress.done.raise(place);
  // What the stream was given before the event was recorded is complete too.
  std::uint64_t recorded = 0;
  Progress* const stream = recorded_in(event, recorded);
  if (stream != nullptr && recorded <= place) stream->done.raise(recorded);
}

bool known_done(std::uint64_t stream, std::uint64_t context) {
  if (captures_are_open()) return false;
  const Progress* const progress = progress_of_stream(stream, context);
  if (progress == nullptr) return false;
  if (stream > per_thread_stream) {
    const Stream* const found = tables().streams.find(stream);
    if (found == nullptr) return false;  // another thread has destroyed it meanwhile
    context = found->context;
  }
  return done(*progress, context);
}

bool known_done(const Event& event) {
  if (!event.is_known_here() || captures_are_open()) return false;
  if (done(event.progress, event.context)) return true;
  std::uint64_t recorded = 0;
  const Progress* const stream = recorded_in(event, recorded);
  return stream != nullptr && stream->done.get() >= recorded;
}

CUresult found_done(std::uint64_t context) {
  const WorkerLink& worker = worker_of_context(context);
  take_host_memory(worker);
  return earlier_or(CUDA_SUCCESS, worker);
}

CUresult query_stream(CUstream stream) {
  if (!client::known(wire::Kind::stream, stream)) return bad_handle(wire::Kind::stream);
  std::uint64_t context = 0;
  if (const CUresult bad = in_current_context(context); bad != CUDA_SUCCESS) return bad;
  const std::uint64_t handle = raw(stream);
  Progress* const progress = progress_of_stream(handle, context);
  if (handle > per_thread_stream) {
    if (const Stream* const found = tables().streams.find(handle)) context = found->context;
  }
  if (progress == nullptr || too_many(context) || captures_are_open()) {
    messages::cuStreamQuery m;
    m.hStream = handle;
    replies::cuStreamQuery reply;
    return ask(m, reply);
  }
  messages::WatchStream watch;
  watch.watch = handle > per_thread_stream ? handle : context;
  watch.stream = handle;
  messages::cuStreamQuery question;
  question.hStream = handle;
  return query(*progress, context, question, watch);
}

CUresult query_event(CUevent event) {
  Event* const found = tables().events.find(raw(event));
  if (found == nullptr) return bad_handle(wire::Kind::event);
  if (in_host_function()) return CUDA_ERROR_NOT_PERMITTED;
  if (complete_without_share(*found)) return CUDA_SUCCESS;
  if (!found->is_known_here() || too_many(found->context) || captures_are_open()) {
    messages::cuEventQuery m;
    m.hEvent = raw(event);
    replies::cuEventQuery reply;
    std::vector<std::byte> bytes;
    return ask(m, reply, found->context, bytes);
  }
  // Read before it is asked: another thread may record the event anew meanwhile.
  const auto given = found->progress.given.get();
  if (known_done(*found)) note_event_done(*found, given);
  messages::WatchEvent watch;
  watch.watch = raw(event);
  messages::cuEventQuery question;
  question.hEvent = raw(event);
  return query(found->progress, found->context, question, watch);
}

void listen_for_completions(Connection& connection, const WorkerLink& worker) {
  of(worker).last_wait.exchange(0);  // a new connection's frames are numbered from 1
  of(worker).outstanding.store(0);
  connection.on_told<wire::Completed>(wire::Control::completed, [&](const wire::Completed& completed) {
    return take_completed(connection, worker, completed);
  });
}

}  // namespace gpupool::client

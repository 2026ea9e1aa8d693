// Completion of streams and events: known here, or pushed by the worker. Asking about it costs no round trip.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "client/call/call_hooks.h"
#include "client/call/objects.h"
#include "client/link/connection.h"
#include "client/session/worker_link.h"

namespace gpupool::client {

/// An answer to frame `place` says that everything before it is complete.
void note_context_done(std::uint64_t context, std::uint64_t place);
void note_stream_done(std::uint64_t stream, std::uint64_t context, std::uint64_t place);
void note_event_done(Event& event, std::uint64_t place);

/// An answer of `worker` to frame `place` says that everything before it is complete, in all its contexts.
void note_drained(const WorkerLink& worker, std::uint64_t place);

/// Whether all that a stream was given is known to be complete. Never while a capture is open.
bool known_done(std::uint64_t stream, std::uint64_t context);
bool known_done(const Event& event);

/// The answer to who waits for what is known to be complete: has the effects of having waited. `context`: of
/// the stream or event.
CUresult found_done(std::uint64_t context);

/// The worker will tell of one more completion.
void note_watch(const WorkerLink& worker);

CUresult query_stream(CUstream stream);
CUresult query_event(CUevent event);

/// Takes the worker's pushes about completion.
void listen_for_completions(Connection& connection, const WorkerLink& worker);

}  // namespace gpupool::client

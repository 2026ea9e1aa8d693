// Carries a session from one worker to another: as a folder, or over a connection (session_transfer.h). The
// client notices that its connection breaks, and goes on with the new worker where it stopped.
//
// States of the session in the worker that has it
//
//   served        frames are executed
//   still         Conversation::stand_still() holds the session: no frame is executed, no call waits, no copy
//                 and no push is on its way, and the devices have nothing to do
//   written       Conversation::was_written(): nothing is held any more, but the thread that serves waits in
//                 Conversation::may_go_on(). A lease of a later epoch makes it served again; else the process
//                 is ended by whoever moved the session
//
// and in the worker that gets it: new (nobody was served), resuming (SessionResume::run), served. A failure
// while it resumes ends that worker; nothing of it is gone on with.
//
// Invariants
//
// 1. Two workers never execute frames of one session. The image bears the epoch E of the lease under which it
//    was written. The worker that wrote it executes nothing until it sees an epoch above E, and a worker
//    takes the image up only under an epoch above E; the pool gives an epoch to one worker.
// 2. An image is of one moment: from stand_still() to the last byte that is read the session is held.
// 3. No frame is acknowledged that the image does not know of: what the client is not told was executed, it
//    sends to the new worker again.
// 4. Until the new worker says that it has the session, it is where it was: writing ends no object, so a
//    transfer may break anywhere. Memory that came back from the host for it goes there again, unless there
//    is a lease by then (MoveResult::brought_back). The new worker says so when all of it is there, and
//    before it serves.
// 5. A lease here comes first: it cancels a transfer under way (hand_over), because the client waits for it.
// 6. Nothing in an image is trusted: calls are repeated through their handlers, and memory is mapped and
//    charged as for a client. Addresses must be free as they were, because the program holds them.
//
// Order of locks, the first taken first
//
//   Parking::moving          memory moves, one at a time; never with one of those below
//   Conversation: executing_ a Hold
//   Conversation: serving_, waiting_, deferring_; Completions: delivering_, then Conversation: printing_,
//   then Completions: items_mutex_; Outlet: sending_, then keeping_
//
// A Residence::Visit is tried and not waited for, but by the thread that executes a frame: it may wait for
// memory under executing_. So memory is brought back before the session is held.
#pragma once

#include <functional>
#include <string>

#include "wire/transport/stream.h"
#include "worker/conversation/conversation.h"
#include "worker/image/chunk_source.h"
#include "worker/image/session_image.h"
#include "worker/lease/worker_state.h"
#include "worker/moving/session_parking.h"
#include "worker/moving/session_writer.h"

namespace gpupool::worker {

class SessionMove {
 public:
  SessionMove(Conversation& conversation, SessionParking& parking)
      : conversation_(conversation), parking_(parking), state_(conversation.equipment().state) {}

  /// Writes the session's image into a folder. Without a lease in force, on a thread that neither serves nor
  /// answers the node agent.
  MoveResult export_image(const std::string& folder);
  /// Gives the session to another worker, which has sent a valid Control::session on `stream` and nothing yet
  /// behind it. On a thread of its own.
  MoveResult hand_over(wire::Stream& stream);
  /// Takes up a session that another worker wrote down. On the thread that will serve it, before anybody is
  /// served. Throws std::runtime_error.
  void resume_from(ChunkSource& source, const SessionImage& image);

 private:
  MoveResult write(const std::function<MoveResult(SessionWriter&)>& use);
  MoveResult write_here(const std::function<MoveResult(SessionWriter&)>& use);

  Conversation& conversation_;
  SessionParking& parking_;
  WorkerState& state_;
};

}  // namespace gpupool::worker

// What the client keeps of a session, and how it forgets it when another session begins in the same process.
//
// A session that was ended, lost or closed can be followed by another one, named by the session file. Then:
//
//  1. It begins at the next attach (Runtime::connect) and nowhere else. What belongs to the old one is
//     forgotten after the new workers have been reached and before any message is sent to them.
//  2. Whoever keeps something of a session in a place of the process (a table, a map, a cache) registers here
//     how to forget it, when the place is made. What the program owns itself stays: pinned host memory, its
//     functions, the counters.
//  3. No old handle means anything in the new session: tables give a slot's next generation to its next
//     object, and no slot is used in the session that follows the one it was used in. Primary contexts and
//     default pools are their devices': their handles stay, as after cuDevicePrimaryCtxReset, and what was in
//     them is gone.
//  4. No old address does: the new session's arenas lie elsewhere. Pages that the host shared with the old
//     devices stay readable and writable, with the content that this process has seen last.
//  5. A call that was under way fails, whatever it waited for: its connection is over, and stays so. Objects
//     are recycled and never freed, so a call that has looked one up before finds it, or its successor, and
//     never memory of somebody else.
//  6. A call that begins the new session while it holds handles of the old one fails with
//     CUDA_ERROR_CONTEXT_IS_DESTROYED (Runtime::enter). Calls that begin it before they look at what they
//     were given (Runtime::begin_if_over) do not.
#pragma once

#include <functional>
#include <utility>

namespace gpupool::client {

/// `forget` is called when another session begins; in no order, without locks held.
void forget_with_session(std::function<void()> forget);

/// The old session's belongings are forgotten. By one thread at a time.
void forget_belongings();

/// A place, never destroyed, for what a session has: `static T& all = kept_for_session<T>(forget);`.
template <class T, class Forget, class... Arguments>
T& kept_for_session(Forget forget, Arguments&&... arguments) {
  T* const made = new T(std::forward<Arguments>(arguments)...);
  forget_with_session([made, forget] { forget(*made); });
  return *made;
}

}  // namespace gpupool::client

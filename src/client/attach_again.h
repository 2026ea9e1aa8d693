// A program may have its calls wait for a GPU where none is attached: the runtime asks it, and tries again.
#pragma once

namespace gpupool::client {

/// What the program's function answers.
enum class AttachAnswer : int {
  attached = 0,     ///< the session file names a lease: the call is tried again
  refused = 1,      ///< the call fails, with the message that the function has left
  interrupted = 2,  ///< it fails, and SIGINT is raised once it is over: the user does not want to wait
};

/// Null: calls that find no GPU attached fail, as they do by default.
void on_unattached(int (*function)());

/// Whether a call of this thread that finds no GPU may ask the program for one.
[[nodiscard]] bool may_attach_again();

/// Asks the program. It may take as long as the queue for a GPU is, and run any code but CUDA calls that need
/// a GPU, so nobody who calls this holds a lock that such code could want.
[[nodiscard]] bool attach_again();

/// Whether this thread is the runtime's own, or is inside the program's function.
[[nodiscard]] bool never_attaches_again();

/// This thread is the runtime's own, and others wait for it: it never asks the program.
void never_attach_again();

}  // namespace gpupool::client

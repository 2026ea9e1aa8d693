// A lease was taken back for another, and its holder has asked for one again: calls wait for it, in the
// thread that made them, and an interrupt ends the waiting.
#pragma once

#include "client/process/signal_front.h"

namespace gpupool::client {

/// How the waiting ended.
enum class LeaseWait {
  none,         ///< there was nothing to wait for, or the holder has given up: the session file says why
  came,         ///< the session file names a lease
  interrupted,  ///< the user does not want to wait: the call fails, with a message
};

/// After a wait in vain calls are refused at once for a second; from now on they may wait again.
void end_quiet();

/// Notices signals that a program deals with between its calls (SIGINT, SIGTERM) and that cannot reach it
/// while it waits here; its own handlers are called all the same. Only in the main thread: interpreters deal
/// with signals there, and nobody else may change their handlers meanwhile.
class InterruptWatch {
 public:
  InterruptWatch();

  [[nodiscard]] bool interrupted() const;

 private:
  SignalFront interrupt_, termination_;
};

}  // namespace gpupool::client

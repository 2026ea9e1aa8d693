// A program may have its calls wait for a GPU where none is attached (`%gpu auto on`): they wish for one.
//
// Whoever holds the program's leases listens at a pipe beside the session file (`<session file>.wishes`),
// attaches, and says in the session file that the wish is answered. The waiting is done here, in C and under
// no lock of anybody's: code of the program that ran inside its own call could need a lock that the call, or
// another thread, holds.
#pragma once

#include <string>

namespace gpupool::client {

/// Whether calls that find no GPU attached wish for one; they fail by default.
void wish_for_leases(bool on);

/// Whether a call of this thread that finds no GPU may wish for one.
[[nodiscard]] bool may_wish();

/// Whether this thread is the runtime's own.
[[nodiscard]] bool never_waits();

/// This thread is the runtime's own, and others wait for it: it never waits for a lease.
void never_wait_for_lease();

/// For a thread that holds what others need while it sends something: its calls do not wait for a lease in
/// this scope, they fail.
class NoLeaseWait {
 public:
  NoLeaseWait();
  ~NoLeaseWait();
  NoLeaseWait(const NoLeaseWait&) = delete;
  NoLeaseWait& operator=(const NoLeaseWait&) = delete;

 private:
  bool before_;
};

/// A wish that several threads may have at once: the first of them says it, the last takes it back.
class LeaseWish {
 public:
  LeaseWish();
  ~LeaseWish();
  LeaseWish(const LeaseWish&) = delete;
  LeaseWish& operator=(const LeaseWish&) = delete;

  /// Its number; an answer to this or a later one is an answer to it.
  [[nodiscard]] unsigned long number() const { return number_; }
  /// Whether somebody listens.
  [[nodiscard]] bool heard() const;

 private:
  unsigned long number_ = 0;
};

}  // namespace gpupool::client

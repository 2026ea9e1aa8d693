// What becomes of a call that has come: pure.
//
// 1. What needs a lease is executed only while there is one (no lease, no computing).
// 2. A post is never lost for want of a lease: it is kept, and executed under the next one, before anything
//    that came after it. Its client could not know yet that the lease had ended.
// 3. An ask that needs a lease and has none is refused: the client makes it once more under its next lease,
//    when everything that was kept has been executed.
// 4. Nothing overtakes what is kept, but what work on the device waits for.
#pragma once

#include <cstdint>

#include "worker/lease/lease_gate.h"

namespace gpupool::worker {

enum class CallFate : std::uint8_t {
  run,
  refuse,
  keep,  ///< until there is what it lacks
  wait,  ///< nothing is read behind it before there is what it lacks
};

/// A call, as far as its fate depends on it.
struct ArrivedCall {
  Admission admission = Admission::ok;  ///< by its own epoch; ok: it needs no lease
  bool needs_lease = false;
  bool is_ask = false;
  bool bulk = false;
  bool refused_by_push = false;  ///< a post whose client waits for a push, maybe without a lease ever again
  bool ends_what_is_waited_for = false;  ///< work on the device waits for it
};

/// How things stand when it has come.
struct CallSituation {
  bool memory_is_here = true;
  bool attached = true;         ///< there is a lease now, of whatever epoch
  bool something_kept = false;  ///< that came earlier and could not be executed yet
};

[[nodiscard]] constexpr CallFate fate_of(const ArrivedCall& call, const CallSituation& now) {
  const bool posted_earlier = call.admission == Admission::past_epoch && !call.is_ask && now.attached;
  if (call.admission != Admission::ok && !posted_earlier) {
    return call.is_ask || call.refused_by_push ? CallFate::refuse : CallFate::keep;
  }
  if (!now.memory_is_here) {
    return call.needs_lease || call.is_ask || call.bulk ? CallFate::wait : CallFate::keep;
  }
  if (!now.something_kept || call.ends_what_is_waited_for) return CallFate::run;
  return call.needs_lease || call.is_ask ? CallFate::wait : CallFate::keep;
}

}  // namespace gpupool::worker

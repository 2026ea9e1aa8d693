#include "softgpu/exec/run/guarded_access.h"

#include <csetjmp>

#include "softgpu/exec/run/launch_state.h"

namespace softgpu {

[[gnu::noinline]] bool guarded_access(void (*access)(const void* argument), const void* argument,
                                      std::uint64_t& address) {
  static const bool installed =
      (install_signal_handlers(), true);  // launches look whether they are still there
  static_cast<void>(installed);
  sigjmp_buf escape;
  FaultGuard& guard = fault_guard();
  sigjmp_buf* const outer = guard.escape;
  guard.escape = &escape;
  const bool done = sigsetjmp(escape, saves_signal_mask) == 0;
  if (done) access(argument);
  guard.escape = outer;
  if (!done) address = guard.address;
  return done;
}

}  // namespace softgpu

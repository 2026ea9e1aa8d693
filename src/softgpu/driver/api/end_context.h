// The end of a context, and of all that it owns.
#pragma once

namespace softgpu::driver {

class Context;

// Ends its work, then frees its memory, modules and streams. Its handles are dead afterwards. Idempotent.
void end_context(Context& context);

}  // namespace softgpu::driver

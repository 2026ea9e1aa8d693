// The stack of current contexts of the calling thread.
#pragma once

#include <memory>
#include <vector>

#include "softgpu/driver/base/cuda_api.h"

namespace softgpu::driver {

class Context;

// The top of the stack, usable. Throws Error: INVALID_CONTEXT if there is none, or the context's sticky
// error.
std::shared_ptr<Context> current_context();
// What a function works on that is given a context or null: the named one, else the current one.
std::shared_ptr<Context> given_or_current(CUcontext handle);
// The top of the stack, in whatever state, or null.
std::shared_ptr<Context> peek_context();
void push_context(std::shared_ptr<Context> context);
// Throws Error(INVALID_CONTEXT) if the stack is empty.
std::shared_ptr<Context> pop_context();
// Replaces the top; null empties it (as cuCtxSetCurrent does).
void set_context(std::shared_ptr<Context> context);

}  // namespace softgpu::driver

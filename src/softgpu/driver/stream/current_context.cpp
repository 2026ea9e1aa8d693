#include "softgpu/driver/stream/current_context.h"

#include "base/thread_object.h"
#include "softgpu/driver/base/error.h"
#include "softgpu/driver/base/registry.h"
#include "softgpu/driver/stream/context.h"

namespace softgpu::driver {
namespace {

using Contexts = std::vector<std::shared_ptr<Context>>;

Contexts& own_stack() {
  return gpupool::of_this_thread<Contexts, struct CurrentContexts>();
}

}  // namespace

std::shared_ptr<Context> peek_context() {
  const Contexts& stack = own_stack();
  return stack.empty() ? nullptr : stack.back();
}

std::shared_ptr<Context> current_context() {
  auto context = peek_context();
  require(context != nullptr, CUDA_ERROR_INVALID_CONTEXT);
  context->check_usable();
  return context;
}

std::shared_ptr<Context> given_or_current(CUcontext handle) {
  return handle ? registry<Context>().get(handle, CUDA_ERROR_INVALID_CONTEXT) : current_context();
}

void push_context(std::shared_ptr<Context> context) {
  own_stack().push_back(std::move(context));
}

std::shared_ptr<Context> pop_context() {
  Contexts& stack = own_stack();
  require(!stack.empty(), CUDA_ERROR_INVALID_CONTEXT);
  auto context = std::move(stack.back());
  stack.pop_back();
  return context;
}

void set_context(std::shared_ptr<Context> context) {
  Contexts& stack = own_stack();
  if (!stack.empty()) stack.pop_back();
  if (context) stack.push_back(std::move(context));
}

}  // namespace softgpu::driver

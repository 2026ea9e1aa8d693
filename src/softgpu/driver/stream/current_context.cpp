#include "softgpu/driver/stream/current_context.h"

#include "softgpu/driver/base/error.h"
#include "softgpu/driver/base/registry.h"
#include "softgpu/driver/stream/context.h"

namespace softgpu::driver {
namespace {

thread_local std::vector<std::shared_ptr<Context>> stack;

}  // namespace

std::shared_ptr<Context> peek_context() {
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
  stack.push_back(std::move(context));
}

std::shared_ptr<Context> pop_context() {
  require(!stack.empty(), CUDA_ERROR_INVALID_CONTEXT);
  auto context = std::move(stack.back());
  stack.pop_back();
  return context;
}

void set_context(std::shared_ptr<Context> context) {
  if (!stack.empty()) stack.pop_back();
  if (context) stack.push_back(std::move(context));
}

}  // namespace softgpu::driver

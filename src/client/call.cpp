#include "client/call.h"

#include <string>

#include "client/log.h"
#include "client/session_hooks.h"
#include "error_log/error_log.h"

namespace gpupool::client {

CUresult bad_handle(wire::Kind kind) {
  if (!runtime().initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  return kind == wire::Kind::context ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_INVALID_HANDLE;
}

CUresult in_current_context(std::uint64_t& context) {
  if (in_host_function()) return CUDA_ERROR_NOT_PERMITTED;  // its thread has no context; this says more
  context = current_context();
  if (context != 0) return CUDA_SUCCESS;
  return runtime().initialised() ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_NOT_INITIALIZED;
}

CUresult wait_for_strays(const Route& route) {
  messages::SynchronizeContext m;
  m.context = route.context;
  replies::SynchronizeContext reply;
  std::vector<std::byte> bytes;
  return ask(m, reply, route.context, bytes);
}

CUresult earlier_or(CUresult own, const WorkerLink& worker) {
  const auto failed = worker.connection.load(std::memory_order_acquire)->take_deferred();
  if (!failed) {
    if (own == CUDA_ERROR_OUT_OF_MEMORY) hear_refusals();
    return own;
  }
  const auto error = worker_result(failed->error);
  const bool unattached = error == CUDA_ERROR_DEVICE_UNAVAILABLE;
  std::string text =
      std::string(public_name(failed->message)) + " failed earlier with error " + std::to_string(error);
  if (unattached) text += " (no GPU was attached when it reached the worker)";
  log_line(text);
  error_log().add(text);
  // Where this call is refused too, its own message says more: why there is no GPU.
  if (!unattached || own != CUDA_ERROR_DEVICE_UNAVAILABLE) remember(text);
  if (error == CUDA_ERROR_OUT_OF_MEMORY) hear_refusals();
  return error;
}

}  // namespace gpupool::client

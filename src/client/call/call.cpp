#include "client/call/call.h"

#include <string>

#include "client/call/objects.h"
#include "client/process/log.h"
#include "client/session/session_hooks.h"
#include "shared_api/error_log.h"

namespace gpupool::client {

CUresult bad_handle(wire::Kind kind) {
  if (!runtime().initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  return kind == wire::Kind::context ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_INVALID_HANDLE;
}

CUresult in_current_context(std::uint64_t& context) {
  if (in_host_function()) return CUDA_ERROR_NOT_PERMITTED;  // its thread has no context; this says more
  context = current_context();
  if (context != 0) {  // another thread may have destroyed it
    return tables().contexts.find(context) != nullptr ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
  }
  return runtime().initialised() ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_NOT_INITIALIZED;
}

CUresult wait_for_strays(const Route& route) {
  messages::SynchronizeContext m;
  m.context = route.context;
  replies::SynchronizeContext reply;
  std::vector<std::byte> bytes;
  return ask(m, reply, route.context, bytes);
}

}  // namespace gpupool::client

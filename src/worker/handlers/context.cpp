// Handlers of the messages about contexts, streams and graphs that the table does not make by itself.
#include <cstddef>
#include <cstdint>

#include "generated/handlers.h"
#include "worker/conversation/call.h"

namespace gpupool::worker {
namespace {

/// How often the device memory of a limit is taken: a stack by each thread that the device can hold at once.
/// A software GPU has them in the host's memory.
std::uint64_t times_taken(Call& x, CUlimit limit) {
  if (limit != CU_LIMIT_STACK_SIZE) return 1;
  const CUdevice device = x.session.device_of_current();
  int processors = 0, threads = 0;
  if (x.equipment.is_software() ||
      x.api.cuDeviceGetAttribute_(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device) !=
          CUDA_SUCCESS ||
      x.api.cuDeviceGetAttribute_(&threads, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, device) !=
          CUDA_SUCCESS)
    return 0;
  return static_cast<std::uint64_t>(processors) * static_cast<std::uint64_t>(threads);
}

}  // namespace

CUresult run_SelectContext(Call& x, const messages::SelectContext& m, replies::SelectContext&) {
  CUcontext context = nullptr;
  if (m.context != 0 && !x.handles.find(wire::Kind::context, m.context, context))
    return CUDA_ERROR_INVALID_CONTEXT;
  return x.session.select(context);
}

CUresult run_CreateContext(Call& x, const messages::CreateContext& m, replies::CreateContext&) {
  CUdevice device = 0;
  if (!x.device(m.device, device)) return CUDA_ERROR_INVALID_DEVICE;
  if (!x.handles.vacant(wire::Kind::context, m.context)) return CUDA_ERROR_INVALID_HANDLE;
  // A dump of the GPU's memory would fill the node's disk.
  const unsigned flags = m.flags & ~(CU_CTX_COREDUMP_ENABLE | CU_CTX_USER_COREDUMP_ENABLE);
  MemoryAccount& account = x.equipment.state.memory[static_cast<std::size_t>(m.device)];
  if (!x.session.shares.reserve(m.context, account)) return CUDA_ERROR_OUT_OF_MEMORY;
  CUcontext context = nullptr;
  CUresult result = x.api.cuCtxCreate_v4_(&context, nullptr, flags, device);
  if (result == CUDA_ERROR_NOT_SUPPORTED) result = x.api.cuCtxCreate_v2_(&context, flags, device);
  if (result != CUDA_SUCCESS) {
    x.session.shares.release(m.context);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) account.refused(account.context_reserve());
    return result;
  }
  x.handles.bind(wire::Kind::context, m.context, context);
  x.session.adopt_context(context, device);
  return x.session.select(
      x.current());  // creating pushed the new context: the client says itself what is current
}

CUresult run_cuCtxSetLimit(Call& x, const messages::cuCtxSetLimit& m, replies::cuCtxSetLimit&) {
  const auto limit = static_cast<CUlimit>(m.limit);
  MemoryAccount* const account = x.session.account_of_current();
  if (account == nullptr || !ContextLimits::takes_memory(limit)) return x.api.cuCtxSetLimit_(limit, m.value);
  std::size_t present = 0;
  if (const CUresult bad = x.api.cuCtxGetLimit_(&present, limit); bad != CUDA_SUCCESS) return bad;
  const std::uint64_t times = times_taken(x, limit);
  if (!x.session.limits.reserve(x.current(), limit, ContextLimits::bytes(present, times),
                                ContextLimits::bytes(m.value, times), *account))
    return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result = x.api.cuCtxSetLimit_(limit, m.value);
  if (result != CUDA_SUCCESS) x.session.limits.undo(x.current(), limit);
  return result;
}

CUresult run_DestroyContext(Call& x, const messages::DestroyContext& m, replies::DestroyContext&) {
  CUcontext context = nullptr;
  if (!x.handles.find(wire::Kind::context, m.context, context) || x.session.is_primary(m.context)) {
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  for (const auto& [green, made_of_it] : x.session.green_contexts) {
    if (made_of_it == m.context) return CUDA_ERROR_INVALID_CONTEXT;  // it goes with its green context
  }
  x.abandon_context(context);
  x.handles.drop(wire::Kind::context, m.context);
  const CUresult result = x.api.cuCtxDestroy_v2_(context);
  x.session.shares.release(m.context);
  return result;
}

CUresult run_cuStreamDestroy_v2(Call& x, const messages::cuStreamDestroy_v2& m,
                                replies::cuStreamDestroy_v2&) {
  CUstream stream = nullptr;
  if (m.hStream <= 2 || !x.handles.find(wire::Kind::stream, m.hStream, stream))
    return CUDA_ERROR_INVALID_HANDLE;
  x.forgets(stream);
  x.session.graphs.abandon_capture(m.hStream);
  x.handles.drop(wire::Kind::stream, m.hStream);
  return x.api.cuStreamDestroy_v2_(stream);
}

}  // namespace gpupool::worker

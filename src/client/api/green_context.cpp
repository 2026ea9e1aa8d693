// Green contexts, and the contexts that are made of them.
#include <cuda.h>

#include <cstring>
#include <map>

#include "base/mutex.h"
#include "client/call/call.h"
#include "client/call/objects.h"
#include "client/objects/plain_objects.h"
#include "client/process/session_belongings.h"
#include "generated/client_api.h"

using namespace gpupool;
using namespace gpupool::client;

namespace {

struct GreenContext {
  int device = 0;
  std::uint64_t context = 0;  ///< made of it, once somebody asked
};
struct GreenContexts {
  Mutex mutex;
  std::map<std::uint64_t, GreenContext> of GUARDED_BY(mutex);
};
GreenContexts& green_contexts() {
  static GreenContexts& all = kept_for_session<GreenContexts>([](GreenContexts& kept) {
    const MutexLock lock(kept.mutex);
    kept.of.clear();
  });
  return all;
}

CUresult context_of_green(CUgreenCtx green, std::uint64_t& handle) {
  if (!known(wire::Kind::green_context, green)) return bad_handle(wire::Kind::green_context);
  {
    const MutexLock lock(green_contexts().mutex);
    handle = green_contexts().of[raw(green)].context;
  }
  if (handle != 0) return CUDA_SUCCESS;
  // Without the mutex: who attaches anew needs it, and this may wait for that.
  if (const CUresult bad = runtime().enter(); bad != CUDA_SUCCESS) return bad;
  const MutexLock lock(green_contexts().mutex);  // two threads must not make two
  GreenContext& object = green_contexts().of[raw(green)];
  if (object.context == 0) {
    Context* made = nullptr;
    const std::uint64_t offered = tables().contexts.mint(made);
    if (offered == 0) return CUDA_ERROR_OUT_OF_MEMORY;
    made->device = object.device;
    made->green = true;
    made->id = offered;
    messages::cuCtxFromGreenCtx m;
    m.pContext = offered;
    m.hCtx = raw(green);
    replies::cuCtxFromGreenCtx reply;
    std::vector<std::byte> bytes;
    CUresult own = CUDA_ERROR_UNKNOWN;
    const CUresult result = ask(m, reply, any_context, bytes, {}, nullptr, &own);
    if (own != CUDA_SUCCESS) {
      tables().contexts.drop(offered);
      return result;
    }
    object.context = offered;  // made, even where the program hears of an earlier error
    if (result != CUDA_SUCCESS) return result;
  }
  handle = object.context;
  return CUDA_SUCCESS;
}

}  // namespace

namespace gpupool::client::api {

CUresult cuGreenCtxCreate(CUgreenCtx* phCtx, CUdevResourceDesc desc, CUdevice dev, unsigned int flags) {
  if (!known(wire::Kind::resource_descriptor, desc)) return bad_handle(wire::Kind::resource_descriptor);
  if (phCtx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Minted<wire::Kind::green_context> made;
  if (made.value() == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  messages::cuGreenCtxCreate m;
  m.phCtx = made.value();
  m.desc = raw(desc);
  m.dev = dev;
  m.flags = flags;
  replies::cuGreenCtxCreate reply;
  std::vector<std::byte> bytes;
  CUresult own = CUDA_ERROR_UNKNOWN;
  const CUresult result = ask(m, reply, any_context, bytes, {}, nullptr, &own);
  if (own != CUDA_SUCCESS) return result;
  const CUgreenCtx green = handle_as<CUgreenCtx>(made.keep());
  {
    const MutexLock lock(green_contexts().mutex);
    green_contexts().of[raw(green)].device = dev;
  }
  if (result != CUDA_SUCCESS) {
    static_cast<void>(api::cuGreenCtxDestroy(green));
    return result;
  }
  *phCtx = green;
  return CUDA_SUCCESS;
}

CUresult cuGreenCtxDestroy(CUgreenCtx hCtx) {
  if (!known(wire::Kind::green_context, hCtx)) return bad_handle(wire::Kind::green_context);
  std::uint64_t context = 0;
  {
    const MutexLock lock(green_contexts().mutex);
    if (const auto found = green_contexts().of.find(raw(hCtx)); found != green_contexts().of.end()) {
      context = found->second.context;
      green_contexts().of.erase(found);
    }
  }
  auto& stack = context_stack();
  if (context != 0 && !stack.empty() && stack.back() == context) stack.pop_back();
  const bool retired = context != 0 && tables().contexts.retire(context);
  messages::cuGreenCtxDestroy m;
  m.hCtx = raw(hCtx);
  const CUresult result = end_object<wire::Kind::green_context>(m.hCtx, m);
  if (retired && result == CUDA_SUCCESS) tables().contexts.recycle(context);
  return result;
}

CUresult cuCtxFromGreenCtx(CUcontext* pContext, CUgreenCtx hCtx) {
  if (pContext == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::uint64_t context = 0;
  const CUresult result = context_of_green(hCtx, context);
  if (result == CUDA_SUCCESS) *pContext = handle_as<CUcontext>(context);
  return result;
}

CUresult cuGreenCtxStreamCreate(CUstream* phStream, CUgreenCtx greenCtx, unsigned int flags, int priority) {
  if (phStream == nullptr || (flags & CU_STREAM_NON_BLOCKING) == 0) return CUDA_ERROR_INVALID_VALUE;
  std::uint64_t context = 0;
  if (const CUresult bad = context_of_green(greenCtx, context); bad != CUDA_SUCCESS) return bad;
  Stream* made = nullptr;
  const std::uint64_t handle = tables().streams.mint(made);
  if (handle == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  made->flags = flags;
  made->priority = priority;
  made->context = context;
  made->id = handle;
  messages::cuGreenCtxStreamCreate m;
  m.phStream = handle;
  m.greenCtx = raw(greenCtx);
  m.flags = flags;
  m.priority = priority;
  replies::cuGreenCtxStreamCreate reply;
  std::vector<std::byte> bytes;
  CUresult own = CUDA_ERROR_UNKNOWN;
  const CUresult result = ask(m, reply, context, bytes, {}, nullptr, &own);
  if (own != CUDA_SUCCESS) {
    tables().streams.drop(handle);
    return result;
  }
  if (result != CUDA_SUCCESS) {
    static_cast<void>(api::cuStreamDestroy(handle_as<CUstream>(handle)));
    return result;
  }
  *phStream = handle_as<CUstream>(handle);
  return CUDA_SUCCESS;
}

CUresult cuDevSmResourceSplitByCount(CUdevResource* result, unsigned int* nbGroups,
                                     const CUdevResource* input, CUdevResource* remainder, unsigned int flags,
                                     unsigned int minCount) {
  if (nbGroups == nullptr || input == nullptr) return CUDA_ERROR_INVALID_VALUE;
  messages::cuDevSmResourceSplitByCount m;
  m.has_result = result != nullptr;
  m.nbGroups = *nbGroups;
  std::memcpy(m.input.data(), input, m.input.size());
  m.has_remainder = remainder != nullptr;
  m.flags = flags;
  m.minCount = minCount;
  replies::cuDevSmResourceSplitByCount reply;
  std::vector<std::byte> bytes;
  const CUresult answer = ask(m, reply, any_context, bytes);
  if (answer != CUDA_SUCCESS) return answer;
  const std::size_t room = result != nullptr ? std::size_t{*nbGroups} * sizeof(CUdevResource) : 0;
  if (reply.result.size() > room) return CUDA_ERROR_UNKNOWN;
  if (!reply.result.empty()) std::memcpy(result, reply.result.data(), reply.result.size());
  if (remainder != nullptr) std::memcpy(remainder, reply.remainder.data(), reply.remainder.size());
  *nbGroups = reply.nbGroups;
  return CUDA_SUCCESS;
}

}  // namespace gpupool::client::api

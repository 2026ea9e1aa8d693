// Handlers of device resources and green contexts.
#include <cstring>

#include "generated/handlers.h"
#include "worker/conversation/call.h"
#include "worker/objects/elements.h"

namespace gpupool::worker {
namespace {

template <class Field>
CUresult show(Call& x, CUdevResource resource, Field& field) {
  const CUdevice own_device = resource.wqConfig.device;
  if (!x.session.resources.publish(resource)) return CUDA_ERROR_OUT_OF_MEMORY;
  if (resource.type == CU_DEV_RESOURCE_TYPE_WORKQUEUE_CONFIG)
    resource.wqConfig.device = x.ordinal(own_device);
  std::memcpy(field.data(), &resource, sizeof(resource));
  return CUDA_SUCCESS;
}

template <class Field>
CUresult take(Call& x, const Field& field, CUdevResource& out) {
  std::memcpy(&out, field.data(), sizeof(out));
  return x.session.resources.restore(out) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
}

/// The groups that a split made, as the client may see them. The span holds until the next split.
CUresult show_groups(Call& x, std::vector<CUdevResource>& groups, std::span<const std::byte>& field) {
  for (CUdevResource& group : groups) {
    if (!x.session.resources.publish(group)) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  field = std::as_bytes(std::span(groups));
  return CUDA_SUCCESS;
}

}  // namespace

CUresult run_cuDeviceGetDevResource(Call& x, const messages::cuDeviceGetDevResource& m,
                                    replies::cuDeviceGetDevResource& reply) {
  CUdevice device = 0;
  if (!x.device(m.device, device)) return CUDA_ERROR_INVALID_DEVICE;
  CUdevResource resource{};
  const CUresult result =
      x.api.cuDeviceGetDevResource_(device, &resource, static_cast<CUdevResourceType>(m.type));
  return result == CUDA_SUCCESS ? show(x, resource, reply.resource) : result;
}

CUresult run_cuCtxGetDevResource(Call& x, const messages::cuCtxGetDevResource& m,
                                 replies::cuCtxGetDevResource& reply) {
  CUcontext context = nullptr;
  if (m.hCtx != 0 && !x.handles.find(wire::Kind::context, m.hCtx, context)) {
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  if (context == nullptr) context = x.current();
  CUdevResource resource{};
  const CUresult result =
      x.api.cuCtxGetDevResource_(context, &resource, static_cast<CUdevResourceType>(m.type));
  return result == CUDA_SUCCESS ? show(x, resource, reply.resource) : result;
}

CUresult run_cuGreenCtxGetDevResource(Call& x, const messages::cuGreenCtxGetDevResource& m,
                                      replies::cuGreenCtxGetDevResource& reply) {
  CUgreenCtx green = nullptr;
  if (!x.handles.find(wire::Kind::green_context, m.hCtx, green)) return CUDA_ERROR_INVALID_HANDLE;
  CUdevResource resource{};
  const CUresult result =
      x.api.cuGreenCtxGetDevResource_(green, &resource, static_cast<CUdevResourceType>(m.type));
  return result == CUDA_SUCCESS ? show(x, resource, reply.resource) : result;
}

CUresult run_cuStreamGetDevResource(Call& x, const messages::cuStreamGetDevResource& m,
                                    replies::cuStreamGetDevResource& reply) {
  CUstream stream = nullptr;
  if (!x.handles.find(wire::Kind::stream, m.hStream, stream)) return CUDA_ERROR_INVALID_HANDLE;
  CUdevResource resource{};
  const CUresult result =
      x.api.cuStreamGetDevResource_(stream, &resource, static_cast<CUdevResourceType>(m.type));
  return result == CUDA_SUCCESS ? show(x, resource, reply.resource) : result;
}

CUresult run_cuDevSmResourceSplitByCount(Call& x, const messages::cuDevSmResourceSplitByCount& m,
                                         replies::cuDevSmResourceSplitByCount& reply) {
  static thread_local std::vector<CUdevResource> groups;
  CUdevResource input{}, remainder{};
  if (const CUresult bad = take(x, m.input, input); bad != CUDA_SUCCESS) return bad;
  if (!make_elements(m.has_result != 0 ? m.nbGroups : 0, groups)) return CUDA_ERROR_INVALID_VALUE;
  unsigned count = m.nbGroups;
  CUresult result =
      x.api.cuDevSmResourceSplitByCount_(m.has_result != 0 ? groups.data() : nullptr, &count, &input,
                                         m.has_remainder != 0 ? &remainder : nullptr, m.flags, m.minCount);
  if (result != CUDA_SUCCESS) return result;
  groups.resize(std::min<std::size_t>(groups.size(), count));
  reply.nbGroups = count;
  result = show_groups(x, groups, reply.result);
  if (result == CUDA_SUCCESS && m.has_remainder != 0) result = show(x, remainder, reply.remainder);
  return result;
}

CUresult run_cuDevSmResourceSplit(Call& x, const messages::cuDevSmResourceSplit& m,
                                  replies::cuDevSmResourceSplit& reply) {
  static thread_local std::vector<CUdevResource> groups;
  CUdevResource input{}, remainder{};
  if (const CUresult bad = take(x, m.input, input); bad != CUDA_SUCCESS) return bad;
  std::vector<CU_DEV_SM_RESOURCE_GROUP_PARAMS> wishes;
  if (!take_elements(m.groupParams, m.nbGroups, wishes) || !make_elements(m.nbGroups, groups)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  CUresult result =
      x.api.cuDevSmResourceSplit_(m.has_result != 0 ? groups.data() : nullptr, m.nbGroups, &input,
                                  m.has_remainder != 0 ? &remainder : nullptr, m.flags, wishes.data());
  if (result != CUDA_SUCCESS) return result;
  if (m.has_result == 0) groups.clear();
  result = show_groups(x, groups, reply.result);
  if (result == CUDA_SUCCESS && m.has_remainder != 0) result = show(x, remainder, reply.remainder);
  return result;
}

CUresult run_cuDevResourceGenerateDesc(Call& x, const messages::cuDevResourceGenerateDesc& m,
                                       replies::cuDevResourceGenerateDesc&) {
  if (!x.handles.vacant(wire::Kind::resource_descriptor, m.phDesc)) return CUDA_ERROR_INVALID_HANDLE;
  std::vector<CUdevResource> resources;
  if (!take_elements(m.resources, m.nbResources, resources)) return CUDA_ERROR_INVALID_VALUE;
  for (CUdevResource& resource : resources) {
    if (!x.session.resources.restore(resource)) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
  }
  CUdevResourceDesc made = nullptr;
  const CUresult result = x.api.cuDevResourceGenerateDesc_(&made, resources.data(), m.nbResources);
  if (result == CUDA_SUCCESS) x.handles.bind(wire::Kind::resource_descriptor, m.phDesc, made);
  return result;
}

CUresult run_cuCtxFromGreenCtx(Call& x, const messages::cuCtxFromGreenCtx& m, replies::cuCtxFromGreenCtx&) {
  CUgreenCtx green = nullptr;
  if (!x.handles.find(wire::Kind::green_context, m.hCtx, green) ||
      !x.handles.vacant(wire::Kind::context, m.pContext) || x.session.is_primary(m.pContext)) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  if (x.session.green_contexts.contains(m.hCtx))
    return CUDA_ERROR_INVALID_VALUE;  // the client keeps the first
  CUcontext made = nullptr;
  const CUresult result = x.api.cuCtxFromGreenCtx_(&made, green);
  if (result != CUDA_SUCCESS) return result;
  // To be asked about a context that is not current came with CUDA 13.
  CUdevice device = 0;
  x.api.cuCtxSetCurrent_(made);
  const CUresult asked = x.api.cuCtxGetDevice_(&device);
  x.api.cuCtxSetCurrent_(x.current());
  if (asked != CUDA_SUCCESS) return asked;
  x.handles.bind(wire::Kind::context, m.pContext, made);
  x.session.adopt_context(made, device);
  x.session.green_contexts[m.hCtx] = m.pContext;
  return CUDA_SUCCESS;
}

CUresult run_cuGreenCtxDestroy(Call& x, const messages::cuGreenCtxDestroy& m, replies::cuGreenCtxDestroy&) {
  CUgreenCtx green = nullptr;
  if (!x.handles.find(wire::Kind::green_context, m.hCtx, green)) return CUDA_ERROR_INVALID_HANDLE;
  x.waits();
  if (const CUcontext made = x.session.context_of_green(m.hCtx); made != nullptr) x.abandon_context(made);
  x.session.forget_green_context(m.hCtx);
  x.handles.drop(wire::Kind::green_context, m.hCtx);
  x.retires(green);
  return x.api.cuGreenCtxDestroy_(green);
}

}  // namespace gpupool::worker

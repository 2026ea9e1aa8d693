#include "softgpu/driver/api/node_parameters.h"

#include <algorithm>
#include <utility>

#include "softgpu/driver/base/error.h"
#include "softgpu/driver/base/registry.h"
#include "softgpu/driver/device/driver.h"
#include "softgpu/driver/memory/batch_operation.h"
#include "softgpu/driver/memory/copy.h"
#include "softgpu/driver/program/launch.h"
#include "softgpu/driver/program/library.h"
#include "softgpu/driver/stream/context.h"
#include "softgpu/driver/stream/current_context.h"
#include "softgpu/driver/stream/event.h"

namespace softgpu::driver {
namespace {

bool is_cooperative(const NodeParameters& parameters) {
  const auto* const launch = std::get_if<std::shared_ptr<const KernelLaunch>>(&parameters);
  return launch != nullptr && (*launch)->cooperative;
}

// One of another process knows nothing of the launches of a graph.
std::shared_ptr<Event> event_for_node(CUevent handle) {
  auto event = registry<Event>().get(handle);
  require(event->shared() == nullptr, CUDA_ERROR_NOT_SUPPORTED);
  return event;
}

Operation kernel_operation(const CUDA_KERNEL_NODE_PARAMS_v3& given, bool cooperative) {
  const auto function = given.func
                            ? resolve_function(given.func)
                            : registry<Kernel>().get(given.kern)->function_in(given_or_current(given.ctx));
  const LaunchShape shape{{given.gridDimX, given.gridDimY, given.gridDimZ},
                          {given.blockDimX, given.blockDimY, given.blockDimZ},
                          given.sharedMemBytes,
                          cooperative};
  require(!(given.kernelParams && given.extra));
  return make_launch(prepare_launch(function, shape, given.kernelParams, given.extra));
}

Operation fill_operation(const CUDA_MEMSET_NODE_PARAMS_v2& given) {
  CUDA_MEMSET_NODE_PARAMS shape{};
  shape.dst = given.dst;
  shape.pitch = given.pitch;
  shape.value = given.value;
  shape.elementSize = given.elementSize;
  shape.width = given.width;
  shape.height = given.height;
  return make_fill(shape);
}

Operation host_operation(const CUDA_HOST_NODE_PARAMS_v2& given) {
  require(given.fn != nullptr);
  const HostCall call{given.fn, given.userData};
  return {CU_GRAPH_NODE_TYPE_HOST, call, [call] { call.function(call.data); }};
}

Operation allocate_operation(CUDA_MEM_ALLOC_NODE_PARAMS_v2& given) {
  require(given.bytesize > 0 && (given.accessDescs || given.accessDescCount == 0));
  require(given.poolProps.allocType == CU_MEM_ALLOCATION_TYPE_PINNED &&
          given.poolProps.handleTypes == CU_MEM_HANDLE_TYPE_NONE &&
          given.poolProps.location.type == CU_MEM_LOCATION_TYPE_DEVICE);
  MemoryAllocate made;
  made.allocation = make_graph_allocation(Driver::get().device(given.poolProps.location.id), given.bytesize);
  made.properties = given.poolProps;
  made.access.assign(given.accessDescs, given.accessDescs + given.accessDescCount);
  given.dptr = made.allocation->address;
  return {CU_GRAPH_NODE_TYPE_MEM_ALLOC, std::move(made), nullptr};
}

Operation free_operation(CUdeviceptr address) {
  auto allocation = find_graph_allocation(address);
  require(allocation != nullptr);
  return {CU_GRAPH_NODE_TYPE_MEM_FREE, MemoryFree{std::move(allocation)}, nullptr};
}

Operation conditional_operation(CUDA_CONDITIONAL_NODE_PARAMS& given) {
  Conditional made;
  made.value = find_conditional(given.handle);
  made.type = given.type;
  require(made.value != nullptr && given.size > 0);
  require(given.type != CU_GRAPH_COND_TYPE_WHILE || given.size == 1);
  require(given.type != CU_GRAPH_COND_TYPE_IF || given.size <= 2);
  require(given.size <= 4096);
  for (unsigned n = 0; n < given.size; ++n) {
    made.bodies.push_back(std::make_shared<Graph>());
    made.handles.push_back(embed(made.bodies.back()));
  }
  return {CU_GRAPH_NODE_TYPE_CONDITIONAL, std::move(made), nullptr};
}

}  // namespace

CUdeviceptr capture_allocation(const std::shared_ptr<Stream>& stream, const Device& device,
                               std::size_t size) {
  CUDA_MEM_ALLOC_NODE_PARAMS_v2 wanted{};
  wanted.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  wanted.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device.ordinal()}};
  wanted.bytesize = size;
  issue(stream, allocate_operation(wanted));
  return wanted.dptr;
}

bool free_graph_allocation(const std::shared_ptr<Stream>& stream, CUdeviceptr address) {
  const auto allocation = find_graph_allocation(address);
  if (!allocation) return false;
  if (is_capturing(*stream)) {
    issue(stream, free_operation(address));
  } else {
    allocation->end_use();
    stream->submit([allocation] {});  // work before it may still use the memory
  }
  return true;
}

CUcontext context_of(const CUgraphNodeParams& parameters) {
  CUcontext named = nullptr;
  switch (parameters.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      named = parameters.kernel.ctx;
      break;
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      named = parameters.memcpy.copyCtx;
      break;
    case CU_GRAPH_NODE_TYPE_MEMSET:
      named = parameters.memset.ctx;
      break;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      named = parameters.memOp.ctx;
      break;
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      named = parameters.conditional.ctx;
      break;
    default:
      break;
  }
  if (named) return named;
  const auto current = peek_context();
  return reinterpret_cast<CUcontext>(current.get());
}

Operation make_operation(CUgraphNodeParams& parameters, const NodeParameters& before) {
  switch (parameters.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return kernel_operation(parameters.kernel, is_cooperative(before));
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      require(parameters.memcpy.flags == 0);
      return make_copy(parameters.memcpy.copyParams);
    case CU_GRAPH_NODE_TYPE_MEMSET:
      return fill_operation(parameters.memset);
    case CU_GRAPH_NODE_TYPE_HOST:
      return host_operation(parameters.host);
    case CU_GRAPH_NODE_TYPE_GRAPH: {
      const auto child = registry<Graph>().get(parameters.graph.graph, CUDA_ERROR_INVALID_VALUE);
      if (parameters.graph.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE) {
        require(!child->embedded);
        child->embedded = true;
        return {CU_GRAPH_NODE_TYPE_GRAPH, child, nullptr};
      }
      auto copy = child->clone();
      embed(copy);
      return {CU_GRAPH_NODE_TYPE_GRAPH, std::move(copy), nullptr};
    }
    case CU_GRAPH_NODE_TYPE_EMPTY:
      return {CU_GRAPH_NODE_TYPE_EMPTY, std::monostate{}, nullptr};
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      return {CU_GRAPH_NODE_TYPE_WAIT_EVENT, EventWait{event_for_node(parameters.eventWait.event)}, nullptr};
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return {CU_GRAPH_NODE_TYPE_EVENT_RECORD, EventRecord{event_for_node(parameters.eventRecord.event)},
              nullptr};
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
      return allocate_operation(parameters.alloc);
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      return free_operation(parameters.free.dptr);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      require(parameters.memOp.flags == 0);
      return make_batch(given_or_current(parameters.memOp.ctx),
                        {parameters.memOp.paramArray, parameters.memOp.count});
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      return conditional_operation(parameters.conditional);
    default:
      fail(CUDA_ERROR_NOT_SUPPORTED);
  }
}

void describe_node(const GraphNode& node, CUgraphNodeParams& out) {
  out = {};
  out.type = node.type;
  const NodeParameters& held = node.parameters;
  if (const auto* launch = std::get_if<std::shared_ptr<const KernelLaunch>>(&held)) {
    CUDA_KERNEL_NODE_PARAMS_v3& kernel = out.kernel;
    kernel.func = reinterpret_cast<CUfunction>((*launch)->function.get());
    kernel.gridDimX = (*launch)->grid.x;
    kernel.gridDimY = (*launch)->grid.y;
    kernel.gridDimZ = (*launch)->grid.z;
    kernel.blockDimX = (*launch)->block.x;
    kernel.blockDimY = (*launch)->block.y;
    kernel.blockDimZ = (*launch)->block.z;
    kernel.sharedMemBytes = (*launch)->dynamic_shared;
    kernel.kernelParams = const_cast<void**>((*launch)->pointers.data());
    kernel.ctx = node.context;
  } else if (const auto* copy = std::get_if<CUDA_MEMCPY3D>(&held)) {
    out.memcpy.copyCtx = node.context;
    out.memcpy.copyParams = *copy;
  } else if (const auto* fill = std::get_if<CUDA_MEMSET_NODE_PARAMS>(&held)) {
    out.memset = {fill->dst,   fill->pitch,  fill->value, fill->elementSize,
                  fill->width, fill->height, node.context};
  } else if (const auto* call = std::get_if<HostCall>(&held)) {
    out.host.fn = call->function;
    out.host.userData = call->data;
  } else if (const auto* child = std::get_if<std::shared_ptr<Graph>>(&held)) {
    out.graph.graph = reinterpret_cast<CUgraph>(child->get());
  } else if (const auto* record = std::get_if<EventRecord>(&held)) {
    out.eventRecord.event = reinterpret_cast<CUevent>(record->event.get());
  } else if (const auto* wait = std::get_if<EventWait>(&held)) {
    out.eventWait.event = reinterpret_cast<CUevent>(wait->event.get());
  } else if (const auto* made = std::get_if<MemoryAllocate>(&held)) {
    out.alloc.poolProps = made->properties;
    out.alloc.accessDescs = made->access.data();
    out.alloc.accessDescCount = made->access.size();
    out.alloc.bytesize = made->allocation->size;
    out.alloc.dptr = made->allocation->address;
  } else if (const auto* freed = std::get_if<MemoryFree>(&held)) {
    out.free.dptr = freed->allocation->address;
  } else if (const auto* batch = std::get_if<BatchOperation>(&held)) {
    out.memOp.ctx = node.context;
    out.memOp.count = static_cast<unsigned>(batch->entries.size());
    out.memOp.paramArray = const_cast<CUstreamBatchMemOpParams*>(batch->entries.data());
    out.memOp.flags = batch->flags;
  } else if (const auto* conditional = std::get_if<Conditional>(&held)) {
    out.conditional.handle = conditional->value->handle;
    out.conditional.type = conditional->type;
    out.conditional.size = static_cast<unsigned>(conditional->handles.size());
    out.conditional.phGraph_out = const_cast<CUgraph*>(conditional->handles.data());
    out.conditional.ctx = node.context;
  }
}

void set_kernel_attribute(GraphNode& node, CUlaunchAttributeID id, const CUlaunchAttributeValue& value) {
  require(node.type == CU_GRAPH_NODE_TYPE_KERNEL);
  switch (id) {
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE: {
      auto changed =
          std::make_shared<KernelLaunch>(*std::get<std::shared_ptr<const KernelLaunch>>(node.parameters));
      changed->cooperative = value.cooperative != 0;
      changed->point_to_parameters();
      Operation operation = make_launch(std::move(changed));
      node.parameters_before = std::exchange(node.parameters, std::move(operation.parameters));
      node.run = std::move(operation.run);
      break;
    }
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
      require(value.clusterDim.x <= 1 && value.clusterDim.y <= 1 && value.clusterDim.z <= 1,
              CUDA_ERROR_NOT_SUPPORTED);
      break;
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      break;
    default:
      fail(CUDA_ERROR_NOT_SUPPORTED);
  }
  node.attributes[id] = value;
}

CUlaunchAttributeValue kernel_attribute(const GraphNode& node, CUlaunchAttributeID id) {
  require(node.type == CU_GRAPH_NODE_TYPE_KERNEL);
  CUlaunchAttributeValue value{};
  if (const auto found = node.attributes.find(id); found != node.attributes.end()) return found->second;
  if (id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE) value.cooperative = is_cooperative(node.parameters) ? 1 : 0;
  return value;
}

}  // namespace softgpu::driver

#include "shared_api/node_codec.h"

#include <cstring>

namespace gpupool::graphs {
namespace {

using wire::Kind;

class Encoder {
 public:
  Encoder(HandleMap& handles, wire::Writer& out) : handles_(handles), out_(out) {}

  void handle(Kind kind, const void* value) {
    std::uint64_t found = 0;
    if (value == nullptr || !handles_.to_wire(kind, value, found)) fail(CUDA_ERROR_INVALID_HANDLE);
    out_.put(found);
  }
  /// Null means the current context.
  void context(CUcontext value) {
    std::uint64_t found = 0;
    if (value != nullptr && !handles_.to_wire(Kind::context, value, found)) fail(CUDA_ERROR_INVALID_CONTEXT);
    out_.put(found);
  }
  void kernel(const CUDA_KERNEL_NODE_PARAMS_v3& given) {
    std::uint64_t function = 0;
    const bool by_kernel = given.func == nullptr;
    const void* const named = by_kernel ? static_cast<const void*>(given.kern) : given.func;
    if (named == nullptr || !handles_.to_wire(by_kernel ? Kind::kernel : Kind::function, named, function))
      return fail(CUDA_ERROR_INVALID_HANDLE);
    out_.put(static_cast<std::uint8_t>(by_kernel));
    out_.put(function);
    const unsigned shape[] = {given.gridDimX,  given.gridDimY,  given.gridDimZ,      given.blockDimX,
                              given.blockDimY, given.blockDimZ, given.sharedMemBytes};
    for (const unsigned value : shape) out_.put(value);
    context(given.ctx);
    const KernelInfo* const info = handles_.kernel(function);
    if (info == nullptr) return fail(CUDA_ERROR_INVALID_HANDLE);
    out_.put_bytes(pack(*info, given.kernelParams, given.extra));
  }
  void host(const CUDA_HOST_NODE_PARAMS_v2& given) {
    std::uint64_t token = 0;
    if (given.fn == nullptr || !handles_.host_to_wire(given.fn, given.userData, token))
      return fail(CUDA_ERROR_INVALID_VALUE);
    out_.put(token);
    out_.put(given.syncMode);
  }
  void batch(const CUDA_BATCH_MEM_OP_NODE_PARAMS_v2& given) {
    if (given.count == 0 || given.count > max_batch || given.paramArray == nullptr)
      return fail(CUDA_ERROR_INVALID_VALUE);
    context(given.ctx);
    out_.put(given.flags);
    out_.put_bytes(std::as_bytes(std::span(given.paramArray, given.count)));
  }
  void allocation(const CUDA_MEM_ALLOC_NODE_PARAMS_v2& given) {
    if (given.accessDescCount > max_access || (given.accessDescs == nullptr && given.accessDescCount != 0))
      return fail(CUDA_ERROR_INVALID_VALUE);
    if (given.poolProps.win32SecurityAttributes != nullptr) return fail(CUDA_ERROR_INVALID_VALUE);
    int ordinal = given.poolProps.location.id;
    std::vector<CUmemAccessDesc> access(given.accessDescs, given.accessDescs + given.accessDescCount);
    bool known = handles_.device(ordinal, true);
    for (auto& one : access) known = handles_.device(one.location.id, true) && known;
    if (!known) return fail(CUDA_ERROR_INVALID_DEVICE);
    out_.put(static_cast<std::int32_t>(given.poolProps.allocType));
    out_.put(static_cast<std::int32_t>(given.poolProps.handleTypes));
    out_.put(static_cast<std::int32_t>(given.poolProps.location.type));
    out_.put(static_cast<std::int32_t>(ordinal));
    out_.put(static_cast<std::uint64_t>(given.poolProps.maxSize));
    out_.put(static_cast<std::uint64_t>(given.bytesize));
    out_.put(static_cast<std::uint64_t>(given.dptr));
    out_.put_bytes(std::as_bytes(std::span(access)));
  }
  void copy(const CUDA_MEMCPY_NODE_PARAMS& given) {
    const CUDA_MEMCPY3D& shape = given.copyParams;
    if (given.flags != 0) return fail(CUDA_ERROR_INVALID_VALUE);
    context(given.copyCtx);
    CUDA_MEMCPY3D sent = shape;
    array(shape.srcMemoryType, shape.srcArray, sent.srcArray);
    array(shape.dstMemoryType, shape.dstArray, sent.dstArray);
    out_.put(sent);
  }
  void conditional(const CUDA_CONDITIONAL_NODE_PARAMS& given, const std::vector<std::uint64_t>& bodies) {
    if (given.size == 0 || given.size > max_bodies || bodies.size() != given.size)
      return fail(CUDA_ERROR_INVALID_VALUE);
    out_.put(static_cast<std::uint64_t>(given.handle));
    out_.put(static_cast<std::int32_t>(given.type));
    context(given.ctx);
    out_.put_bytes(std::as_bytes(std::span(bodies)));
  }
  void fail(CUresult error) {
    if (result == CUDA_SUCCESS) result = error;
  }

  CUresult result = CUDA_SUCCESS;

 private:
  /// The parameters in one block, from either of the two forms of the API.
  std::span<const std::byte> pack(const KernelInfo& info, void** parameters, void** extra) {
    const std::size_t size = info.parameter_bytes();
    if (parameters != nullptr && extra != nullptr) return refuse();
    block_.assign(size, std::byte{});
    if (parameters != nullptr) {
      for (const KernelParameter& p : info.parameters) {
        if (*parameters == nullptr) return refuse();
        std::memcpy(block_.data() + p.offset, *parameters++, p.size);
      }
    } else if (size != 0) {
      const void* data = nullptr;
      std::size_t given = 0;
      for (int n = 0; extra != nullptr && n < 8 && extra[n] != CU_LAUNCH_PARAM_END; n += 2) {
        if (extra[n] == CU_LAUNCH_PARAM_BUFFER_POINTER) {
          data = extra[n + 1];
        } else if (extra[n] == CU_LAUNCH_PARAM_BUFFER_SIZE) {
          given = *static_cast<const std::size_t*>(extra[n + 1]);
        } else {
          return refuse();
        }
      }
      if (data == nullptr || given < size) return refuse();
      std::memcpy(block_.data(), data, size);
    }
    return block_;
  }
  void array(CUmemorytype type, CUarray given, CUarray& sent) {
    std::uint64_t found = 0;
    if (type == CU_MEMORYTYPE_ARRAY && !handles_.to_wire(Kind::array, given, found))
      fail(CUDA_ERROR_INVALID_HANDLE);
    sent = reinterpret_cast<CUarray>(found);
  }
  std::span<const std::byte> refuse() {
    fail(CUDA_ERROR_INVALID_VALUE);
    return {};
  }

  HandleMap& handles_;
  wire::Writer& out_;
  std::vector<std::byte> block_;
};

class Decoder {
 public:
  Decoder(HandleMap& handles, wire::Reader& in, NodeParams& out) : handles_(handles), in_(in), out_(out) {}

  template <class H>
  void handle(Kind kind, H& to) {
    void* found = nullptr;
    const auto value = in_.get<std::uint64_t>();
    if (!in_.ok() || !handles_.from_wire(kind, value, found)) return fail(CUDA_ERROR_INVALID_HANDLE);
    to = static_cast<H>(found);
  }
  void context(CUcontext& to) {
    void* found = nullptr;
    const auto value = in_.get<std::uint64_t>();
    if (value != 0 && !handles_.from_wire(Kind::context, value, found))
      return fail(CUDA_ERROR_INVALID_CONTEXT);
    to = static_cast<CUcontext>(found);
  }
  void kernel(CUDA_KERNEL_NODE_PARAMS_v3& to) {
    const bool by_kernel = in_.get<std::uint8_t>() != 0;
    const auto function = in_.get<std::uint64_t>();
    void* found = nullptr;
    const KernelInfo* const info = handles_.kernel(function);
    if (info == nullptr || !handles_.from_wire(by_kernel ? Kind::kernel : Kind::function, function, found))
      return fail(CUDA_ERROR_INVALID_HANDLE);
    if (by_kernel) {
      to.kern = static_cast<CUkernel>(found);
    } else {
      to.func = static_cast<CUfunction>(found);
    }
    for (unsigned* value : {&to.gridDimX, &to.gridDimY, &to.gridDimZ, &to.blockDimX, &to.blockDimY,
                            &to.blockDimZ, &to.sharedMemBytes})
      *value = in_.get<unsigned>();
    context(to.ctx);
    const auto block = in_.get_bytes();
    // Whoever reads the parameters goes by the layout: fewer bytes than that would be read past their end.
    if (block.size() != info->parameter_bytes()) return fail(CUDA_ERROR_INVALID_VALUE);
    out_.block.assign(block.begin(), block.end());
    out_.block.push_back(std::byte{});  // an address also for a parameter without bytes at the end
    for (const KernelParameter& p : info->parameters) out_.pointers.push_back(out_.block.data() + p.offset);
    to.kernelParams = out_.pointers.data();
  }
  void host(CUDA_HOST_NODE_PARAMS_v2& to) {
    const auto token = in_.get<std::uint64_t>();
    to.syncMode = in_.get<unsigned>();
    if (!handles_.host_from_wire(token, to.fn, to.userData)) fail(CUDA_ERROR_INVALID_VALUE);
  }
  void batch(CUDA_BATCH_MEM_OP_NODE_PARAMS_v2& to) {
    context(to.ctx);
    to.flags = in_.get<unsigned>();
    list(out_.entries, max_batch);
    if (out_.entries.empty()) return fail(CUDA_ERROR_INVALID_VALUE);
    to.count = static_cast<unsigned>(out_.entries.size());
    to.paramArray = out_.entries.data();
  }
  void allocation(CUDA_MEM_ALLOC_NODE_PARAMS_v2& to) {
    to.poolProps.allocType = static_cast<CUmemAllocationType>(in_.get<std::int32_t>());
    to.poolProps.handleTypes = static_cast<CUmemAllocationHandleType>(in_.get<std::int32_t>());
    to.poolProps.location.type = static_cast<CUmemLocationType>(in_.get<std::int32_t>());
    to.poolProps.location.id = in_.get<std::int32_t>();
    to.poolProps.maxSize = in_.get<std::uint64_t>();
    to.bytesize = in_.get<std::uint64_t>();
    to.dptr = in_.get<std::uint64_t>();
    list(out_.access, max_access);
    bool known = handles_.device(to.poolProps.location.id, false);
    for (auto& one : out_.access) known = handles_.device(one.location.id, false) && known;
    if (!known) return fail(CUDA_ERROR_INVALID_DEVICE);
    to.accessDescs = out_.access.data();
    to.accessDescCount = out_.access.size();
  }
  void copy(CUDA_MEMCPY_NODE_PARAMS& to) {
    context(to.copyCtx);
    to.copyParams = in_.get<CUDA_MEMCPY3D>();
    array(to.copyParams.srcMemoryType, to.copyParams.srcArray);
    array(to.copyParams.dstMemoryType, to.copyParams.dstArray);
  }
  void fill(CUDA_MEMSET_NODE_PARAMS_v2& to) {
    to.dst = in_.get<std::uint64_t>();
    to.pitch = in_.get<std::uint64_t>();
    to.value = in_.get<std::uint32_t>();
    to.elementSize = in_.get<std::uint32_t>();
    to.width = in_.get<std::uint64_t>();
    to.height = in_.get<std::uint64_t>();
    context(to.ctx);
  }
  void conditional(CUDA_CONDITIONAL_NODE_PARAMS& to) {
    to.handle = in_.get<std::uint64_t>();
    to.type = static_cast<CUgraphConditionalNodeType>(in_.get<std::int32_t>());
    context(to.ctx);
    list(out_.bodies, max_bodies);
    if (out_.bodies.empty()) return fail(CUDA_ERROR_INVALID_VALUE);
    to.size = static_cast<unsigned>(out_.bodies.size());
  }
  void fail(CUresult error) {
    if (result == CUDA_SUCCESS) result = error;
  }

  CUresult result = CUDA_SUCCESS;

 private:
  void array(CUmemorytype type, CUarray& to) {
    void* found = nullptr;
    if (type == CU_MEMORYTYPE_ARRAY &&
        !handles_.from_wire(Kind::array, reinterpret_cast<std::uint64_t>(to), found))
      fail(CUDA_ERROR_INVALID_HANDLE);
    to = static_cast<CUarray>(found);
  }
  template <class T>
  void list(std::vector<T>& to, std::size_t most) {
    const auto bytes = in_.get_bytes();
    if (bytes.size() % sizeof(T) != 0 || bytes.size() / sizeof(T) > most)
      return fail(CUDA_ERROR_INVALID_VALUE);
    to.resize(bytes.size() / sizeof(T));
    if (!bytes.empty()) std::memcpy(to.data(), bytes.data(), bytes.size());
  }

  HandleMap& handles_;
  wire::Reader& in_;
  NodeParams& out_;
};

}  // namespace

CUresult encode(const CUgraphNodeParams& params, HandleMap& handles, wire::Writer& out,
                const std::vector<std::uint64_t>& bodies) {
  Encoder e(handles, out);
  out.put(static_cast<std::int32_t>(params.type));
  switch (params.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      e.kernel(params.kernel);
      break;
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      e.copy(params.memcpy);
      break;
    case CU_GRAPH_NODE_TYPE_MEMSET: {
      const CUDA_MEMSET_NODE_PARAMS_v2& given = params.memset;
      out.put(static_cast<std::uint64_t>(given.dst));
      out.put(static_cast<std::uint64_t>(given.pitch));
      out.put(given.value);
      out.put(given.elementSize);
      out.put(static_cast<std::uint64_t>(given.width));
      out.put(static_cast<std::uint64_t>(given.height));
      e.context(given.ctx);
      break;
    }
    case CU_GRAPH_NODE_TYPE_HOST:
      e.host(params.host);
      break;
    case CU_GRAPH_NODE_TYPE_GRAPH:
      e.handle(Kind::graph, params.graph.graph);
      out.put(static_cast<std::int32_t>(params.graph.ownership));
      break;
    case CU_GRAPH_NODE_TYPE_EMPTY:
      break;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      e.handle(Kind::event, params.eventWait.event);
      break;
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      e.handle(Kind::event, params.eventRecord.event);
      break;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
      e.allocation(params.alloc);
      break;
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      out.put(static_cast<std::uint64_t>(params.free.dptr));
      break;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      e.batch(params.memOp);
      break;
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      e.conditional(params.conditional, bodies);
      break;
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
  return e.result;
}

CUresult decode(wire::Reader& in, HandleMap& handles, NodeParams& out) {
  std::memset(&out.params, 0, sizeof(out.params));
  CUgraphNodeParams& params = out.params;
  Decoder d(handles, in, out);
  params.type = static_cast<CUgraphNodeType>(in.get<std::int32_t>());
  switch (params.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      d.kernel(params.kernel);
      break;
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      d.copy(params.memcpy);
      break;
    case CU_GRAPH_NODE_TYPE_MEMSET:
      d.fill(params.memset);
      break;
    case CU_GRAPH_NODE_TYPE_HOST:
      d.host(params.host);
      break;
    case CU_GRAPH_NODE_TYPE_GRAPH:
      d.handle(Kind::graph, params.graph.graph);
      params.graph.ownership = static_cast<CUgraphChildGraphNodeOwnership>(in.get<std::int32_t>());
      break;
    case CU_GRAPH_NODE_TYPE_EMPTY:
      break;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      d.handle(Kind::event, params.eventWait.event);
      break;
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      d.handle(Kind::event, params.eventRecord.event);
      break;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
      d.allocation(params.alloc);
      break;
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      params.free.dptr = in.get<std::uint64_t>();
      break;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      d.batch(params.memOp);
      break;
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      d.conditional(params.conditional);
      break;
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
  if (d.result != CUDA_SUCCESS) return d.result;
  return in.finished() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace gpupool::graphs

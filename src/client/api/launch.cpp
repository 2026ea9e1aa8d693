// Kernel launches and occupancy.
#include <cuda.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <tuple>

#include "base/mutex.h"
#include "client/call/call.h"
#include "client/call/objects.h"
#include "client/objects/images.h"
#include "client/objects/launch_config.h"
#include "client/process/session_belongings.h"
#include "generated/client_api.h"

using namespace gpupool;
using namespace gpupool::client;

namespace {

/// Device limits that a launch is checked against; read once.
struct Limits {
  unsigned block_threads = 0, block[3] = {}, grid[3] = {}, shared_optin = 0;
};

const Limits* limits_of(int device) {
  static auto& all = kept_for_session<std::array<std::atomic<const Limits*>, 64>>([](auto& kept) {
    for (auto& slot : kept) slot.store(nullptr);  // another launch may still read what was there
  });
  if (device < 0 || device >= 64) return nullptr;
  auto& slot = all[static_cast<std::size_t>(device)];
  if (const Limits* const found = slot.load(std::memory_order_acquire)) return found;
  auto made = std::make_unique<Limits>();
  const auto get = [&](CUdevice_attribute id) {
    int value = 0;
    return cuDeviceGetAttribute(&value, id, device) == CUDA_SUCCESS && value > 0
               ? static_cast<unsigned>(value)
               : UINT32_MAX;
  };
  made->block_threads = get(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  for (int n = 0; n < 3; ++n) {
    made->block[n] = get(static_cast<CUdevice_attribute>(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X + n));
    made->grid[n] = get(static_cast<CUdevice_attribute>(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X + n));
  }
  made->shared_optin = get(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  const Limits* first = nullptr;  // of another thread that launched at the same time
  if (!slot.compare_exchange_strong(first, made.get(), std::memory_order_acq_rel)) return first;
  return made.release();
}

/// What the driver refuses before it starts anything.
CUresult validate(const messages::Launch& m, const Function& function, int device) {
  const Limits* const limits = limits_of(device);
  if (limits == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  const unsigned grid[3] = {m.grid_x, m.grid_y, m.grid_z}, block[3] = {m.block_x, m.block_y, m.block_z};
  std::uint64_t threads = 1;
  for (int n = 0; n < 3; ++n) {
    if (grid[n] == 0 || grid[n] > limits->grid[n] || block[n] == 0 || block[n] > limits->block[n])
      return CUDA_ERROR_INVALID_VALUE;
    threads *= block[n];
  }
  if (threads > limits->block_threads) return CUDA_ERROR_INVALID_VALUE;
  const KernelInfo& info = *function.info;
  const int most = info.attributes[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK];
  if ((info.answered & 1u) != 0 && most > 0 && threads > static_cast<unsigned>(most)) {
    // The driver tells a kernel's own launch bounds from a block that needs more registers than there are.
    constexpr std::uint64_t registers_per_block = 65536;  // of every compute capability since 5.3
    const auto registers =
        static_cast<std::uint64_t>(std::max(info.attributes[CU_FUNC_ATTRIBUTE_NUM_REGS], 0));
    return registers * threads > registers_per_block ? CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES
                                                     : CUDA_ERROR_INVALID_VALUE;
  }
  const int dynamic = info.attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES];
  if ((info.answered >> CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES & 1u) != 0 &&
      m.shared_bytes > static_cast<unsigned>(std::max(dynamic, 0))) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

using Block = std::array<std::byte, KernelInfo::max_parameter_bytes>;

/// Collects the parameters into one block, from either of the two forms of the API.
CUresult pack(const Function& function, void** parameters, void** extra, Block& block, std::size_t& size) {
  size = function.parameter_bytes;
  if (size > block.size()) return CUDA_ERROR_INVALID_VALUE;
  if (parameters != nullptr) {
    for (const KernelParameter& p : function.info->parameters) {
      const void* const value = *parameters++;
      if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
      std::memcpy(block.data() + p.offset, value, p.size);
    }
    return CUDA_SUCCESS;
  }
  if (extra == nullptr) return size == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  const void* data = nullptr;
  std::size_t given = 0;
  for (int n = 0; extra[n] != CU_LAUNCH_PARAM_END && n < 8; n += 2) {
    if (extra[n] == CU_LAUNCH_PARAM_BUFFER_POINTER) {
      data = extra[n + 1];
    } else if (extra[n] == CU_LAUNCH_PARAM_BUFFER_SIZE) {
      given = *static_cast<const std::size_t*>(extra[n + 1]);
    } else {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  if (given < size || (data == nullptr && size != 0)) return CUDA_ERROR_INVALID_VALUE;
  if (size != 0) std::memcpy(block.data(), data, size);
  return CUDA_SUCCESS;
}

CUresult launch(messages::Launch& m, CUfunction f, CUstream stream, void** parameters, void** extra) {
  static thread_local Block block;
  const Function* const function = find_function(raw(f));
  if (function == nullptr) return bad_handle(wire::Kind::function);
  if (!known(wire::Kind::stream, stream)) return CUDA_ERROR_INVALID_HANDLE;
  std::uint64_t context = 0;
  if (const CUresult bad = in_current_context(context); bad != CUDA_SUCCESS) return bad;
  if (runtime().several()) {  // it would run where it is, and not where its stream is
    const auto home = worker_of_object(wire::Kind::function, raw(f));
    if (home && *home != worker_of_stream(stream).index) return CUDA_ERROR_INVALID_HANDLE;
  }
  const Context* const object = tables().contexts.find(context);
  if (object == nullptr) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (const CUresult bad = validate(m, *function, object->device); bad != CUDA_SUCCESS) return bad;
  std::size_t size = 0;
  if (const CUresult bad = pack(*function, parameters, extra, block, size); bad != CUDA_SUCCESS) return bad;
  m.function = raw(f);
  m.stream = raw(stream);
  m.parameters = {block.data(), size};
  return post(m, context);
}

CUresult check_cooperative(const messages::Launch& m, CUfunction f) {
  int blocks = 0, processors = 0;
  CUdevice device = 0;
  if (const CUresult bad = cuCtxGetDevice(&device); bad != CUDA_SUCCESS) return bad;
  const int threads = static_cast<int>(m.block_x * m.block_y * m.block_z);
  if (cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, f, threads, m.shared_bytes) != CUDA_SUCCESS ||
      cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device) != CUDA_SUCCESS) {
    return CUDA_SUCCESS;  // the driver will tell
  }
  const std::uint64_t grid = std::uint64_t{m.grid_x} * m.grid_y * m.grid_z;
  return grid > static_cast<std::uint64_t>(blocks) * static_cast<std::uint64_t>(processors)
             ? CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE
             : CUDA_SUCCESS;
}

}  // namespace

namespace gpupool::client::api {

CUresult cuLaunchKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,
                        unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,
                        unsigned int sharedMemBytes, CUstream hStream, void** kernelParams, void** extra) {
  runtime().begin_if_over();
  messages::Launch m;
  m.grid_x = gridDimX;
  m.grid_y = gridDimY;
  m.grid_z = gridDimZ;
  m.block_x = blockDimX;
  m.block_y = blockDimY;
  m.block_z = blockDimZ;
  m.shared_bytes = sharedMemBytes;
  return launch(m, f, hStream, kernelParams, extra);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction f, void** kernelParams, void** extra) {
  runtime().begin_if_over();
  EncodedAttributes attributes;
  if (const CUresult bad = attributes.encode(config, "cuLaunchKernelEx"); bad != CUDA_SUCCESS) return bad;
  messages::Launch m;
  describe_launch(m, *config);
  if (attributes.cooperative()) {
    if (const CUresult bad = check_cooperative(m, f); bad != CUDA_SUCCESS) return bad;
  }
  m.attributes = attributes.bytes();
  return launch(m, f, config->hStream, kernelParams, extra);
}

CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                                   unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY,
                                   unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream,
                                   void** kernelParams) {
  runtime().begin_if_over();
  CUlaunchAttribute cooperative{};
  cooperative.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
  cooperative.value.cooperative = 1;
  CUlaunchConfig config{};
  config.gridDimX = gridDimX;
  config.gridDimY = gridDimY;
  config.gridDimZ = gridDimZ;
  config.blockDimX = blockDimX;
  config.blockDimY = blockDimY;
  config.blockDimZ = blockDimZ;
  config.sharedMemBytes = sharedMemBytes;
  config.hStream = hStream;
  config.attrs = &cooperative;
  config.numAttrs = 1;
  return api::cuLaunchKernelEx(&config, f, kernelParams, nullptr);
}

// The answer depends on nothing that changes but the attribute that a program may set: asked once for each
// combination.
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* numBlocks, CUfunction func, int blockSize,
                                                              size_t dynamicSMemSize, unsigned int flags) {
  runtime().begin_if_over();
  using Key = std::tuple<std::shared_ptr<KernelInfo>, int, std::size_t, unsigned, int, unsigned>;
  static Mutex& mutex = *new Mutex;
  static std::map<Key, int>& cache = *new std::map<Key, int>;
  const Function* const function = find_function(raw(func));
  if (function == nullptr) return bad_handle(wire::Kind::function);
  if (numBlocks == nullptr || blockSize <= 0) return CUDA_ERROR_INVALID_VALUE;
  const Key key{function->info,
                blockSize,
                dynamicSMemSize,
                flags,
                function->info->attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES],
                worker_of_context(current_context()).index};  // the devices of one node are of one kind
  {
    const MutexLock lock(mutex);
    if (const auto found = cache.find(key); found != cache.end()) {
      *numBlocks = found->second;
      return CUDA_SUCCESS;
    }
  }
  messages::cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags m;
  m.func = raw(func);
  m.blockSize = blockSize;
  m.dynamicSMemSize = dynamicSMemSize;
  m.flags = flags;
  replies::cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags reply;
  if (const CUresult bad = ask(m, reply); bad != CUDA_SUCCESS) return bad;
  *numBlocks = reply.numBlocks;
  const MutexLock lock(mutex);
  if (cache.size() > 4096) cache.clear();
  cache[key] = reply.numBlocks;
  return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* numBlocks, CUfunction func, int blockSize,
                                                     size_t dynamicSMemSize) {
  return api::cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(numBlocks, func, blockSize,
                                                                   dynamicSMemSize, 0);
}

CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int* minGridSize, int* blockSize, CUfunction func,
                                                   CUoccupancyB2DSize blockSizeToDynamicSMemSize,
                                                   size_t dynamicSMemSize, int blockSizeLimit,
                                                   unsigned int flags) {
  const Function* const function = find_function(raw(func));
  if (function == nullptr) return bad_handle(wire::Kind::function);
  if (minGridSize == nullptr || blockSize == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUdevice device = 0;
  if (const CUresult bad = api::cuCtxGetDevice(&device); bad != CUDA_SUCCESS) return bad;
  int processors = 0, warp = 32, per_processor = 0;
  api::cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
  api::cuDeviceGetAttribute(&warp, CU_DEVICE_ATTRIBUTE_WARP_SIZE, device);
  api::cuDeviceGetAttribute(&per_processor, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, device);
  int most = function->info->attributes[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK];
  if (blockSizeLimit > 0) most = std::min(most, blockSizeLimit);
  if (most <= 0 || warp <= 0) return CUDA_ERROR_INVALID_VALUE;
  int best_threads = 0;
  // Larger blocks first, so that among equals the largest wins; a full multiprocessor cannot be beaten.
  for (int size = (most + warp - 1) / warp * warp; size > 0; size -= warp) {
    const int tried = std::min(size, most);
    const size_t shared =
        blockSizeToDynamicSMemSize != nullptr ? blockSizeToDynamicSMemSize(tried) : dynamicSMemSize;
    int blocks = 0;
    const CUresult bad =
        api::cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&blocks, func, tried, shared, flags);
    if (bad != CUDA_SUCCESS) return bad;
    if (blocks * tried > best_threads) {
      best_threads = blocks * tried;
      *blockSize = tried;
      *minGridSize = blocks * processors;
      if (best_threads == per_processor) break;
    }
  }
  return best_threads > 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuOccupancyMaxPotentialBlockSize(int* minGridSize, int* blockSize, CUfunction func,
                                          CUoccupancyB2DSize blockSizeToDynamicSMemSize,
                                          size_t dynamicSMemSize, int blockSizeLimit) {
  return api::cuOccupancyMaxPotentialBlockSizeWithFlags(
      minGridSize, blockSize, func, blockSizeToDynamicSMemSize, dynamicSMemSize, blockSizeLimit, 0);
}

}  // namespace gpupool::client::api

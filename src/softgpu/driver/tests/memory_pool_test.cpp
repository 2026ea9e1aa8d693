// Pools that a program makes, and the order in which streams give memory back.
#include <chrono>
#include <thread>

#include "driver_fixture.h"

namespace {

constexpr std::size_t mib = std::size_t{1} << 20;

CUmemoryPool make_pool(std::size_t most = 0) {
  CUmemPoolProps wanted{};
  wanted.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  wanted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  wanted.maxSize = most;
  CUmemoryPool pool = nullptr;
  REQUIRE_CUDA(cuMemPoolCreate(&pool, &wanted));
  return pool;
}

cuuint64_t figure(CUmemoryPool pool, CUmemPool_attribute which) {
  cuuint64_t bytes = 0;
  REQUIRE_CUDA(cuMemPoolGetAttribute(pool, which, &bytes));
  return bytes;
}

CUdeviceptr allocate(CUmemoryPool pool, std::size_t size, CUstream stream = nullptr) {
  CUdeviceptr memory = 0;
  REQUIRE_CUDA(cuMemAllocFromPoolAsync(&memory, size, pool, stream));
  return memory;
}

std::size_t free_memory() {
  std::size_t free = 0, total = 0;
  REQUIRE_CUDA(cuMemGetInfo_v2(&free, &total));
  return free;
}

// A kernel that keeps a stream busy until open() is called.
class Gate {
 public:
  Gate() {
    REQUIRE_CUDA(cuMemAllocManaged(&flag_, 4, CU_MEM_ATTACH_GLOBAL));
    close();
  }
  ~Gate() { cuMemFree_v2(flag_); }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  void close() const { word() = 0; }
  void open() const { word() = 1; }
  void put_into(CUstream stream) { REQUIRE_CUDA(launch(kernel_.function, 1, 1, stream, {&flag_})); }

 private:
  volatile unsigned& word() const { return *reinterpret_cast<volatile unsigned*>(flag_); }

  LoadedKernel kernel_{wait_ptx, "wait_for"};
  CUdeviceptr flag_ = 0;
};

std::thread open_soon(const Gate& gate) {
  return std::thread([&gate] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    gate.open();
  });
}

}  // namespace

TEST_CASE("a pool of the program's own counts by itself, up to its size") {
  CurrentContext context;
  CUmemoryPool standard = nullptr;
  REQUIRE_CUDA(cuDeviceGetDefaultMemPool(&standard, 0));
  const cuuint64_t before = figure(standard, CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
  const CUmemoryPool pool = make_pool(8 * mib);
  const CUdeviceptr first = allocate(pool, 6 * mib);
  CHECK_EQ(figure(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 6 * mib);
  CHECK_EQ(figure(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 8 * mib);
  const CUmemoryPool free_pool = make_pool(0);
  const CUdeviceptr other = allocate(free_pool, 33 * mib);
  CHECK_EQ(figure(free_pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 64 * mib);
  REQUIRE_CUDA(cuMemFreeAsync(other, nullptr));
  REQUIRE_CUDA(cuStreamSynchronize(nullptr));
  CHECK_EQ(figure(free_pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0);
  CHECK_EQ(figure(free_pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH), 64 * mib);
  REQUIRE_CUDA(cuMemPoolDestroy(free_pool));
  CHECK_EQ(figure(standard, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), before);
  CUdeviceptr more = 0;
  CHECK_RESULT(cuMemAllocFromPoolAsync(&more, 3 * mib, pool, nullptr), CUDA_ERROR_OUT_OF_MEMORY);
  REQUIRE_CUDA(cuMemFreeAsync(first, nullptr));
  REQUIRE_CUDA(cuStreamSynchronize(nullptr));
  const CUdeviceptr second = allocate(pool, 3 * mib);
  CHECK_EQ(figure(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 6 * mib);
  cuuint64_t reset = 0;
  CHECK_CUDA(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &reset));
  CHECK_EQ(figure(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 3 * mib);
  REQUIRE_CUDA(cuMemFreeAsync(second, nullptr));
  REQUIRE_CUDA(cuStreamSynchronize(nullptr));
  CHECK_CUDA(cuMemPoolDestroy(pool));
}

TEST_CASE("a pool may go before its memory, which stays until it is freed") {
  CurrentContext context;
  const std::size_t before = free_memory();
  const CUmemoryPool pool = make_pool();
  REQUIRE_CUDA(cuDeviceSetMemPool(0, pool));
  CUdeviceptr memory = 0;
  REQUIRE_CUDA(cuMemAllocAsync(&memory, 4 * mib, nullptr));
  CHECK_EQ(figure(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 4 * mib);
  REQUIRE_CUDA(cuMemPoolDestroy(pool));
  CUmemoryPool current = nullptr, standard = nullptr;
  REQUIRE_CUDA(cuDeviceGetMemPool(&current, 0));
  REQUIRE_CUDA(cuDeviceGetDefaultMemPool(&standard, 0));
  CHECK_EQ(current, standard);
  CHECK_CUDA(cuMemsetD8_v2(memory, 7, 4 * mib));
  CHECK_LE(free_memory(), before - 4 * mib);
  CHECK_CUDA(cuMemFreeAsync(memory, nullptr));
  CHECK_CUDA(cuStreamSynchronize(nullptr));
  CHECK_EQ(free_memory(), before);
}

TEST_CASE("memory of a pool outlives the context that asked for it") {
  CurrentContext context;
  const std::size_t before = free_memory();
  CUdeviceptr memory = 0;
  {
    CurrentContext inner;
    REQUIRE_CUDA(cuMemAllocAsync(&memory, mib, nullptr));
    REQUIRE_CUDA(cuCtxSynchronize());
  }
  CHECK_CUDA(cuMemsetD8_v2(memory, 7, mib));
  CHECK_CUDA(cuMemFreeAsync(memory, nullptr));
  CHECK_CUDA(cuStreamSynchronize(nullptr));
  CHECK_EQ(free_memory(), before);
}

TEST_CASE("a pool doesn't count the memory of one that is gone") {
  CurrentContext context;
  const CUmemoryPool first = make_pool();
  const CUdeviceptr memory = allocate(first, mib);
  REQUIRE_CUDA(cuMemPoolDestroy(first));
  const CUmemoryPool second = make_pool();  // may get the place of the first one
  REQUIRE_CUDA(cuMemFree_v2(memory));
  CHECK_EQ(figure(second, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0);
  CHECK_CUDA(cuMemPoolDestroy(second));
}

TEST_CASE("memory is given back when the stream gets there, not before") {
  CurrentContext context;
  Gate gate;
  CUstream stream = nullptr;
  REQUIRE_CUDA(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  const CUmemoryPool pool = make_pool();
  const CUdeviceptr memory = allocate(pool, mib, stream);
  gate.put_into(stream);
  REQUIRE_CUDA(cuMemsetD8Async(memory, 1, mib, stream));
  REQUIRE_CUDA(cuMemFreeAsync(memory, stream));
  CHECK_EQ(figure(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), mib);
  gate.open();
  REQUIRE_CUDA(cuStreamSynchronize(stream));
  CHECK_EQ(figure(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0);
  CHECK_CUDA(cuMemPoolDestroy(pool));
  CHECK_CUDA(cuStreamDestroy_v2(stream));
}

TEST_CASE("an allocation that only fits behind an earlier free of its stream waits for it") {
  CurrentContext context;
  Gate gate;
  CUstream stream = nullptr;
  REQUIRE_CUDA(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  const CUmemoryPool pool = make_pool();
  const std::size_t most = free_memory() / mib * mib;
  const CUdeviceptr large = allocate(pool, most - 8 * mib, stream);
  gate.put_into(stream);
  REQUIRE_CUDA(cuMemFreeAsync(large, stream));
  std::thread opens = open_soon(gate);
  CUdeviceptr next = 0;
  CHECK_CUDA(cuMemAllocFromPoolAsync(&next, most - 8 * mib, pool, stream));
  opens.join();
  CHECK_CUDA(cuMemFreeAsync(next, stream));
  CHECK_CUDA(cuStreamSynchronize(stream));
  CHECK_CUDA(cuMemPoolDestroy(pool));
  CHECK_CUDA(cuStreamDestroy_v2(stream));
}

TEST_CASE("a stream that waits for the legacy one frees behind it, and allocates behind its frees") {
  CurrentContext context;
  Gate gate;
  const CUstream stream = make_stream(CU_STREAM_DEFAULT);
  const CUmemoryPool pool = make_pool();
  const std::size_t most = free_memory() / mib * mib;
  const CUdeviceptr large = allocate(pool, most - 8 * mib);
  const CUdeviceptr small = allocate(pool, mib, stream);
  gate.put_into(nullptr);
  REQUIRE_CUDA(cuMemFreeAsync(small, stream));
  REQUIRE_CUDA(cuMemFreeAsync(large, nullptr));
  CHECK_EQ(figure(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), most - 7 * mib);
  std::thread opens = open_soon(gate);
  CUdeviceptr next = 0;
  CHECK_CUDA(cuMemAllocFromPoolAsync(&next, most - 8 * mib, pool, stream));
  opens.join();
  CHECK_CUDA(cuMemFreeAsync(next, stream));
  CHECK_CUDA(cuStreamSynchronize(stream));
  CHECK_EQ(figure(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0);
  CHECK_CUDA(cuMemPoolDestroy(pool));
  CHECK_CUDA(cuStreamDestroy_v2(stream));
}

TEST_CASE("a pool may be of another device than the stream") {
  CUmemPoolProps wanted{};
  wanted.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  wanted.location = {CU_MEM_LOCATION_TYPE_DEVICE, {1}};
  CUmemoryPool pool = nullptr;
  const CurrentContext other(1);
  const std::size_t at_start = free_memory();
  {
    const CurrentContext context(0);
    REQUIRE_CUDA(cuMemPoolCreate(&pool, &wanted));
    const std::size_t here = free_memory();
    const CUdeviceptr memory = allocate(pool, mib);
    CHECK_EQ(free_memory(), here);
    CHECK_EQ(figure(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), mib);
    int ordinal = -1;
    REQUIRE_CUDA(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, memory));
    CHECK_EQ(ordinal, 1);
    REQUIRE_CUDA(cuMemsetD8_v2(memory, 3, mib));
    CUcontext popped = nullptr;
    REQUIRE_CUDA(cuCtxPopCurrent_v2(&popped));
    CHECK_EQ(free_memory(), at_start - mib);
    REQUIRE_CUDA(cuCtxPushCurrent_v2(popped));
    REQUIRE_CUDA(cuMemFreeAsync(memory, nullptr));
    REQUIRE_CUDA(cuCtxSynchronize());
    CHECK_EQ(figure(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0);
  }
  CHECK_EQ(free_memory(), at_start);
  CHECK_CUDA(cuMemPoolDestroy(pool));
}

#include <cstdint>
#include <cstring>
#include <numeric>

#include "driver_fixture.h"

namespace {

constexpr std::size_t mib = std::size_t{1} << 20;

std::size_t free_memory() {
  std::size_t free = 0, total = 0;
  REQUIRE_CUDA(cuMemGetInfo_v2(&free, &total));
  return free;
}

}  // namespace

TEST_CASE("the memory budget is enforced and given back") {
  CurrentContext context;
  const std::size_t at_start = free_memory();
  CUdeviceptr large = 0, more = 0;
  REQUIRE_CUDA(cuMemAlloc_v2(&large, 200 * mib));
  CHECK_EQ(free_memory(), at_start - 200 * mib);
  CHECK_RESULT(cuMemAlloc_v2(&more, 100 * mib), CUDA_ERROR_OUT_OF_MEMORY);
  CHECK_CUDA(cuMemFree_v2(large));
  CHECK_CUDA(cuMemAlloc_v2(&more, 250 * mib));
  CHECK_CUDA(cuMemFree_v2(more));
  CHECK_EQ(free_memory(), at_start);
  CHECK_RESULT(cuMemFree_v2(more), CUDA_ERROR_INVALID_VALUE);
  CHECK_CUDA(cuMemFree_v2(0));
  CHECK_RESULT(cuMemAlloc_v2(&more, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("many small allocations do not overlap, and their room comes back") {
  CurrentContext context;
  const std::size_t at_start = free_memory();
  std::vector<CUdeviceptr> blocks(500);
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    REQUIRE_CUDA(cuMemAlloc_v2(&blocks[i], 1 + i * 37));
    CHECK_EQ(blocks[i] % 256, 0);
    REQUIRE_CUDA(cuMemsetD8_v2(blocks[i], static_cast<unsigned char>(i), 1 + i * 37));
  }
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    std::vector<unsigned char> bytes(1 + i * 37);
    REQUIRE_CUDA(cuMemcpyDtoH_v2(bytes.data(), blocks[i], bytes.size()));
    CHECK_EQ(bytes, std::vector<unsigned char>(bytes.size(), static_cast<unsigned char>(i)));
  }
  for (std::size_t i = 0; i < blocks.size(); i += 2) CHECK_CUDA(cuMemFree_v2(blocks[i]));
  for (std::size_t i = 1; i < blocks.size(); i += 2) CHECK_CUDA(cuMemFree_v2(blocks[i]));
  CHECK_EQ(free_memory(), at_start);
}

TEST_CASE("copies outside an allocation are refused") {
  CurrentContext context;
  CUdeviceptr memory = 0;
  REQUIRE_CUDA(cuMemAlloc_v2(&memory, 4096));
  std::vector<char> host(8192);
  CHECK_CUDA(cuMemcpyHtoD_v2(memory, host.data(), 4096));
  CHECK_RESULT(cuMemcpyHtoD_v2(memory, host.data(), 4097), CUDA_ERROR_INVALID_VALUE);
  CHECK_RESULT(cuMemcpyDtoH_v2(host.data(), memory + 4000, 200), CUDA_ERROR_INVALID_VALUE);
  CHECK_RESULT(cuMemcpyHtoD_v2(0x1234, host.data(), 8), CUDA_ERROR_INVALID_VALUE);
  CHECK_RESULT(cuMemcpyDtoD_v2(memory, memory, SIZE_MAX), CUDA_ERROR_INVALID_VALUE);
  CHECK_RESULT(cuMemsetD32_v2(memory + 2, 0, 1), CUDA_ERROR_INVALID_VALUE);
  CHECK_RESULT(cuMemsetD32_v2(memory, 0, SIZE_MAX / 2), CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("a 2D copy moves a rectangle, a 3D copy a box") {
  CurrentContext context;
  CUdeviceptr memory = 0;
  std::size_t pitch = 0;
  REQUIRE_CUDA(cuMemAllocPitch_v2(&memory, &pitch, 40, 8, 4));
  CHECK_GE(pitch, 40);
  REQUIRE_CUDA(cuMemsetD8_v2(memory, 0, pitch * 8));
  std::vector<unsigned char> source(10 * 6);
  std::iota(source.begin(), source.end(), static_cast<unsigned char>(1));
  CUDA_MEMCPY2D in{};
  in.srcMemoryType = CU_MEMORYTYPE_HOST;
  in.srcHost = source.data();
  in.srcPitch = 10;
  in.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  in.dstDevice = memory;
  in.dstPitch = pitch;
  in.dstXInBytes = 3;
  in.dstY = 2;
  in.WidthInBytes = 10;
  in.Height = 6;
  REQUIRE_CUDA(cuMemcpy2D_v2(&in));
  std::vector<unsigned char> all(pitch * 8);
  REQUIRE_CUDA(cuMemcpyDtoH_v2(all.data(), memory, all.size()));
  for (std::size_t y = 0; y < 8; ++y) {
    for (std::size_t x = 0; x < pitch; ++x) {
      const bool inside = x >= 3 && x < 13 && y >= 2;
      const unsigned char expected = inside ? source[(y - 2) * 10 + (x - 3)] : 0;
      REQUIRE_EQ(all[y * pitch + x], expected);
    }
  }
  in.dstY = 3;  // one row too many
  CHECK_RESULT(cuMemcpy2D_v2(&in), CUDA_ERROR_INVALID_VALUE);

  CUdeviceptr box = 0;
  REQUIRE_CUDA(cuMemAlloc_v2(&box, 4 * 4 * 4));
  REQUIRE_CUDA(cuMemsetD8_v2(box, 9, 64));
  unsigned char corner[8] = {};
  CUDA_MEMCPY3D out{};
  out.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  out.srcDevice = box;
  out.srcPitch = 4;
  out.srcHeight = 4;
  out.srcXInBytes = out.srcY = out.srcZ = 2;
  out.dstMemoryType = CU_MEMORYTYPE_HOST;
  out.dstHost = corner;
  out.dstPitch = 2;
  out.dstHeight = 2;
  out.WidthInBytes = 2;
  out.Height = 2;
  out.Depth = 2;
  REQUIRE_CUDA(cuMemcpy3D_v2(&out));
  for (const unsigned char byte : corner) CHECK_EQ(byte, 9);
}

TEST_CASE("fills of all widths, in a row and in a rectangle") {
  CurrentContext context;
  CUdeviceptr memory = 0;
  REQUIRE_CUDA(cuMemAlloc_v2(&memory, 64));
  std::uint16_t halves[32];
  REQUIRE_CUDA(cuMemsetD16_v2(memory, 0xABCD, 32));
  REQUIRE_CUDA(cuMemcpyDtoH_v2(halves, memory, 64));
  for (const auto half : halves) CHECK_EQ(half, 0xABCD);
  REQUIRE_CUDA(cuMemsetD2D32_v2(memory, 16, 0x01020304, 2, 4));
  std::uint32_t words[16];
  REQUIRE_CUDA(cuMemcpyDtoH_v2(words, memory, 64));
  for (int i = 0; i < 16; ++i) CHECK_EQ(words[i], i % 4 < 2 ? 0x01020304U : 0xABCDABCDU);
}

TEST_CASE("host memory can be allocated and registered for the device") {
  CurrentContext context;
  void* pinned = nullptr;
  REQUIRE_CUDA(cuMemHostAlloc(&pinned, 10000, CU_MEMHOSTALLOC_DEVICEMAP));
  CUdeviceptr seen = 0;
  CHECK_CUDA(cuMemHostGetDevicePointer_v2(&seen, pinned, 0));
  CHECK_EQ(seen, reinterpret_cast<CUdeviceptr>(pinned));
  CHECK_CUDA(cuMemFreeHost(pinned));
  std::vector<char> own(5000);
  CHECK_CUDA(cuMemHostRegister_v2(own.data(), own.size(), 0));
  CHECK_RESULT(cuMemHostRegister_v2(own.data() + 10, 10, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  CHECK_CUDA(cuMemHostUnregister(own.data()));
  CHECK_RESULT(cuMemHostUnregister(own.data()), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  // More than the address space has behind it.
  const auto behind = SIZE_MAX - reinterpret_cast<std::size_t>(own.data());
  CHECK_RESULT(cuMemHostRegister_v2(own.data(), SIZE_MAX, 0), CUDA_ERROR_INVALID_VALUE);
  CHECK_RESULT(cuMemHostRegister_v2(own.data(), behind + 2, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("pointers can be asked what they are") {
  CurrentContext context(1);
  CUdeviceptr memory = 0;
  REQUIRE_CUDA(cuMemAlloc_v2(&memory, 1000));
  unsigned type = 0, managed = 7;
  CUdeviceptr start = 0;
  std::size_t size = 0;
  void* host = nullptr;
  int ordinal = -1;
  CUcontext owner = nullptr;
  CHECK_CUDA(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory + 10));
  CHECK_EQ(type, CU_MEMORYTYPE_DEVICE);
  CHECK_CUDA(cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, memory + 10));
  CHECK_EQ(start, memory);
  CHECK_CUDA(cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, memory + 10));
  CHECK_EQ(size, 1000);
  CHECK_CUDA(cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, memory + 10));
  CHECK_EQ(host, reinterpret_cast<void*>(memory + 10));
  CUpointer_attribute wanted[] = {CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_CONTEXT,
                                  CU_POINTER_ATTRIBUTE_IS_MANAGED};
  void* slots[] = {&ordinal, &owner, &managed};
  CHECK_CUDA(cuPointerGetAttributes(3, wanted, slots, memory));
  CHECK_EQ(ordinal, 1);
  CHECK_EQ(owner, context.get());
  CHECK_EQ(managed, 0);
  int local = 0;
  CHECK_RESULT(
      cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, reinterpret_cast<CUdeviceptr>(&local)),
      CUDA_ERROR_INVALID_VALUE);
  CHECK_CUDA(cuPointerGetAttributes(3, wanted, slots, reinterpret_cast<CUdeviceptr>(&local)));
  CHECK_EQ(owner, nullptr);
}

TEST_CASE("a pool counts what is in use") {
  CurrentContext context;
  CUmemoryPool pool = nullptr;
  REQUIRE_CUDA(cuDeviceGetDefaultMemPool(&pool, 0));
  const auto used = [&] {
    cuuint64_t bytes = 0;
    CHECK_CUDA(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &bytes));
    return bytes;
  };
  const cuuint64_t before = used();
  CUdeviceptr memory = 0;
  REQUIRE_CUDA(cuMemAllocAsync(&memory, mib, nullptr));
  CHECK_EQ(used(), before + mib);
  REQUIRE_CUDA(cuMemFreeAsync(memory, nullptr));
  REQUIRE_CUDA(cuStreamSynchronize(nullptr));
  CHECK_EQ(used(), before);
  CHECK_RESULT(cuMemPoolDestroy(pool), CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("a stream gives no memory for no bytes, and takes it back") {
  const CurrentContext context;
  CUdeviceptr memory = 1;
  REQUIRE_CUDA(cuMemAllocAsync(&memory, 0, nullptr));
  CHECK_EQ(memory, 0);
  CHECK_CUDA(cuMemFreeAsync(memory, nullptr));
}

#include <cstdint>
#include <cstring>

#include "driver_fixture.h"

namespace {

constexpr std::size_t chunk_size = std::size_t{2} << 20;

CUmemAllocationProp on_device(int ordinal) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = ordinal;
  return properties;
}

CUmemAccessDesc access(CUmemAccess_flags flags) {
  CUmemAccessDesc description{};
  description.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  description.flags = flags;
  return description;
}

}  // namespace

TEST_CASE("a reservation is where it was asked for if that place is free") {
  CurrentContext context;
  std::size_t granularity = 0;
  const auto properties = on_device(0);
  CHECK_CUDA(cuMemGetAllocationGranularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  CHECK_EQ(granularity, chunk_size);
  CUdeviceptr first = 0, second = 0;
  REQUIRE_CUDA(cuMemAddressReserve(&first, 8 * chunk_size, 0, unmapped_address, 0));
  CHECK_EQ(first, unmapped_address);
  REQUIRE_CUDA(cuMemAddressReserve(&second, 8 * chunk_size, 0, unmapped_address + chunk_size, 0));
  CHECK_NE(second, unmapped_address + chunk_size);
  CHECK_EQ(second % chunk_size, 0);
  CHECK_RESULT(cuMemAddressReserve(&second, 4096, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
  CHECK_CUDA(cuMemAddressFree(first, 8 * chunk_size));
  CHECK_CUDA(cuMemAddressFree(second, 8 * chunk_size));
  CHECK_RESULT(cuMemAddressFree(second, 8 * chunk_size), CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("one physical allocation can be seen at two addresses") {
  CurrentContext context;
  const auto properties = on_device(0);
  CUmemGenericAllocationHandle handle = 0;
  CUdeviceptr range = 0;
  REQUIRE_CUDA(cuMemCreate(&handle, chunk_size, &properties, 0));
  REQUIRE_CUDA(cuMemAddressReserve(&range, 4 * chunk_size, 0, 0, 0));
  REQUIRE_CUDA(cuMemMap(range, chunk_size, 0, handle, 0));
  REQUIRE_CUDA(cuMemMap(range + 2 * chunk_size, chunk_size, 0, handle, 0));
  CHECK_RESULT(cuMemMap(range, chunk_size, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
  CHECK_RESULT(cuMemsetD8_v2(range, 1, 16), CUDA_ERROR_INVALID_VALUE);  // no access yet
  const auto both = access(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  REQUIRE_CUDA(cuMemSetAccess(range, chunk_size, &both, 1));
  REQUIRE_CUDA(cuMemSetAccess(range + 2 * chunk_size, chunk_size, &both, 1));
  REQUIRE_CUDA(cuMemsetD8_v2(range, 77, chunk_size));
  unsigned char seen = 0;
  REQUIRE_CUDA(cuMemcpyDtoH_v2(&seen, range + 3 * chunk_size - 1, 1));
  CHECK_EQ(seen, 77);
  CHECK_CUDA(cuMemRelease(handle));  // the mappings keep it
  REQUIRE_CUDA(cuMemcpyDtoH_v2(&seen, range, 1));
  CHECK_EQ(seen, 77);
  CHECK_RESULT(cuMemAddressFree(range, 4 * chunk_size), CUDA_ERROR_INVALID_VALUE);  // still mapped
  CHECK_CUDA(cuMemUnmap(range, chunk_size));
  CHECK_RESULT(cuMemcpyDtoH_v2(&seen, range, 1), CUDA_ERROR_INVALID_VALUE);
  CHECK_CUDA(cuMemUnmap(range + 2 * chunk_size, chunk_size));
  CHECK_CUDA(cuMemAddressFree(range, 4 * chunk_size));
}

TEST_CASE("neighbouring mappings are one array") {
  CurrentContext context;
  const auto properties = on_device(0);
  CUmemGenericAllocationHandle handles[2];
  CUdeviceptr range = 0;
  REQUIRE_CUDA(cuMemAddressReserve(&range, 2 * chunk_size, 0, 0, 0));
  for (int i = 0; i < 2; ++i) {
    REQUIRE_CUDA(cuMemCreate(&handles[i], chunk_size, &properties, 0));
    REQUIRE_CUDA(cuMemMap(range + static_cast<CUdeviceptr>(i) * chunk_size, chunk_size, 0, handles[i], 0));
  }
  const auto both = access(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  REQUIRE_CUDA(cuMemSetAccess(range, 2 * chunk_size, &both, 1));
  CHECK_CUDA(cuMemsetD8_v2(range + 100, 5, 2 * chunk_size - 200));
  CHECK_RESULT(cuMemUnmap(range, chunk_size / 2), CUDA_ERROR_INVALID_VALUE);
  CHECK_RESULT(cuMemUnmap(range, 0), CUDA_ERROR_INVALID_VALUE);
  CHECK_RESULT(cuMemUnmap(range, SIZE_MAX), CUDA_ERROR_INVALID_VALUE);
  CHECK_RESULT(cuMemSetAccess(range, SIZE_MAX / chunk_size * chunk_size, &both, 1), CUDA_ERROR_INVALID_VALUE);
  CHECK_RESULT(cuMemMap(range, SIZE_MAX / chunk_size * chunk_size, chunk_size, handles[0], 0),
               CUDA_ERROR_INVALID_VALUE);
  CHECK_CUDA(cuMemUnmap(range, 2 * chunk_size));
  CHECK_CUDA(cuMemAddressFree(range, 2 * chunk_size));
  for (const auto handle : handles) CHECK_CUDA(cuMemRelease(handle));
}

TEST_CASE("physical memory counts against the budget until nothing refers to it") {
  CurrentContext context;
  const auto properties = on_device(0);
  std::size_t before = 0, during = 0, after = 0, total = 0;
  CHECK_CUDA(cuMemGetInfo_v2(&before, &total));
  CUmemGenericAllocationHandle handle = 0, second = 0;
  REQUIRE_CUDA(cuMemCreate(&handle, 64 * chunk_size, &properties, 0));
  CHECK_CUDA(cuMemGetInfo_v2(&during, &total));
  CHECK_EQ(during, before - 64 * chunk_size);
  CHECK_RESULT(cuMemCreate(&second, 128 * chunk_size, &properties, 0), CUDA_ERROR_OUT_OF_MEMORY);
  CHECK_CUDA(cuMemRelease(handle));
  CHECK_CUDA(cuMemGetInfo_v2(&after, &total));
  CHECK_EQ(after, before);
  CHECK_RESULT(cuMemRelease(handle), CUDA_ERROR_INVALID_VALUE);
}

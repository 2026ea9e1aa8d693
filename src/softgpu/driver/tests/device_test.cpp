#include <cstring>

#include "driver_fixture.h"

TEST_CASE("the environment says how many devices there are and how much memory each has") {
  REQUIRE_CUDA(cuInit(0));
  int count = 0;
  CHECK_CUDA(cuDeviceGetCount(&count));
  CHECK_EQ(count, 2);
  std::size_t bytes = 0;
  CHECK_CUDA(cuDeviceTotalMem_v2(&bytes, 1));
  CHECK_EQ(bytes, std::size_t{256} << 20);
  CHECK_RESULT(cuDeviceTotalMem_v2(&bytes, 2), CUDA_ERROR_INVALID_DEVICE);
}

TEST_CASE("a device is labelled as software and can be told from another one") {
  REQUIRE_CUDA(cuInit(0));
  char name[64];
  CHECK_CUDA(cuDeviceGetName(name, sizeof name, 0));
  CHECK_EQ(std::string(name), "Software GPU (gpupool)");
  CUuuid first, again, second;
  CHECK_CUDA(cuDeviceGetUuid_v2(&first, 0));
  CHECK_CUDA(cuDeviceGetUuid_v2(&again, 0));
  CHECK_CUDA(cuDeviceGetUuid_v2(&second, 1));
  CHECK_EQ(std::memcmp(&first, &again, sizeof first), 0);
  CHECK_NE(std::memcmp(&first, &second, sizeof first), 0);
  char bus[32];
  CHECK_CUDA(cuDeviceGetPCIBusId(bus, sizeof bus, 1));
  CUdevice found = -1;
  CHECK_CUDA(cuDeviceGetByPCIBusId(&found, bus));
  CHECK_EQ(found, 1);
}

TEST_CASE("every attribute of cuda.h has an answer, and a number outside has none") {
  REQUIRE_CUDA(cuInit(0));
  int value = -99;
  for (int id = 1; id < CU_DEVICE_ATTRIBUTE_MAX; ++id) {
    CHECK_CUDA(cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(id), 0));
  }
  CHECK_RESULT(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MAX, 0), CUDA_ERROR_INVALID_VALUE);
  CHECK_RESULT(cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(0), 0), CUDA_ERROR_INVALID_VALUE);
  CHECK_CUDA(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0));
  CHECK_EQ(value, 12);
  CHECK_CUDA(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 0));
  CHECK_EQ(value, 1536);
}

TEST_CASE("cuGetProcAddress gives the variant of the asked version") {
  void* address = nullptr;
  CUdriverProcAddressQueryResult status;
  const auto ask = [&](const char* name, int version, cuuint64_t flags) {
    return cuGetProcAddress_v2(name, &address, version, flags, &status);
  };
  CHECK_CUDA(ask("cuMemAlloc", 12000, 0));
  CHECK_EQ(address, reinterpret_cast<void*>(&cuMemAlloc_v2));
  CHECK_CUDA(ask("cuMemAlloc", 2000, 0));
  CHECK_EQ(address, reinterpret_cast<void*>(&cuMemAlloc));
  CHECK_CUDA(ask("cuStreamGetCaptureInfo", 11030, 0));
  CHECK_EQ(address, reinterpret_cast<void*>(&cuStreamGetCaptureInfo_v2));
  CHECK_CUDA(ask("cuLaunchKernel", 12000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM));
  CHECK_EQ(address, reinterpret_cast<void*>(&cuLaunchKernel_ptsz));
  CHECK_CUDA(ask("cuDeviceGet", 12000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM));
  CHECK_EQ(address, reinterpret_cast<void*>(&cuDeviceGet));
  CHECK_CUDA(ask("cuMemAllocAsync", 11000, 0));
  CHECK_EQ(address, nullptr);
  CHECK_EQ(status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
  CHECK_CUDA(ask("cuNoSuchFunction", 12000, 0));
  CHECK_EQ(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  CHECK_RESULT(ask("cuInit", CUDA_VERSION + 10, 0), CUDA_ERROR_INVALID_VALUE);
  CHECK_RESULT(cuGetProcAddress("cuNoSuchFunction", &address, 12000, 0), CUDA_ERROR_NOT_FOUND);
}

TEST_CASE("what the driver does not have says so") {
  REQUIRE_CUDA(cuInit(0));
  CurrentContext context;
  CHECK_RESULT(cuGraphicsUnregisterResource(nullptr), CUDA_ERROR_NOT_SUPPORTED);
  const void* table = nullptr;
  const CUuuid id{};
  CHECK_RESULT(cuGetExportTable(&table, &id), CUDA_ERROR_NOT_FOUND);
}

TEST_CASE("errors have names and texts") {
  const char* text = nullptr;
  CHECK_CUDA(cuGetErrorName(CUDA_ERROR_OUT_OF_MEMORY, &text));
  CHECK_EQ(std::string(text), "CUDA_ERROR_OUT_OF_MEMORY");
  CHECK_CUDA(cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &text));
  CHECK_EQ(std::string(text), "out of memory");
  CHECK_CUDA(cuGetErrorString(CUDA_ERROR_ARRAY_IS_MAPPED, &text));
  CHECK_EQ(std::string(text), "array is mapped");
  CHECK_CUDA(cuGetErrorString(CUDA_ERROR_INVALID_PTX, &text));
  CHECK_EQ(std::string(text), "a PTX JIT compilation failed");
  CHECK_CUDA(cuGetErrorString(CUDA_ERROR_NO_BINARY_FOR_GPU, &text));
  CHECK_EQ(std::string(text), "no kernel image is available for execution on the device");
  CHECK_RESULT(cuGetErrorName(static_cast<CUresult>(12345), &text), CUDA_ERROR_INVALID_VALUE);
}

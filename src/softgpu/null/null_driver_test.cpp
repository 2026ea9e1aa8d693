// The null driver through its C interface: it says of machine code what a GPU's driver would, and runs
// nothing.
#include <cuda.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "image/test_cubin.h"

using gpupool::image::TestCubin;

namespace {

constexpr const char* module_ptx = R"(
.version 8.7
.target sm_90a
.address_size 64
.visible .global .align 4 .u32 counter = 3;
.shared .align 16 .b8 used[256];
.shared .align 16 .b8 unused[512];
.visible .entry mystery(.param .u64 out, .param .u8 flag, .param .align 8 .b8 block[24]) .maxntid 128, 1, 1
{
    .reg .b32 %r<3>; .reg .b64 %rd<3>;
    mov.u32 %r1, used;
    no.such.opcode.v7 %r1, %r2, [%rd1];
    ret;
}
)";

struct Fixture {
  Fixture() {
    REQUIRE(cuInit(0) == CUDA_SUCCESS);
    REQUIRE(cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
    REQUIRE(cuCtxSetCurrent(context) == CUDA_SUCCESS);
  }
  ~Fixture() { cuDevicePrimaryCtxRelease(0); }

  CUfunction load(const std::string& image, const char* name) {
    CUfunction function = nullptr;
    REQUIRE(cuModuleLoadData(&module, image.c_str()) == CUDA_SUCCESS);
    REQUIRE(cuModuleGetFunction(&function, module, name) == CUDA_SUCCESS);
    return function;
  }

  CUcontext context = nullptr;
  CUmodule module = nullptr;
};

int attribute(CUfunction function, CUfunction_attribute which) {
  int value = -1;
  REQUIRE(cuFuncGetAttribute(&value, which, function) == CUDA_SUCCESS);
  return value;
}

CUresult launch(CUfunction function, unsigned threads, unsigned height, void** parameters) {
  return cuLaunchKernel(function, 4, 1, 1, threads, height, 1, 0, nullptr, parameters, nullptr);
}

}  // namespace

TEST_CASE_FIXTURE(Fixture, "its name says what it is") {
  char name[100];
  REQUIRE(cuDeviceGetName(name, sizeof(name), 0) == CUDA_SUCCESS);
  CHECK(std::string(name) == "null driver (executes nothing)");
  CUuuid uuid;
  REQUIRE(cuDeviceGetUuid(&uuid, 0) == CUDA_SUCCESS);
  CHECK(std::string(uuid.bytes + 9, 4) == "null");
}

TEST_CASE_FIXTURE(Fixture, "machine code tells its kernels, parameters and variables") {
  const CUfunction saxpy = load(TestCubin::make(120), "saxpy");
  std::size_t count = 0, offset = 0, size = 0;
  REQUIRE(cuFuncGetParamCount(saxpy, &count) == CUDA_SUCCESS);
  CHECK(count == 4);
  REQUIRE(cuFuncGetParamInfo(saxpy, 2, &offset, &size) == CUDA_SUCCESS);
  CHECK(offset == 16);
  CHECK(size == 40);
  CHECK(attribute(saxpy, CU_FUNC_ATTRIBUTE_NUM_REGS) == 40);
  CHECK(attribute(saxpy, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES) == 1024);
  CHECK(attribute(saxpy, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK) == 256);
  CHECK(attribute(saxpy, CU_FUNC_ATTRIBUTE_BINARY_VERSION) == 120);
  CUdeviceptr address = 0;
  unsigned value = 0;
  REQUIRE(cuModuleGetGlobal(&address, &size, module, "launches") == CUDA_SUCCESS);
  REQUIRE(size == sizeof(value));
  REQUIRE(cuMemcpyDtoH(&value, address, size) == CUDA_SUCCESS);
  CHECK(value == 7);
  CHECK(cuModuleGetGlobal(&address, &size, module, "nothing") == CUDA_ERROR_NOT_FOUND);
}

TEST_CASE_FIXTURE(Fixture, "PTX is taken with opcodes that nobody knows") {
  const CUfunction mystery = load(module_ptx, "mystery");
  std::size_t offset = 0, size = 0;
  REQUIRE(cuFuncGetParamInfo(mystery, 2, &offset, &size) == CUDA_SUCCESS);
  CHECK(offset == 16);
  CHECK(size == 24);
  CHECK(attribute(mystery, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES) == 256);
  CHECK(attribute(mystery, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK) == 128);
}

TEST_CASE_FIXTURE(Fixture, "launches are checked, ordered and without effect") {
  const CUfunction other = load(TestCubin::make(120), "other");
  CUdeviceptr memory = 0;
  REQUIRE(cuMemAlloc(&memory, 4096) == CUDA_SUCCESS);
  REQUIRE(cuMemsetD8(memory, 0x5a, 4096) == CUDA_SUCCESS);
  void* parameters[] = {&memory};
  CHECK(launch(other, 32, 2, parameters) == CUDA_SUCCESS);
  CHECK(launch(other, 64, 1, parameters) == CUDA_ERROR_INVALID_VALUE);  // .reqntid
  CHECK(launch(other, 2048, 1, parameters) == CUDA_ERROR_INVALID_VALUE);
  CUevent event = nullptr;
  REQUIRE(cuEventCreate(&event, 0) == CUDA_SUCCESS);
  REQUIRE(cuEventRecord(event, nullptr) == CUDA_SUCCESS);
  REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
  CHECK(cuEventQuery(event) == CUDA_SUCCESS);
  std::vector<unsigned char> bytes(4096);
  REQUIRE(cuMemcpyDtoH(bytes.data(), memory, bytes.size()) == CUDA_SUCCESS);
  CHECK(std::count(bytes.begin(), bytes.end(), 0x5a) == 4096);
  CHECK(cuEventDestroy(event) == CUDA_SUCCESS);
  CHECK(cuMemFree(memory) == CUDA_SUCCESS);
}

TEST_CASE_FIXTURE(Fixture, "machine code for another architecture is refused as a GPU refuses it") {
  CHECK(cuModuleLoadData(&module, TestCubin::make(80).c_str()) == CUDA_ERROR_NO_BINARY_FOR_GPU);
  CHECK(cuModuleLoadData(&module, TestCubin::make(90).c_str()) == CUDA_ERROR_NO_BINARY_FOR_GPU);
  CHECK(cuModuleLoadData(&module,
                         "\x7f"
                         "no image") == CUDA_ERROR_INVALID_IMAGE);
}

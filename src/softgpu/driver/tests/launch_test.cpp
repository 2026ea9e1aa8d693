#include <cstring>
#include <numeric>
#include <thread>

#include "driver_fixture.h"

namespace {

struct Saxpy {
  static constexpr int n = 1000;
  LoadedKernel kernel{saxpy_ptx, "saxpy"};
  CUdeviceptr out = 0, x = 0, y = 0;
  float a = 2.5F;
  int count = n;

  Saxpy() {
    std::vector<float> values(n);
    std::iota(values.begin(), values.end(), 0.0F);
    for (CUdeviceptr* array : {&out, &x, &y}) REQUIRE_CUDA(cuMemAlloc_v2(array, n * 4));
    REQUIRE_CUDA(cuMemcpyHtoD_v2(x, values.data(), n * 4));
    REQUIRE_CUDA(cuMemcpyHtoD_v2(y, values.data(), n * 4));
    REQUIRE_CUDA(cuMemsetD32_v2(out, 0, n));
  }
  std::vector<void*> parameters() { return {&out, &x, &y, &a, &count}; }
  void check() const {
    std::vector<float> result(n);
    REQUIRE_CUDA(cuMemcpyDtoH_v2(result.data(), out, n * 4));
    for (int i = 0; i < n; ++i) REQUIRE_EQ(result[static_cast<std::size_t>(i)], 3.5F * static_cast<float>(i));
  }
};

}  // namespace

TEST_CASE("a kernel computes what its PTX says") {
  CurrentContext context;
  Saxpy saxpy;
  REQUIRE_CUDA(launch(saxpy.kernel.function, 8, 128, nullptr, saxpy.parameters()));
  saxpy.check();
}

TEST_CASE("parameters may come packed in one buffer") {
  CurrentContext context;
  Saxpy saxpy;
  struct {
    CUdeviceptr out, x, y;
    float a;
    int n;
  } packed{saxpy.out, saxpy.x, saxpy.y, saxpy.a, saxpy.count};
  std::size_t size = sizeof packed;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                   CU_LAUNCH_PARAM_END};
  REQUIRE_CUDA(cuLaunchKernel(saxpy.kernel.function, 8, 1, 1, 128, 1, 1, 0, nullptr, nullptr, extra));
  saxpy.check();
  size = 8;
  CHECK_RESULT(cuLaunchKernel(saxpy.kernel.function, 8, 1, 1, 128, 1, 1, 0, nullptr, nullptr, extra),
               CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("the layout of parameters can be asked") {
  CurrentContext context;
  const LoadedKernel kernel(saxpy_ptx, "saxpy");
  std::size_t offset = 0, size = 0;
  const std::size_t offsets[] = {0, 8, 16, 24, 28}, sizes[] = {8, 8, 8, 4, 4};
  for (std::size_t i = 0; i < 5; ++i) {
    CHECK_CUDA(cuFuncGetParamInfo(kernel.function, i, &offset, &size));
    CHECK_EQ(offset, offsets[i]);
    CHECK_EQ(size, sizes[i]);
  }
  CHECK_RESULT(cuFuncGetParamInfo(kernel.function, 5, &offset, &size), CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("impossible launches are refused at once") {
  CurrentContext context;
  Saxpy saxpy;
  const auto parameters = saxpy.parameters();
  CHECK_RESULT(launch(saxpy.kernel.function, 1, 1025, nullptr, parameters), CUDA_ERROR_INVALID_VALUE);
  CHECK_RESULT(launch(saxpy.kernel.function, 0, 32, nullptr, parameters), CUDA_ERROR_INVALID_VALUE);
  CHECK_RESULT(cuLaunchKernel(saxpy.kernel.function, 1, 1, 1, 32, 1, 1, 200 << 10, nullptr, nullptr, nullptr),
               CUDA_ERROR_INVALID_VALUE);
  CHECK_RESULT(cuLaunchKernel(saxpy.kernel.function, 1, 1, 1, 32, 1, 1, 0, nullptr, nullptr, nullptr),
               CUDA_ERROR_INVALID_VALUE);
  CHECK_RESULT(launch(reinterpret_cast<CUfunction>(0x1000), 1, 32, nullptr, parameters),
               CUDA_ERROR_INVALID_HANDLE);
  CHECK_RESULT(launch(saxpy.kernel.function, 1, 32, reinterpret_cast<CUstream>(0x1000), parameters),
               CUDA_ERROR_INVALID_HANDLE);
  CHECK_CUDA(cuCtxSynchronize());
}

TEST_CASE("variables of a module can be found and changed") {
  CurrentContext context;
  const LoadedKernel kernel(saxpy_ptx, "saxpy");
  CUdeviceptr address = 0;
  std::size_t size = 0;
  REQUIRE_CUDA(cuModuleGetGlobal_v2(&address, &size, kernel.module, "launches"));
  CHECK_EQ(size, 4);
  int value = 0;
  REQUIRE_CUDA(cuMemcpyDtoH_v2(&value, address, 4));
  CHECK_EQ(value, 7);
  CHECK_RESULT(cuModuleGetGlobal_v2(&address, &size, kernel.module, "nothing"), CUDA_ERROR_NOT_FOUND);
  CUfunction function = nullptr;
  CHECK_RESULT(cuModuleGetFunction(&function, kernel.module, "nothing"), CUDA_ERROR_NOT_FOUND);
  unsigned count = 0;
  CHECK_CUDA(cuModuleGetFunctionCount(&count, kernel.module));
  CHECK_EQ(count, 1);
  CHECK_CUDA(cuModuleUnload(kernel.module));
  CHECK_RESULT(cuModuleUnload(kernel.module), CUDA_ERROR_INVALID_HANDLE);
  CHECK_RESULT(launch(kernel.function, 1, 32, nullptr, {}), CUDA_ERROR_INVALID_HANDLE);
}

TEST_CASE("a library's kernel runs in whatever context is current") {
  REQUIRE_CUDA(cuInit(0));
  CUlibrary library = nullptr;
  CUkernel kernel = nullptr;
  REQUIRE_CUDA(cuLibraryLoadData(&library, saxpy_ptx, nullptr, nullptr, 0, nullptr, nullptr, 0));
  REQUIRE_CUDA(cuLibraryGetKernel(&kernel, library, "saxpy"));
  for (int device = 0; device < 2; ++device) {
    CurrentContext context(device);
    Saxpy saxpy;
    // A kernel handle is accepted where a function is.
    REQUIRE_CUDA(launch(reinterpret_cast<CUfunction>(kernel), 8, 128, nullptr, saxpy.parameters()));
    saxpy.check();
  }
  CurrentContext first(0);
  Saxpy saxpy;
  CUstream stream = nullptr;
  REQUIRE_CUDA(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  {
    const CurrentContext second(1);  // the stream says in which context the kernel runs
    REQUIRE_CUDA(launch(reinterpret_cast<CUfunction>(kernel), 8, 128, stream, saxpy.parameters()));
  }
  REQUIRE_CUDA(cuStreamSynchronize(stream));
  saxpy.check();
  CHECK_CUDA(cuLibraryUnload(library));
  CHECK_RESULT(cuLibraryGetKernel(&kernel, library, "saxpy"), CUDA_ERROR_INVALID_HANDLE);
}

TEST_CASE("PTX that cannot be compiled is refused with a reason") {
  CurrentContext context;
  CUmodule module = nullptr;
  char log[512] = "untouched";
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {log, reinterpret_cast<void*>(sizeof log)};
  const char* broken =
      ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry k() { frobnicate.u32 %r1; ret; }";
  CHECK_RESULT(cuModuleLoadDataEx(&module, broken, 2, options, values), CUDA_ERROR_INVALID_PTX);
  CHECK_NE(std::string(log), "untouched");
  CHECK_NE(std::string(log), "");
  CHECK_EQ(std::strlen(log), reinterpret_cast<std::size_t>(values[1]));
  CHECK_RESULT(cuModuleLoadData(&module,
                                "\x7f"
                                "ELF machine code"),
               CUDA_ERROR_NO_BINARY_FOR_GPU);
  CHECK_RESULT(cuModuleLoadData(&module, "nonsense"), CUDA_ERROR_INVALID_IMAGE);
  CHECK_RESULT(cuModuleLoad(&module, "/nowhere/nothing.ptx"), CUDA_ERROR_FILE_NOT_FOUND);
  const char* newer = ".version 9.0\n.target sm_130\n.address_size 64\n.visible .entry k() { ret; }";
  CHECK_RESULT(cuModuleLoadDataEx(&module, newer, 2, options, values), CUDA_ERROR_INVALID_PTX);
}

TEST_CASE("the linker joins PTX and its output can be loaded") {
  CurrentContext context;
  const std::string callee =
      ".version 7.0\n.target sm_75\n.address_size 64\n"
      ".visible .func (.param .b32 r) seven() { .reg .b32 %r<2>; mov.u32 %r1, 7; st.param.b32 [r], %r1; ret; "
      "}\n";
  const std::string caller = R"(
.version 7.0
.target sm_75
.address_size 64
.extern .func (.param .b32 r) seven();
.visible .entry store(.param .u64 to)
{
    .reg .b32 %r<2>; .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [to];
    { .param .b32 back; call.uni (back), seven, (); ld.param.b32 %r1, [back]; }
    st.global.u32 [%rd1], %r1;
    ret;
}
)";
  const auto add = [](CUlinkState state, const std::string& text) {
    return cuLinkAddData_v2(state, CU_JIT_INPUT_PTX, const_cast<char*>(text.data()), text.size(), "part", 0,
                            nullptr, nullptr);
  };
  CUlinkState state = nullptr;
  void* image = nullptr;
  std::size_t size = 0;
  REQUIRE_CUDA(cuLinkCreate_v2(0, nullptr, nullptr, &state));
  REQUIRE_CUDA(add(state, caller));
  CHECK_RESULT(cuLinkComplete(state, &image, &size), CUDA_ERROR_INVALID_PTX);  // seven is missing
  REQUIRE_CUDA(add(state, callee));
  REQUIRE_CUDA(cuLinkComplete(state, &image, &size));
  CUmodule module = nullptr;
  REQUIRE_CUDA(cuModuleLoadData(&module, image));
  CHECK_CUDA(cuLinkDestroy(state));
  CUfunction function = nullptr;
  REQUIRE_CUDA(cuModuleGetFunction(&function, module, "store"));
  CUdeviceptr to = 0;
  REQUIRE_CUDA(cuMemAlloc_v2(&to, 4));
  REQUIRE_CUDA(launch(function, 1, 1, nullptr, {&to}));
  int value = 0;
  REQUIRE_CUDA(cuMemcpyDtoH_v2(&value, to, 4));
  CHECK_EQ(value, 7);
}

TEST_CASE("a launch returns before its kernel is done") {
  CurrentContext context;
  const LoadedKernel kernel(wait_ptx, "wait_for");
  CUstream stream = nullptr, other = nullptr;
  REQUIRE_CUDA(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  REQUIRE_CUDA(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  CUdeviceptr flag = 0;
  REQUIRE_CUDA(cuMemAlloc_v2(&flag, 4));
  REQUIRE_CUDA(cuMemsetD32_v2(flag, 0, 1));
  REQUIRE_CUDA(launch(kernel.function, 1, 32, stream, {&flag}));
  CHECK_RESULT(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
  REQUIRE_CUDA(cuMemsetD32Async(flag, 1, 1, other));
  CHECK_CUDA(cuStreamSynchronize(stream));
}

TEST_CASE("a fault ends the context's work and stays until the context goes") {
  REQUIRE_CUDA(cuInit(0));
  {
    CurrentContext context;
    const LoadedKernel kernel(poke_ptx, "poke");
    CUdeviceptr nowhere = 0x10, memory = 0;
    int value = 1;
    REQUIRE_CUDA(cuMemAlloc_v2(&memory, 4));
    REQUIRE_CUDA(launch(kernel.function, 1, 1, nullptr, {&nowhere, &value}));
    CHECK_RESULT(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    CHECK_RESULT(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    CHECK_RESULT(cuMemAlloc_v2(&memory, 4), CUDA_ERROR_ILLEGAL_ADDRESS);
    CHECK_RESULT(launch(kernel.function, 1, 1, nullptr, {&memory, &value}), CUDA_ERROR_ILLEGAL_ADDRESS);
  }
  CurrentContext fresh;
  Saxpy saxpy;
  REQUIRE_CUDA(launch(saxpy.kernel.function, 8, 128, nullptr, saxpy.parameters()));
  saxpy.check();
}

TEST_CASE("freed and unaligned addresses are faults too") {
  for (const bool unaligned : {false, true}) {
    CurrentContext context;
    const LoadedKernel kernel(poke_ptx, "poke");
    CUdeviceptr memory = 0;
    int value = 1;
    REQUIRE_CUDA(cuMemAlloc_v2(&memory, 4 << 20));
    CUdeviceptr target = memory + 2;
    if (!unaligned) {
      REQUIRE_CUDA(cuMemFree_v2(memory));
      target = memory;
    }
    REQUIRE_CUDA(launch(kernel.function, 1, 1, nullptr, {&target, &value}));
    CHECK_RESULT(cuCtxSynchronize(), unaligned ? CUDA_ERROR_MISALIGNED_ADDRESS : CUDA_ERROR_ILLEGAL_ADDRESS);
  }
}

TEST_CASE("kernels reach memory that a program has placed itself, and only there") {
  constexpr std::size_t chunk = std::size_t{2} << 20;
  CurrentContext context;
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUmemAccessDesc access{};
  access.location = properties.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  CUdeviceptr range = 0;
  CUmemGenericAllocationHandle handle = 0;
  REQUIRE_CUDA(cuMemAddressReserve(&range, 16 * chunk, 0, unmapped_address + (std::size_t{1} << 30), 0));
  REQUIRE_CUDA(cuMemCreate(&handle, 8 * chunk, &properties, 0));
  REQUIRE_CUDA(cuMemMap(range, 8 * chunk, 0, handle, 0));
  REQUIRE_CUDA(cuMemSetAccess(range, 8 * chunk, &access, 1));
  const LoadedKernel kernel(poke_ptx, "poke");
  CUdeviceptr inside = range + 8 * chunk - 4, outside = range + 8 * chunk;
  int value = 99, seen = 0;
  REQUIRE_CUDA(launch(kernel.function, 1, 1, nullptr, {&inside, &value}));
  REQUIRE_CUDA(cuMemcpyDtoH_v2(&seen, inside, 4));
  CHECK_EQ(seen, 99);
  REQUIRE_CUDA(launch(kernel.function, 1, 1, nullptr, {&outside, &value}));
  CHECK_RESULT(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
  CHECK_CUDA(cuMemUnmap(range, 8 * chunk));
  CHECK_CUDA(cuMemRelease(handle));
  CHECK_CUDA(cuMemAddressFree(range, 16 * chunk));
}

TEST_CASE("the launches of CUDA 3") {
  CurrentContext context;
  Saxpy saxpy;
  const CUfunction function = saxpy.kernel.function;
  CHECK_RESULT(cuFuncSetBlockShape(nullptr, 1, 1, 1), CUDA_ERROR_INVALID_HANDLE);
  CHECK_RESULT(cuFuncSetBlockShape(function, 0, 1, 1), CUDA_ERROR_INVALID_VALUE);
  CHECK_CUDA(cuFuncSetBlockShape(function, 128, 1, 1));
  CHECK_CUDA(cuFuncSetSharedSize(function, 0));
  CHECK_CUDA(cuParamSetv(function, 0, &saxpy.out, 8));
  CHECK_CUDA(cuParamSetv(function, 8, &saxpy.x, 8));
  CHECK_CUDA(cuParamSetv(function, 16, &saxpy.y, 8));
  CHECK_CUDA(cuParamSetf(function, 24, saxpy.a));
  CHECK_CUDA(cuParamSeti(function, 28, static_cast<unsigned>(saxpy.count)));
  CHECK_CUDA(cuParamSetSize(function, 32));
  CHECK_RESULT(cuParamSetv(function, -1, &saxpy.y, 8), CUDA_ERROR_INVALID_VALUE);
  CHECK_RESULT(cuParamSetv(function, 1 << 20, &saxpy.y, 8), CUDA_ERROR_INVALID_VALUE);
  CHECK_RESULT(cuLaunchGrid(function, 0, 1), CUDA_ERROR_INVALID_VALUE);
  CHECK_CUDA(cuLaunchGrid(function, 8, 1));
  REQUIRE_CUDA(cuCtxSynchronize());
  saxpy.check();
  REQUIRE_CUDA(cuMemsetD32_v2(saxpy.out, 0, Saxpy::n));
  CUstream stream = nullptr;
  REQUIRE_CUDA(cuStreamCreate(&stream, 0));
  CHECK_CUDA(cuFuncSetBlockShape(function, 64, 2, 1));
  CHECK_CUDA(cuFuncSetBlockShape(function, 128, 1, 1));
  CHECK_CUDA(cuLaunchGridAsync(function, 8, 1, stream));
  REQUIRE_CUDA(cuStreamSynchronize(stream));
  saxpy.check();
}

TEST_CASE("launch attributes that CUDA does not have are refused, and pointers keep what was set") {
  CurrentContext context;
  Saxpy saxpy;
  CUlaunchAttribute attribute{};
  CUlaunchConfig config{};
  config.gridDimX = 8;
  config.blockDimX = 128;
  config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
  config.attrs = &attribute;
  config.numAttrs = 1;
  auto with = [&](int id) {
    attribute.id = static_cast<CUlaunchAttributeID>(id);
    return cuLaunchKernelEx(&config, saxpy.kernel.function, saxpy.parameters().data(), nullptr);
  };
  CHECK_RESULT(with(9999), CUDA_ERROR_INVALID_VALUE);
  CHECK_RESULT(with(-1), CUDA_ERROR_INVALID_VALUE);
  CHECK_RESULT(with(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION), CUDA_ERROR_INVALID_VALUE);  // 0 blocks
  CHECK_CUDA(with(CU_LAUNCH_ATTRIBUTE_PRIORITY));
  REQUIRE_CUDA(cuCtxSynchronize());
  unsigned value = 1;
  CHECK_CUDA(cuPointerSetAttribute(&value, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, saxpy.x));
  value = 0;
  CHECK_CUDA(cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, saxpy.x));
  CHECK_EQ(value, 1);
  CHECK_CUDA(cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, saxpy.y));
  CHECK_EQ(value, 0);
  CUlibraryOption preserved = CU_LIBRARY_BINARY_IS_PRESERVED;
  CUlibraryOption table = CU_LIBRARY_HOST_UNIVERSAL_FUNCTION_AND_DATA_TABLE;
  CUlibrary library = nullptr;
  CHECK_CUDA(cuLibraryLoadData(&library, saxpy_ptx, nullptr, nullptr, 0, &preserved, nullptr, 1));
  CHECK_CUDA(cuLibraryUnload(library));
  CHECK_RESULT(cuLibraryLoadData(&library, saxpy_ptx, nullptr, nullptr, 0, &table, nullptr, 1),
               CUDA_ERROR_INVALID_VALUE);
}

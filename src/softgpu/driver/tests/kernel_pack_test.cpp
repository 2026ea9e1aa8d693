// Machine code without PTX, through the C interface of the driver: what a kernel pack has of it runs.
#define DOCTEST_CONFIG_NO_POSIX_SIGNALS
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "base/sha256.h"
#include "cuda.h"
#include "image/test_cubin.h"
#include "image/test_fatbin.h"
#include "softgpu/packs/write_kernels.h"

using namespace gpupool::image;
namespace fs = std::filesystem;

namespace {

const std::string header = ".version 8.0\n.target sm_80\n.address_size 64\n";
const std::string saxpy =
    header +
    ".visible .entry saxpy(.param .u64 out, .param .u8 flag, .param .align 8 .b8 by[40], .param .f32 a)\n"
    "{ .reg .u64 %p; .reg .f32 %a; ld.param.u64 %p, [out]; ld.param.f32 %a, [a];\n"
    "  cvta.to.global.u64 %p, %p; st.global.f32 [%p], %a; ret; }\n";
// The variable is `other`'s alone.
const std::string other = header +
                          ".global .align 4 .u32 launches = 7;\n"
                          ".visible .entry other(.param .u64 out)\n"
                          "{ .reg .u64 %p; .reg .u32 %n; ld.param.u64 %p, [out]; cvta.to.global.u64 %p, %p;\n"
                          "  atom.global.add.u32 %n, [launches], 1; st.global.u32 [%p], %n; ret; }\n";

std::string frame(const std::string& names, const std::string& text) {
  return std::to_string(text.size()) + ' ' + names + '\n' + text;
}

// An image that no other test has: its machine code ends in a number.
std::string image_with_pack(const std::string& frames) {
  static int number = 0;
  std::string code = TestCubin::make();
  code.resize((code.size() + 7) / 8 * 8 + 8);
  code.back() = static_cast<char>(++number);
  const std::string digest = gpupool::hex(gpupool::sha256(view(code)));
  const fs::path pack =
      fs::path(std::getenv("GPUPOOL_SOFTGPU_KERNEL_PACKS")) / ("abcdef0" + std::to_string(number));
  fs::create_directories(pack);
  std::istringstream input(frames);
  REQUIRE_EQ(softgpu::packs::write_kernels(input, (pack / "mine.kernels").string()), "");
  std::ofstream(pack / "index") << "gpupool-kernel-pack 1 libmine.so of mine\nbuilt " << digest
                                << " mine.kernels\n";
  return fatbin(entry(2, 80, code));
}

struct Device {
  CUcontext context = nullptr;
  CUdeviceptr out = 0;

  Device() {
    REQUIRE_EQ(cuInit(0), CUDA_SUCCESS);
    REQUIRE_EQ(cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
    REQUIRE_EQ(cuCtxSetCurrent(context), CUDA_SUCCESS);
    REQUIRE_EQ(cuMemAlloc_v2(&out, 4), CUDA_SUCCESS);
  }
  ~Device() {
    cuMemFree_v2(out);
    cuDevicePrimaryCtxRelease_v2(0);
  }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  CUresult run(CUkernel kernel, void** parameters) const {
    const CUresult result = cuLaunchKernel(reinterpret_cast<CUfunction>(kernel), 1, 1, 1, 1, 1, 1, 0, nullptr,
                                           parameters, nullptr);
    return result == CUDA_SUCCESS ? cuCtxSynchronize() : result;
  }
  template <class T>
  T result() const {
    T value{};
    REQUIRE_EQ(cuMemcpyDtoH_v2(&value, out, sizeof value), CUDA_SUCCESS);
    return value;
  }
};

CUresult load(CUlibrary& library, const std::string& image) {
  return cuLibraryLoadData(&library, image.data(), nullptr, nullptr, 0, nullptr, nullptr, 0);
}

}  // namespace

TEST_CASE("kernels of a pack run in the machine code's place, and share what they share") {
  const Device device;
  CUlibrary library = nullptr;
  REQUIRE_EQ(load(library, image_with_pack(frame("saxpy", saxpy) + frame("other launches", other))),
             CUDA_SUCCESS);
  unsigned count = 0;
  CHECK_EQ(cuLibraryGetKernelCount(&count, library), CUDA_SUCCESS);
  CHECK_EQ(count, 2);

  CUkernel kernel = nullptr;
  REQUIRE_EQ(cuLibraryGetKernel(&kernel, library, "saxpy"), CUDA_SUCCESS);
  CUdeviceptr out = device.out;
  unsigned char flag = 0;
  char by[40] = {};
  float a = 2.5F;
  void* of_saxpy[] = {&out, &flag, by, &a};
  REQUIRE_EQ(device.run(kernel, of_saxpy), CUDA_SUCCESS);
  CHECK_EQ(device.result<float>(), 2.5F);

  REQUIRE_EQ(cuLibraryGetKernel(&kernel, library, "other"), CUDA_SUCCESS);
  void* of_other[] = {&out};
  REQUIRE_EQ(device.run(kernel, of_other), CUDA_SUCCESS);
  CHECK_EQ(device.result<int>(), 7);
  CUdeviceptr launches = 0;
  std::size_t size = 0;
  REQUIRE_EQ(cuLibraryGetGlobal(&launches, &size, library, "launches"), CUDA_SUCCESS);
  CHECK_EQ(size, 4);
  int value = 0;
  REQUIRE_EQ(cuMemcpyDtoH_v2(&value, launches, 4), CUDA_SUCCESS);
  CHECK_EQ(value, 8);
  CHECK_EQ(cuLibraryGetGlobal(&launches, &size, library, "table"), CUDA_ERROR_NOT_FOUND);
  CHECK_EQ(cuLibraryUnload(library), CUDA_SUCCESS);
}

TEST_CASE("a module of such an image has all of its kernels") {
  const Device device;
  const std::string image = image_with_pack(frame("saxpy", saxpy) + frame("other launches", other));
  CUmodule module = nullptr;
  REQUIRE_EQ(cuModuleLoadData(&module, image.data()), CUDA_SUCCESS);
  CUfunction function = nullptr;
  CHECK_EQ(cuModuleGetFunction(&function, module, "saxpy"), CUDA_SUCCESS);
  CHECK_EQ(cuModuleGetFunction(&function, module, "other"), CUDA_SUCCESS);
  CHECK_EQ(cuModuleUnload(module), CUDA_SUCCESS);
}

// Libraries ask before they launch, and some keep the answer.
TEST_CASE(
    "a kernel that the pack lacks can be asked about, and has no code to launch; one that nobody has is not "
    "found") {
  const Device device;
  for (const std::string& image :
       {image_with_pack(frame("other launches", other)), fatbin(entry(2, 80, TestCubin::make()))}) {
    CUlibrary library = nullptr;
    REQUIRE_EQ(load(library, image), CUDA_SUCCESS);
    CUkernel kernel = nullptr;
    REQUIRE_EQ(cuLibraryGetKernel(&kernel, library, "saxpy"), CUDA_SUCCESS);
    const auto attribute = [&](CUfunction_attribute asked) {
      int value = -1;
      CHECK_EQ(cuKernelGetAttribute(&value, asked, kernel, 0), CUDA_SUCCESS);
      return value;
    };
    CHECK_EQ(attribute(CU_FUNC_ATTRIBUTE_PTX_VERSION), 80);
    CHECK_EQ(attribute(CU_FUNC_ATTRIBUTE_BINARY_VERSION), 80);
    CHECK_EQ(attribute(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK), 256);
    CHECK_EQ(attribute(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES), 1024);
    std::size_t offset = 0, size = 0;
    CHECK_EQ(cuKernelGetParamInfo(kernel, 3, &offset, &size), CUDA_SUCCESS);
    CHECK_EQ(offset, 56);
    CHECK_EQ(size, 4);

    CUdeviceptr out = device.out;
    unsigned char flag = 0;
    char by[40] = {};
    float a = 2.5F;
    void* parameters[] = {&out, &flag, by, &a};
    CHECK_EQ(device.run(kernel, parameters), CUDA_ERROR_NO_BINARY_FOR_GPU);
    // Also where its machine code takes no such block: that code is for one of many devices.
    CHECK_EQ(cuLaunchKernel(reinterpret_cast<CUfunction>(kernel), 1, 1, 1, 512, 1, 1, 0, nullptr, parameters,
                            nullptr),
             CUDA_ERROR_NO_BINARY_FOR_GPU);
    CHECK_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
    CHECK_EQ(cuLibraryGetKernel(&kernel, library, "nobody"), CUDA_ERROR_NOT_FOUND);
    CHECK_EQ(cuLibraryUnload(library), CUDA_SUCCESS);
  }
}

TEST_CASE("a kernel of other sources, with other parameters, does not run") {
  const Device device;
  std::string wrong = saxpy;
  wrong.replace(wrong.find("by[40]"), 6, "by[32]");
  CUlibrary library = nullptr;
  REQUIRE_EQ(load(library, image_with_pack(frame("saxpy", wrong))), CUDA_SUCCESS);
  CUkernel kernel = nullptr;
  REQUIRE_EQ(cuLibraryGetKernel(&kernel, library, "saxpy"), CUDA_SUCCESS);
  CUfunction function = nullptr;
  CHECK_EQ(cuKernelGetFunction(&function, kernel), CUDA_ERROR_NO_BINARY_FOR_GPU);
  CHECK_EQ(cuLibraryUnload(library), CUDA_SUCCESS);
}

TEST_CASE("machine code without a pack is no module, and without a fat binary around it no library") {
  const Device device;
  const std::string image = fatbin(entry(2, 80, TestCubin::make()));
  CUmodule module = nullptr;
  CHECK_EQ(cuModuleLoadData(&module, image.data()), CUDA_ERROR_NO_BINARY_FOR_GPU);
  CUlibrary library = nullptr;
  CHECK_EQ(load(library, TestCubin::make()), CUDA_ERROR_NO_BINARY_FOR_GPU);
  const std::string of_later_devices = fatbin(entry(2, 130, TestCubin::make(130)));
  CHECK_EQ(load(library, of_later_devices), CUDA_ERROR_NO_BINARY_FOR_GPU);
}

// The driver reads its settings once, at the first call.
int main(int count, char** arguments) {
  std::string folder = (fs::temp_directory_path() / "kernel-pack-test-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) return 1;
  setenv("GPUPOOL_SOFTGPU_KERNEL_PACKS", folder.c_str(), 1);
  const int result = doctest::Context(count, arguments).run();
  fs::remove_all(folder);
  return result;
}

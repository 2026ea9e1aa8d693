// Kernels of libraries: attributes that a program sets for a device, in whatever context it launches.
#include "driver_fixture.h"

namespace {

constexpr auto dynamic_shared = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;

struct LibraryKernel {
  CUlibrary library = nullptr;
  CUkernel kernel = nullptr;
  LibraryKernel() {
    REQUIRE_CUDA(cuLibraryLoadData(&library, saxpy_ptx, nullptr, nullptr, 0, nullptr, nullptr, 0));
    REQUIRE_CUDA(cuLibraryGetKernel(&kernel, library, "saxpy"));
  }
  ~LibraryKernel() { cuLibraryUnload(library); }
  int on_device(CUdevice device) const {
    int value = -1;
    REQUIRE_CUDA(cuKernelGetAttribute(&value, dynamic_shared, kernel, device));
    return value;
  }
  CUfunction function() const {
    CUfunction made = nullptr;
    REQUIRE_CUDA(cuKernelGetFunction(&made, kernel));
    return made;
  }
};

int of_function(CUfunction function) {
  int value = -1;
  REQUIRE_CUDA(cuFuncGetAttribute(&value, dynamic_shared, function));
  return value;
}

}  // namespace

TEST_CASE("an attribute of a kernel is set for one device") {
  const CurrentContext first(0);
  const LibraryKernel given;
  const int at_first = given.on_device(0);
  REQUIRE_CUDA(cuKernelSetAttribute(dynamic_shared, 60000, given.kernel, 1));  // which has no context yet
  CHECK_EQ(given.on_device(1), 60000);
  CHECK_EQ(given.on_device(0), at_first);
  CHECK_EQ(of_function(given.function()), at_first);
  {
    const CurrentContext second(1);
    CHECK_EQ(of_function(given.function()), 60000);
    REQUIRE_CUDA(cuKernelSetAttribute(dynamic_shared, 70000, given.kernel, 1));
    CHECK_EQ(of_function(given.function()), 70000);
  }
  CHECK_RESULT(cuKernelSetAttribute(dynamic_shared, 1 << 30, given.kernel, 1), CUDA_ERROR_INVALID_VALUE);
  CHECK_RESULT(cuKernelSetAttribute(dynamic_shared, 60000, given.kernel, 7), CUDA_ERROR_INVALID_DEVICE);
  CHECK_RESULT(cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_NUM_REGS, 1, given.kernel, 0),
               CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("an attribute set for a function holds against the kernel's, whichever comes first") {
  const CurrentContext context;
  const LibraryKernel given;
  REQUIRE_CUDA(cuFuncSetAttribute(given.function(), dynamic_shared, 50000));
  REQUIRE_CUDA(cuKernelSetAttribute(dynamic_shared, 60000, given.kernel, 0));
  CHECK_EQ(of_function(given.function()), 50000);
  CHECK_EQ(given.on_device(0), 60000);
  REQUIRE_CUDA(cuFuncSetAttribute(given.function(), dynamic_shared, 55000));
  CHECK_EQ(of_function(given.function()), 55000);
  CHECK_EQ(given.on_device(0), 60000);
}

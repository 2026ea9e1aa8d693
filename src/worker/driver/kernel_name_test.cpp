#include "worker/driver/kernel_name.h"

#include <doctest/doctest.h>

using gpupool::worker::short_kernel_name;

TEST_CASE("a kernel is called as in its source") {
  CHECK(short_kernel_name("saxpy") == "saxpy");
  CHECK(short_kernel_name("_Z5saxpyPfS_fi") == "saxpy");
  // numba's: abi tags, a class template of parameters
  CHECK(short_kernel_name("_ZN8__main__"
                          "7foreverB2v1B92cw51cXTLSUwv1sDUaKthqaNgoKmjgOR3W3CwAkMXLaJtQYkOIgxJU0gCqOkEJoHkbtt"
                          "qdVhoqlspQGNFHSgJ5BnXagIAE5ArrayIdLi1E1C7mutable7alignedE") == "forever");
  // a template's instance, with its return type in the name
  CHECK(short_kernel_name("_ZN2at6native13reduce_kernelILi512ELi1EfEEvPT1_") == "reduce_kernel");
  CHECK(short_kernel_name("triton_poi_fused_add_0") == "triton_poi_fused_add_0");
}

TEST_CASE("a name that says nothing, or too much, is cut") {
  CHECK(short_kernel_name("").empty());
  CHECK(short_kernel_name("(anonymous namespace)").empty());
  CHECK(short_kernel_name("a b=c\nd;\x01 e") == "e");
  CHECK(short_kernel_name(std::string(5000, 'k')).size() == 80);
  CHECK(short_kernel_name("_Z" + std::string(5000, 'k')).size() == 80);
  CHECK(short_kernel_name("_Znot mangled at all") == "all");
}

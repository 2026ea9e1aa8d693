// gpupool-kernel-packs describe LIBRARY, gpupool-kernel-packs write FILE: the part of `gpupool kernel-packs`
// that knows formats.
#include <cstdio>
#include <iostream>
#include <string>
#include <string_view>

#include "softgpu/packs/describe.h"
#include "softgpu/packs/write_kernels.h"

int main(int count, char** arguments) {
  try {
    const std::string_view verb = count == 3 ? arguments[1] : "";
    if (verb == "describe") return softgpu::packs::describe_library(arguments[2]);
    if (verb == "write") {
      const std::string problem = softgpu::packs::write_kernels(std::cin, arguments[2]);
      if (!problem.empty()) std::fprintf(stderr, "%s: %s\n", arguments[2], problem.c_str());
      return problem.empty() ? 0 : 1;
    }
    std::fputs("usage: gpupool-kernel-packs describe LIBRARY | write FILE\n", stderr);
    return 2;
  } catch (...) {
    std::fputs("gpupool-kernel-packs: not enough memory\n", stderr);
    return 1;
  }
}

// gpupool-kernel-packs describe LIBRARY, texts LIBRARY, write FILE, frames FILE, verify FILE: the part of
// `gpupool kernel-packs` that knows formats.
#include <cstdio>
#include <iostream>
#include <string>
#include <string_view>

#include "softgpu/packs/describe.h"
#include "softgpu/packs/kernel_file.h"
#include "softgpu/packs/write_kernels.h"

namespace softgpu::packs {

// Whether every frame can be read; says on stderr what cannot.
static int verify_kernels(const char* path) {
  std::string problem;
  const auto file = KernelFile::open(path, problem);
  for (std::size_t frame = 0; file && problem.empty() && frame < file->frames().size(); ++frame) {
    if (file->ptx(frame).empty()) problem = "it is damaged";
  }
  if (!problem.empty()) std::fprintf(stderr, "%s: %s\n", path, problem.c_str());
  return problem.empty() ? 0 : 1;
}

// Prints what `write` was given.
static int print_frames(const char* path) {
  std::string problem;
  const auto file = KernelFile::open(path, problem);
  for (std::size_t frame = 0; file && problem.empty() && frame < file->frames().size(); ++frame) {
    const std::string text = file->ptx(frame);
    if (text.empty()) problem = "it is damaged";
    std::printf("%zu", text.size());
    for (const PackedName& name : file->names()) {
      if (name.frame == frame) std::printf(" %s", name.name.c_str());
    }
    std::putchar('\n');
    std::fwrite(text.data(), 1, text.size(), stdout);
  }
  if (!problem.empty()) std::fprintf(stderr, "%s: %s\n", path, problem.c_str());
  return problem.empty() && std::fflush(stdout) == 0 ? 0 : 1;
}

}  // namespace softgpu::packs

int main(int count, char** arguments) {
  try {
    const std::string_view verb = count == 3 ? arguments[1] : "";
    if (verb == "describe") return softgpu::packs::describe_library(arguments[2]);
    if (verb == "texts") return softgpu::packs::print_texts(arguments[2]);
    if (verb == "write") {
      const std::string problem = softgpu::packs::write_kernels(std::cin, arguments[2]);
      if (!problem.empty()) std::fprintf(stderr, "%s: %s\n", arguments[2], problem.c_str());
      return problem.empty() ? 0 : 1;
    }
    if (verb == "frames") return softgpu::packs::print_frames(arguments[2]);
    if (verb == "verify") return softgpu::packs::verify_kernels(arguments[2]);
    std::fputs(
        "usage: gpupool-kernel-packs describe LIBRARY | texts LIBRARY | write FILE | frames FILE | verify "
        "FILE\n",
        stderr);
    return 2;
  } catch (...) {
    std::fputs("gpupool-kernel-packs: not enough memory\n", stderr);
    return 1;
  }
}

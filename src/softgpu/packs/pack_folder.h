// Which kernel pack knows a fat binary.
//
// A pack is a folder named after the build id of its library. Its `index` is a line `gpupool-kernel-pack 1
// LIBRARY`, and for each piece of machine code in the library one line: `built SHA256 FILE`, FILE being a
// kernel file (kernel_file.h) in the same folder, or `missing SHA256 SOURCE`, SOURCE being the source file
// that would have to be built, or `-`.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "image/cubin.h"
#include "softgpu/packs/kernel_file.h"

namespace softgpu::packs {

// What is known of a fat binary's machine code.
struct PackedImage {
  std::shared_ptr<const KernelFile> kernels;  // null if no pack has its PTX
  gpupool::image::Cubin machine_code;         // what the PTX must agree with; its spans are empty
  std::string problem;                        // why there is no PTX, in words
};

// Looks for the machine code of `fatbin` in the packs of `folder`.
PackedImage find_packed(std::span<const std::byte> fatbin, const std::string& folder);

}  // namespace softgpu::packs

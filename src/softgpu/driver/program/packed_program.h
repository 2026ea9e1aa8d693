// Programs from kernel packs: PTX for images that hold machine code alone.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "softgpu/driver/program/loader.h"
#include "softgpu/packs/pack_folder.h"

namespace softgpu::driver {

// All of an image as one program: its PTX, or where it has none that of a kernel pack. Throws Error as
// read_image and compile_program do.
LoadedProgram load_program(const void* image, std::optional<std::size_t> size, int capability,
                           const JitOptions& options);

// The kernel pack's part for an image without PTX. Throws Error(NO_BINARY_FOR_GPU) if there is none, after
// the reason was written into the error log and, once for each image, on stderr.
softgpu::packs::PackedImage require_packed(const void* image, std::optional<std::size_t> size,
                                           const JitOptions& options);

// The kernels of some frames. Throws Error: INVALID_PTX, NO_BINARY_FOR_GPU if a frame is damaged or a kernel
// does not take the parameters that the machine code takes: its sources were others.
LoadedProgram compile_packed(const softgpu::packs::PackedImage& image, const std::vector<std::size_t>& frames,
                             int capability);

// Says once for each kernel that a pack lacks it.
void say_missing_kernel(std::string_view name);

}  // namespace softgpu::driver

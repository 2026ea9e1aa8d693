// Programs from kernel packs: PTX for images that hold machine code alone.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>
#include <variant>

#include "softgpu/driver/program/loader.h"
#include "softgpu/packs/pack_folder.h"

namespace softgpu::driver {

// The sources of an image, or the kernel pack's part for one without PTX. Throws Error as read_image does;
// NO_BINARY_FOR_GPU then says which kernel pack lacks what.
std::variant<ImageSource, softgpu::packs::PackedImage> read_or_find(const void* image,
                                                                    std::optional<std::size_t> size,
                                                                    int capability);

// The kernels of one frame, or of all. Throws Error: INVALID_PTX, NO_BINARY_FOR_GPU if a frame is damaged or
// a kernel does not take the parameters that the machine code takes: its sources were others.
LoadedProgram compile_packed(const softgpu::packs::PackedImage& image, int capability,
                             std::optional<std::size_t> frame = {});

// Throws Error(NO_BINARY_FOR_GPU), after it was told like an image that does not load.
[[noreturn]] void refuse_missing_kernel(std::string_view name);

}  // namespace softgpu::driver

// Programs from kernel packs: PTX for images that hold machine code alone.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <variant>

#include "softgpu/driver/program/loader.h"
#include "softgpu/packs/pack_folder.h"

namespace softgpu::driver {

class Function;

// The sources of an image, or what is known of one without PTX. Throws Error as read_image does.
std::variant<ImageSource, softgpu::packs::PackedImage> read_or_find(const void* image,
                                                                    std::optional<std::size_t> size,
                                                                    int capability);

// The kernels of one frame, or of all. Throws Error: INVALID_PTX, NO_BINARY_FOR_GPU if a frame is damaged or
// a kernel does not take the parameters that the machine code takes: its sources were others.
LoadedProgram compile_packed(const softgpu::packs::PackedImage& image, int capability,
                             std::optional<std::size_t> frame = {});

// Kernels that no pack has PTX for: they can be asked about, but not launched. Nothing if the machine code
// names none of `names`, or is for later devices.
std::optional<LoadedProgram> stand_ins(const softgpu::packs::PackedImage& image,
                                       const std::set<std::string, std::less<>>& names, int capability);

// Throws Error(NO_BINARY_FOR_GPU) if the function is such a kernel, after it was told like an image that does
// not load.
void require_code(const Function& function);

}  // namespace softgpu::driver

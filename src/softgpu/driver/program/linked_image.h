// What this driver's linker gives out when plain PTX cannot say it: several texts, or a register limit.
//
// An ELF file, as NVIDIA's linker gives one: whoever holds the image can tell its length from it, which a
// program that passes it on to cuModuleLoadData has to.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "softgpu/driver/program/image_source.h"

namespace softgpu::driver {

// The bytes of `source` as an ELF file.
std::string pack_linked_image(const ImageSource& source);

// The sources in an ELF file; nothing when it is not one of pack_linked_image (NVIDIA's machine code, say).
// With `size` nothing beyond it is read; without, the file's own fields are believed. Throws
// Error(INVALID_IMAGE) when such a file is malformed.
std::optional<ImageSource> read_linked_image(const void* image, std::optional<std::size_t> size);

}  // namespace softgpu::driver

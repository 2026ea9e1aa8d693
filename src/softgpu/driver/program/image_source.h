// What a program hands over as "image", turned into the code in it that this driver takes.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace softgpu::driver {

struct ImageSource {
  std::vector<std::string> texts;  // PTX; with a driver that takes machine code, cubins as well
  int max_registers = 0;           // per thread, as asked of the linker; 0: not limited
  bool fuses_products = true;      // as asked of the linker

  friend bool operator==(const ImageSource&, const ImageSource&) = default;
};

// Sources of an image: PTX text, a fat binary (with or without its wrapper), the output of this driver's
// linker, or a cubin where the driver takes machine code. The content decides, never a file name. With `size`
// nothing beyond it is read; without, the image's own length fields are believed, as the CUDA interface
// demands. Throws Error: NO_BINARY_FOR_GPU for machine code without usable PTX, INVALID_IMAGE for anything
// else.
ImageSource read_image(const void* image, std::optional<std::size_t> size, int capability);

// The fat binary that `image` is or, with its wrapper, points to. Nothing for any other image.
std::optional<std::span<const std::byte>> fat_binary_of(const void* image, std::optional<std::size_t> size);

// The bytes of a file. Throws Error(FILE_NOT_FOUND).
std::string read_file(const char* path);

// One image that read_image accepts and gives back unchanged; plain PTX where that says everything.
std::string pack_sources(const ImageSource& source);

// PTX of all fat binaries inside host objects and archives (`.o`, `.a`): one text per fat binary.
std::vector<std::string> embedded_ptx(const std::string& bytes, int capability);

}  // namespace softgpu::driver

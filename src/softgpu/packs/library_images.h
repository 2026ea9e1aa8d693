// The fat binaries inside a shared library, and its build id.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace softgpu::packs {

struct LibraryImages {
  std::string build_id;                                  // in hex digits; empty if the linker wrote none
  std::vector<std::span<const std::byte>> fat_binaries;  // in `library`
  // Of what was linked: its parts, which no driver looks at.
  std::vector<std::span<const std::byte>> parts;
};

// Nothing if `library` is no well-formed ELF file of 64 bits. Reads nothing outside of it.
std::optional<LibraryImages> find_images(std::span<const std::byte> library);

}  // namespace softgpu::packs

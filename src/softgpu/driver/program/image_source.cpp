#include "softgpu/driver/program/image_source.h"

#include <cctype>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <span>

#include "image/cubin.h"
#include "image/elf_size.h"
#include "image/fatbin.h"
#include "softgpu/driver/base/error.h"
#include "softgpu/driver/described/identity.h"
#include "softgpu/driver/program/linked_image.h"

namespace softgpu::driver {

using namespace gpupool::image;

namespace {

struct Wrapper {
  std::uint32_t magic, version;
  std::uint64_t data;
  std::uint64_t filename_or_fatbins;
};

bool starts_with(const void* image, std::size_t available, const void* prefix, std::size_t length) {
  return available >= length && std::memcmp(image, prefix, length) == 0;
}

std::uint32_t magic_of(const void* image) {
  std::uint32_t magic;
  std::memcpy(&magic, image, sizeof magic);
  return magic;
}

ImageSource read_fatbin(std::span<const std::byte> fat_binary, int capability) {
  std::optional<std::string> text;
  if (driver_identity.takes_machine_code) text = best_machine_code(fat_binary, capability);
  if (!text) text = best_ptx(fat_binary, capability);
  if (!text) {
    fail(CUDA_ERROR_NO_BINARY_FOR_GPU,
         driver_identity.takes_machine_code
             ? "the image holds neither machine code nor PTX for a device of sm_" + std::to_string(capability)
             : "the image holds no PTX for a device of sm_" + std::to_string(capability) +
                   ", and a software GPU runs no machine code");
  }
  return {{std::move(*text)}};
}

ImageSource read_machine_code(const void* start, std::optional<std::size_t> available, int capability) {
  if (!driver_identity.takes_machine_code)
    fail(CUDA_ERROR_NO_BINARY_FOR_GPU, "a software GPU runs PTX, and this image holds only machine code");
  const auto* const bytes = static_cast<const std::byte*>(start);
  const std::span code(bytes, available ? *available : elf_size(start));
  const auto architecture = cubin_architecture(code);
  require(architecture.has_value(), CUDA_ERROR_INVALID_IMAGE);
  if (!machine_code_fits(*architecture, static_cast<unsigned>(capability))) {
    fail(CUDA_ERROR_NO_BINARY_FOR_GPU, "machine code for sm_" + std::to_string(*architecture) +
                                           " does not run on a device of sm_" + std::to_string(capability));
  }
  return {{std::string(reinterpret_cast<const char*>(code.data()), code.size())}};
}

// PTX begins with comments, blank space or a directive; anything else is not text.
bool looks_like_ptx(const char* text, std::size_t length) {
  for (std::size_t i = 0; i < length && text[i]; ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c == '.' || c == '/') return true;
    if (!std::isspace(c)) return false;
  }
  return false;
}

}  // namespace

ImageSource read_image(const void* image, std::optional<std::size_t> size, int capability) {
  require(image != nullptr);
  const auto* text = static_cast<const char*>(image);
  const std::size_t visible = size.value_or(SIZE_MAX);
  // Text is recognised first: it alone may be shorter than a magic number.
  const std::size_t length = size ? strnlen(text, *size) : std::strlen(text);
  if (looks_like_ptx(text, length)) return {{std::string(text, length)}};
  require(length >= 2 && visible >= 4, CUDA_ERROR_INVALID_IMAGE);
  if (starts_with(image, visible,
                  "\x7f"
                  "ELF",
                  4)) {
    if (auto linked = read_linked_image(image, size)) return std::move(*linked);
    return read_machine_code(image, size, capability);
  }
  const auto fat_binary = fat_binary_of(image, size);
  require(fat_binary.has_value(), CUDA_ERROR_INVALID_IMAGE);
  return read_fatbin(*fat_binary, capability);
}

std::optional<std::span<const std::byte>> fat_binary_of(const void* image, std::optional<std::size_t> size) {
  if (size && *size < sizeof(std::uint32_t)) return std::nullopt;
  // A wrapper holds a pointer, which means something only in the memory of the process that made it; bytes
  // that come from a file or with a length are not that.
  if (magic_of(image) == fatbin_wrapper_magic && !size) {
    Wrapper wrapper;
    std::memcpy(&wrapper, image, sizeof wrapper);
    if (wrapper.data == 0) return std::nullopt;
    image = reinterpret_cast<const void*>(wrapper.data);
  }
  const auto* const bytes = static_cast<const std::byte*>(image);
  if (magic_of(image) != fatbin_magic) return std::nullopt;
  auto length = fatbin_size({bytes, size.value_or(16)});
  if (!length) return std::nullopt;
  return std::span(bytes, size ? std::min(*length, *size) : *length);
}

std::string read_file(const char* path) {
  require(path != nullptr);
  std::ifstream file(path, std::ios::binary);
  require(file.good(), CUDA_ERROR_FILE_NOT_FOUND);
  std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  require(!file.bad(), CUDA_ERROR_FILE_NOT_FOUND);
  return bytes;
}

std::string pack_sources(const ImageSource& source) {
  // Plain PTX is what other tools can read too.
  if (source.texts.size() == 1 && source.max_registers == 0 && source.fuses_products)
    return source.texts.front() + '\0';
  return pack_linked_image(source);
}

std::vector<std::string> embedded_ptx(const std::string& bytes, int capability) {
  std::vector<std::string> found;
  const std::span all(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size());
  const std::string magic(reinterpret_cast<const char*>(&fatbin_magic), sizeof fatbin_magic);
  for (std::size_t at = bytes.find(magic); at != std::string::npos; at = bytes.find(magic, at + 1)) {
    if (auto text = best_ptx(all.subspan(at), capability)) found.push_back(std::move(*text));
  }
  return found;
}

}  // namespace softgpu::driver

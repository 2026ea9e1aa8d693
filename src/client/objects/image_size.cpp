// How long a module image is: the API passes a pointer without a length.
#include <elf.h>

#include <cstring>

#include "client/objects/images.h"
#include "image/elf_size.h"

namespace gpupool::client {
namespace {

constexpr std::uint32_t wrapper_magic = 0x466243b1;
constexpr std::uint32_t fatbin_magic = 0xba55ed50;
constexpr std::size_t max_image = std::size_t{1} << 30;

struct FatbinWrapper {
  std::uint32_t magic;
  std::uint32_t version;
  const void* data;
  const void* filename_or_fatbins;
};

struct FatbinHeader {
  std::uint32_t magic;
  std::uint16_t version;
  std::uint16_t header_size;
  std::uint64_t entries_size;
};

}  // namespace

CUresult image_size(const void*& start, std::size_t& size) {
  if (start == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::uint32_t magic = 0;
  std::memcpy(&magic, start, sizeof(magic));
  if (magic == wrapper_magic) {
    FatbinWrapper wrapper;
    std::memcpy(&wrapper, start, sizeof(wrapper));
    if (wrapper.data == nullptr) return CUDA_ERROR_INVALID_IMAGE;
    start = wrapper.data;
    std::memcpy(&magic, start, sizeof(magic));
  }
  if (magic == fatbin_magic) {
    FatbinHeader header;
    std::memcpy(&header, start, sizeof(header));
    if (header.entries_size > max_image) return CUDA_ERROR_INVALID_IMAGE;
    size = header.header_size + header.entries_size;
  } else if (std::memcmp(start, ELFMAG, SELFMAG) == 0) {
    size = image::elf_size(start);
  } else {
    size = strnlen(static_cast<const char*>(start), max_image);
  }
  return size == 0 || size >= max_image ? CUDA_ERROR_INVALID_IMAGE : CUDA_SUCCESS;
}

}  // namespace gpupool::client

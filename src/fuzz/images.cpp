// Readers of images. What the worker lets pass to a driver, a driver may follow: its sizes must hold.
#include <elf.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "image/cubin.h"
#include "image/elf_size.h"
#include "image/fatbin.h"
#include "worker/image_check.h"

using namespace gpupool;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::vector<std::byte> bytes(size + 1);  // of exactly this size, so that a step outside is seen
  if (size != 0) std::memcpy(bytes.data(), data, size);
  static_cast<void>(worker::link_input_stays_inside(bytes));
  const bool passes = worker::image_stays_inside(bytes);
  if (passes && size >= sizeof(Elf64_Ehdr) && std::memcmp(data, ELFMAG, SELFMAG) == 0 &&
      image::elf_size(bytes.data()) > bytes.size()) {
    std::abort();
  }
  static_cast<void>(image::read_cubin(bytes));
  static_cast<void>(image::cubin_architecture(bytes));
  if (const auto length = image::fatbin_size(bytes); length && passes && *length > bytes.size()) std::abort();
  for (const auto& entry : image::fatbin_entries(bytes)) {
    if (entry.uncompressed_size <= 1 << 20) static_cast<void>(image::entry_content(entry));
  }
  return 0;
}

// Readers of images: the client's, the worker's and the software GPU's. What the worker lets pass to a
// driver, a driver may follow: its sizes must hold.
#include <elf.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "image/cubin.h"
#include "image/elf_size.h"
#include "image/fatbin.h"
#include "softgpu/driver/base/error.h"
#include "softgpu/driver/program/image_source.h"
#include "worker/objects/image_check.h"

using namespace gpupool;

namespace {

constexpr int device_capability = 120;
constexpr std::uint64_t most_content =
    1 << 20;  // of an entry that is decompressed: clearing memory is not the test

bool is_small(std::span<const std::byte> bytes) {
  for (std::size_t at = 0; at + 4 <= bytes.size(); ++at) {
    for (const auto& entry : image::fatbin_entries(bytes.subspan(at))) {
      if (entry.uncompressed_size > most_content) return false;
    }
  }
  return true;
}

// As the driver's modules, libraries and linker read an image.
void read_as_the_driver(std::span<const std::byte> bytes) {
  using namespace softgpu::driver;
  try {
    const ImageSource source = read_image(bytes.data(), bytes.size(), device_capability);
    const std::string packed = pack_sources(source);
    const bool is_plain_text =
        source.texts.size() == 1 && source.max_registers == 0;  // then it may be anything
    if (!(read_image(packed.data(), packed.size(), device_capability) == source) && !is_plain_text)
      std::abort();
  } catch (const Error&) {
    // It said why.
  }
  static_cast<void>(embedded_ptx(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()),
                                 device_capability));
}

}  // namespace

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
    if (entry.uncompressed_size <= most_content) static_cast<void>(image::entry_content(entry));
  }
  if (is_small(bytes)) read_as_the_driver(bytes);
  return 0;
}

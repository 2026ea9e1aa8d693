// Checks program images before the driver reads them.
//
// A driver believes an image: it gets a pointer without a length and follows the sizes and offsets that it
// finds, and in a fat binary's wrapper even an address. Images come from the client, so what they say about
// themselves must hold inside the bytes that the client sent.
#pragma once

#include <cstddef>
#include <span>

namespace gpupool::worker {

/// Whether a driver that follows the image's own sizes and offsets stays inside `image`, whose last byte is
/// the NUL that the worker adds. Known are PTX text, ELF and fat binaries (what is stored compressed inside
/// one is checked for its size only); never a wrapper, which is an address in the client's own memory.
[[nodiscard]] bool image_stays_inside(std::span<const std::byte> image);

/// The same for input of the linker, which also takes archives of these.
[[nodiscard]] bool link_input_stays_inside(std::span<const std::byte> input);

}  // namespace gpupool::worker

// Brings an ELF object with machine code into memory. All of it lies in one piece, so that its parts reach
// each other wherever the system puts it.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace softgpu::jit {

// The address of function `symbol`; the code stays until the process ends. On failure null, with the reason
// in `error`: the bytes are not trusted to be well formed.
[[nodiscard]] void* load_object(std::span<const std::byte> object, const std::string& symbol,
                                std::string& error);

}  // namespace softgpu::jit

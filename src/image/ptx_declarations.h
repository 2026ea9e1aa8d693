// What PTX text declares at module scope.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace gpupool::image {

/// No size is given as more.
inline constexpr std::uint64_t most_ptx_bytes = std::uint64_t{1} << 50;

struct PtxVariable {
  std::string_view name;
  std::uint64_t bytes;
  bool managed;    ///< the driver moves it between host and device
  bool reference;  ///< to a texture, surface or sampler
  bool addresses;  ///< its initial value names variables or functions
};

struct PtxDeclarations {
  std::vector<PtxVariable> variables;       ///< in global and constant memory, of every linkage but .extern
  std::vector<std::string_view> functions;  ///< kernels too, defined or only declared
};

/// The names lie in `text`. Never throws for what `text` says; a statement that it ends within is left out.
[[nodiscard]] PtxDeclarations ptx_declarations(std::string_view text);

}  // namespace gpupool::image

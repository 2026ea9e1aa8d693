// Functions that CUDA's compilers call without defining: printf, assert, the heap, grid synchronisation.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace softgpu {

struct Warp;
struct Instruction;
struct CallSite;

struct Builtin {
  std::string_view name;
  uint32_t arguments;
  bool grid_sync;
  // Runs for the warp's active lanes. May block the group (grid synchronisation) or raise a fault.
  void (*run)(Warp&, const Instruction&, const CallSite&);
};

std::span<const Builtin> builtins();

/// That does a part of an operation of a math library.
inline constexpr std::string_view operation_function = "gpupool_operation";

}  // namespace softgpu

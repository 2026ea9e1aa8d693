// Tier 1's place in the engine: a kernel may have a compiled body. A launch asks once, before its first
// block, and all its blocks run in the tier that the answer names.
#pragma once

#include <cstdint>
#include <memory>

#include "softgpu/exec/program/engine.h"

namespace softgpu {

struct Block;
enum class BlockStatus : uint8_t;

// What a compiled kernel keeps with a block that it runs.
struct CompiledBlockState {
  virtual ~CompiledBlockState() = default;
};

class CompiledKernel {
 public:
  virtual ~CompiledKernel() = default;
  // The rest of Block::start: the warps, about to begin.
  virtual void start(Block& block) const = 0;
  // As Block::run. Faults leave by longjmp, so that nothing in there may own anything.
  virtual BlockStatus run(Block& block, uint64_t slice_instructions) const = 0;
  // How often a warp has come to code that was left out, because nobody had reached it before.
  [[nodiscard]] virtual uint64_t times_in_left_out() const = 0;
};

class KernelCompiler {
 public:
  virtual ~KernelCompiler() = default;
  // The kernel's compiled body for this shape of block, null while there is none. Does not wait for a
  // compilation.
  virtual std::shared_ptr<const CompiledKernel> find(const Launch& launch) = 0;
  // After a launch: how many warp instructions it executed.
  virtual void launched(const Launch& launch, uint64_t warp_instructions) = 0;
};

// The process's compiler; null when tier 1 is off or no LLVM was found.
KernelCompiler* kernel_compiler();

}  // namespace softgpu

// LLVM, found at run time through its C interface: text of its intermediate language in, machine code out.
// Nothing of LLVM is needed to build; without it there is no tier 1.
// GPUPOOL_SOFTGPU_JIT_EFFORT=quick: a quarter of the time for the code, which is slower. For tests.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace softgpu::jit {

class Llvm {
 public:
  // The process's one; null when none is found, and `why` then says what was tried.
  static const Llvm* get(std::string& why);

  // Names the library, its version and the processor: what decides about the code it makes.
  [[nodiscard]] const std::string& identity() const { return identity_; }
  // An ELF object. On failure empty, with LLVM's words in `error`.
  [[nodiscard]] std::optional<std::vector<std::byte>> compile(const std::string& text,
                                                              std::string& error) const;

 private:
  struct Interface;
  Llvm() = default;
  bool open(std::string& why);
  void leave_out_instructions();
  const Interface* interface_ = nullptr;
  std::string identity_, triple_, processor_, features_;
  void* target_ = nullptr;
  bool quick_ = false;
};

}  // namespace softgpu::jit

// The options of module loading and linking that mean something here: where to write logs.
#pragma once

#include <string>

#include "softgpu/driver/base/cuda_api.h"

namespace softgpu::driver {

class JitOptions {
 public:
  JitOptions() = default;
  // Keeps pointers to `values`: the log sizes are written back into it.
  // Throws Error(INVALID_VALUE) for null arrays with a count, or an option number that does not exist.
  JitOptions(unsigned count, const CUjit_option* options, void** values);

  // Puts text into the caller's log buffers, NUL-terminated and cut to their size.
  void write_error_log(const std::string& text) const { write(error_, text); }
  void write_info_log(const std::string& text) const { write(info_, text); }

  // CU_JIT_MAX_REGISTERS; 0 if not given.
  int max_registers() const { return max_registers_; }
  // Not with CU_JIT_FMA 0.
  bool fuses_products() const { return fuses_products_; }

 private:
  struct Log {
    char* buffer = nullptr;
    std::size_t size = 0;
    void** size_slot = nullptr;  // gets the number of bytes written
  };
  static void write(const Log& log, const std::string& text);

  Log error_, info_;
  int max_registers_ = 0;
  bool fuses_products_ = true;
};

}  // namespace softgpu::driver

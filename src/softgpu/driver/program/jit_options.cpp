#include "softgpu/driver/program/jit_options.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "softgpu/driver/base/error.h"

namespace softgpu::driver {

JitOptions::JitOptions(unsigned count, const CUjit_option* options, void** values) {
  require(count == 0 || (options && values));
  for (unsigned i = 0; i < count; ++i) {
    switch (options[i]) {
      case CU_JIT_ERROR_LOG_BUFFER:
        error_.buffer = static_cast<char*>(values[i]);
        break;
      case CU_JIT_INFO_LOG_BUFFER:
        info_.buffer = static_cast<char*>(values[i]);
        break;
      // The value is an unsigned int that travels in a pointer-sized slot; its upper half may be garbage.
      case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
        error_.size = static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(values[i]));
        error_.size_slot = &values[i];
        break;
      case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
        info_.size = static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(values[i]));
        info_.size_slot = &values[i];
        break;
      case CU_JIT_MAX_REGISTERS:
        max_registers_ =
            static_cast<int>(static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(values[i])) & 0xffffU);
        break;
      case CU_JIT_FMA:
        fuses_products_ = static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(values[i])) != 0;
        break;
      case CU_JIT_WALL_TIME:
        values[i] = nullptr;
        break;  // 0.0 ms
      default:
        require(static_cast<int>(options[i]) >= 0 && options[i] < CU_JIT_NUM_OPTIONS);
    }
  }
}

void JitOptions::write(const Log& log, const std::string& text) {
  std::size_t length = 0;
  if (log.buffer && log.size > 0) {
    length = std::min(text.size(), log.size - 1);
    std::memcpy(log.buffer, text.data(), length);
    log.buffer[length] = '\0';
  }
  if (log.size_slot) *log.size_slot = reinterpret_cast<void*>(static_cast<std::uintptr_t>(length));
}

}  // namespace softgpu::driver

// Options of the just-in-time compiler, rebuilt here from their wire form: {i32 option, u8 is_buffer, u64
// value}*.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "wire/bytes.h"

namespace gpupool::worker {

/// Owns the log buffers, which the driver may write to for as long as the module or link state is being made.
/// No address and no size that the driver writes by comes from the wire: a log's `value` is the size that the
/// client has room for, and buffer and size are made here; plain options carry 32-bit numbers.
class JitOptions {
 public:
  static constexpr std::uint32_t max_options = 64;
  static constexpr std::uint64_t max_log = 1 << 20;

  /// `outputs`: whether logs and the time taken may be asked for (not when input is added to a linker).
  explicit JitOptions(bool outputs = true) : outputs_(outputs) {}

  /// False when the bytes are malformed or hold an option that is not known to be harmless.
  [[nodiscard]] bool decode(std::span<const std::byte> bytes) {
    wire::Reader in(bytes);
    for (std::uint32_t n = 0; !in.rest().empty(); ++n) {
      const auto number = in.get<std::int32_t>();
      if (number < 0 || number >= CU_JIT_NUM_OPTIONS) return false;
      const auto option = static_cast<CUjit_option>(number);
      const bool is_buffer = in.get<std::uint8_t>() != 0;
      const auto value = in.get<std::uint64_t>();
      if (!in.ok() || n >= max_options || is_buffer != is_log(option)) return false;
      if (is_buffer) {
        if (!add_log(option, value)) return false;
      } else if (option == CU_JIT_WALL_TIME) {
        if (!outputs_) return false;
        add(option, nullptr);  // the driver fills it in
      } else if (is_number(option)) {
        add(option, reinterpret_cast<void*>(static_cast<std::uintptr_t>(static_cast<std::uint32_t>(value))));
      } else if (!is_log_size(option)) {
        return false;
      }
    }
    return true;
  }

  [[nodiscard]] unsigned count() const { return static_cast<unsigned>(options_.size()); }
  [[nodiscard]] CUjit_option* options() { return options_.empty() ? nullptr : options_.data(); }
  [[nodiscard]] void** values() { return values_.empty() ? nullptr : values_.data(); }

  /// The text in every log buffer, in the order of the options: u32 length and bytes each.
  void encode_logs(wire::Buffer& out) const {
    wire::Writer writer(out);
    for (const auto& log : logs_) writer.put_text({log->data(), strnlen(log->data(), log->size() - 1)});
  }

 private:
  static bool is_log(CUjit_option option) {
    return option == CU_JIT_INFO_LOG_BUFFER || option == CU_JIT_ERROR_LOG_BUFFER;
  }
  static bool is_log_size(CUjit_option option) {
    return option == CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES || option == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES;
  }
  /// Options whose value the driver takes as a number. The value of another option may be an address.
  static bool is_number(CUjit_option option) {
    switch (option) {
      case CU_JIT_MAX_REGISTERS:
      case CU_JIT_THREADS_PER_BLOCK:
      case CU_JIT_OPTIMIZATION_LEVEL:
      case CU_JIT_TARGET_FROM_CUCONTEXT:
      case CU_JIT_TARGET:
      case CU_JIT_FALLBACK_STRATEGY:
      case CU_JIT_GENERATE_DEBUG_INFO:
      case CU_JIT_LOG_VERBOSE:
      case CU_JIT_GENERATE_LINE_INFO:
      case CU_JIT_CACHE_MODE:
      case CU_JIT_LTO:
      case CU_JIT_FTZ:
      case CU_JIT_PREC_DIV:
      case CU_JIT_PREC_SQRT:
      case CU_JIT_FMA:
      case CU_JIT_OPTIMIZE_UNUSED_DEVICE_VARIABLES:
      case CU_JIT_POSITION_INDEPENDENT_CODE:
      case CU_JIT_MIN_CTA_PER_SM:
      case CU_JIT_MAX_THREADS_PER_BLOCK:
      case CU_JIT_OVERRIDE_DIRECTIVE_VALUES:
      case CU_JIT_SPLIT_COMPILE:
        return true;
      default:
        return false;
    }
  }

  void add(CUjit_option option, void* value) {
    options_.push_back(option);
    values_.push_back(value);
  }

  bool add_log(CUjit_option option, std::uint64_t room) {
    for (const CUjit_option other : options_) {
      if (other == option) return false;
    }
    if (!outputs_ || room > max_log) return false;
    logs_.push_back(std::make_unique<std::vector<char>>(room + 1));
    add(option, logs_.back()->data());
    add(option == CU_JIT_INFO_LOG_BUFFER ? CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES
                                         : CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
        reinterpret_cast<void*>(static_cast<std::uintptr_t>(room)));
    return true;
  }

  bool outputs_;
  std::vector<CUjit_option> options_;
  std::vector<void*> values_;
  std::vector<std::unique_ptr<std::vector<char>>> logs_;
};

}  // namespace gpupool::worker

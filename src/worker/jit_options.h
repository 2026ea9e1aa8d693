// Options of the just-in-time compiler, rebuilt here from their wire form: {i32 option, u8 is_buffer, u64
// value}*.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "wire/bytes.h"

namespace gpupool::worker {

/// Owns the log buffers, which the driver may write to for as long as the module or link state is being made.
class JitOptions {
 public:
  static constexpr std::uint32_t max_options = 64;
  static constexpr std::uint64_t max_log = 1 << 20;

  /// False when the bytes are malformed.
  [[nodiscard]] bool decode(std::span<const std::byte> bytes) {
    wire::Reader in(bytes);
    while (!in.rest().empty()) {
      const auto option = in.get<std::int32_t>();
      const bool is_buffer = in.get<std::uint8_t>() != 0;
      const auto value = in.get<std::uint64_t>();
      if (!in.ok() || options_.size() >= max_options || (is_buffer && value > max_log)) return false;
      options_.push_back(static_cast<CUjit_option>(option));
      if (is_buffer) {
        logs_.push_back(std::make_unique<std::vector<char>>(value + 1));
        values_.push_back(logs_.back()->data());
      } else {
        values_.push_back(reinterpret_cast<void*>(value));
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
  std::vector<CUjit_option> options_;
  std::vector<void*> values_;
  std::vector<std::unique_ptr<std::vector<char>>> logs_;
};

}  // namespace gpupool::worker

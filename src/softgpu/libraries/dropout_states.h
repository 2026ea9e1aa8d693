// Random numbers of dropout by the states that lie in device memory.
#pragma once

#include <atomic>
#include <cstdint>

#include "libraries/operations/dropout.h"
#include "libraries/operations/philox.h"
#include "softgpu/libraries/memory.h"

namespace softgpu::libraries {

class DropoutSource {
 public:
  /// Address 0 is that of no states: nothing is left out then.
  DropoutSource(std::uint64_t address, double rate, const Memory& memory)
      : states_(address == 0
                    ? nullptr
                    : memory.at<gpupool::operations::DropoutStates>(address, 1, "the states of dropout")),
        left_out_(static_cast<std::uint64_t>(rate * 0x1p32)) {
    if (address % alignof(gpupool::operations::DropoutStates) != 0)
      throw Failure(softgpu::Fault::misaligned_address, "the states of dropout: no multiple of 8");
    if (states_ == nullptr) left_out_ = 0;
  }

  /// Whether element `index` of the operation is kept.
  [[nodiscard]] bool keeps(std::uint64_t index) {
    if (states_ == nullptr) return true;
    const std::uint64_t four = states_->position / together + index / together;
    if (four != four_) {
      four_ = four;
      block_ = gpupool::operations::philox::block(states_->seed, four % sequences, four / sequences);
    }
    return block_.words[index % together] >= left_out_;
  }

  /// Each part of an operation calls it in its end. The last one moves the states on behind the operation's
  /// elements: all parts have read them before.
  void end_part(std::uint64_t parts, std::uint64_t elements) {
    if (states_ == nullptr) return;
    const std::atomic_ref<std::uint64_t> done(states_->done);
    if (done.fetch_add(1, std::memory_order_acq_rel) + 1 != parts) return;
    states_->position += (elements + together - 1) / together * together;
    done.store(0, std::memory_order_release);
  }

 private:
  static constexpr std::uint64_t together = 4;  // numbers of the sequence come in fours
  static constexpr std::uint64_t sequences = gpupool::operations::philox::sequences;

  gpupool::operations::DropoutStates* states_;
  std::uint64_t left_out_;
  std::uint64_t four_ = ~std::uint64_t{0};
  gpupool::operations::philox::Block block_{};
};

}  // namespace softgpu::libraries

// Checks of accesses to shared memory.
#include <algorithm>

#include "softgpu/jit/emit/emitter.h"
#include "softgpu/jit/emit/opcode_name.h"

namespace softgpu::jit {

// Leaves to the interpreter unless a shared access whose lanes' addresses are known up to a scalar is
// allowed. One check for all accesses of this basic block that go by the same register.
void Emitter::require_shared(const LoweredInstruction& in, const Access& access) {
  const Value& address = access.address;
  int64_t least = 0, most = 0;
  bool multiple = true;
  if (address.offsets) {
    least = *std::min_element(address.offsets->begin(), address.offsets->end());
    most = *std::max_element(address.offsets->begin(), address.offsets->end());
    for (const int64_t offset : *address.offsets) multiple &= offset % int64_t{access.bytes} == 0;
  }
  if (address.literal) {
    const auto at = static_cast<int64_t>(*address.literal);
    if (multiple && at + least >= 0 && at % access.bytes == 0 &&
        at + most + access.bytes <= static_cast<int64_t>(kernel_.static_shared_bytes))
      return;
  }
  auto base_of = [](const LoweredInstruction& other) {
    return other.opcode.starts_with("@load") ? other.in.op[1] : other.in.op[0];
  };
  auto bytes_of = [](const LoweredInstruction& other) -> uint32_t {
    const OpcodeName name(other.opcode);
    std::string_view type = name.part(1);
    if (other.opcode.starts_with("@load")) type.remove_prefix(1);
    const auto bytes = static_cast<uint32_t>(std::stoul(std::string(type)));
    return other.opcode.starts_with("@load") ? bytes / 8 : bytes;
  };
  const uint32_t base = base_of(in);
  const int64_t mine = in.in.immediate;
  const bool groups = in.opcode.starts_with("@load") || in.opcode.starts_with("@store");
  for (const Checked& known : checked_) {
    if (groups && known.base == base && mine >= known.begin && mine + access.bytes <= known.end &&
        access.bytes <= known.alignment && (mine - known.begin) % access.bytes == 0)
      return;
  }
  Checked made{base, mine, mine + access.bytes, access.bytes};
  bool redefined = Ref::from_bits(base).is_constant() || !groups;
  for (uint32_t i = current_ + 1; i < graph_.blocks[current_block_].end && !redefined; ++i) {
    const LoweredInstruction& other = lowered_.code[i];
    const bool access_too = other.opcode.starts_with("@load.u") || other.opcode.starts_with("@load.s") ||
                            other.opcode.starts_with("@store");
    if (access_too && !other.guarded && !other.ordered && base_of(other) == base &&
        other.in.aux == in.in.aux && !other.opcode.ends_with(".q")) {
      const uint32_t bytes = bytes_of(other);
      const int64_t begin = other.in.immediate;
      if (bytes == access.bytes && (begin - mine) % bytes == 0) {
        made.begin = std::min(made.begin, begin);
        made.end = std::max(made.end, begin + bytes);
      }
    }
    for (uint32_t k = 0; k < other.defs; ++k) redefined |= other.in.op[k] == base;
    for (uint32_t k = 0; k < other.list_defs; ++k) redefined |= other.list[k] == base;
  }
  // [address - mine + begin + least, ... end + most): one comparison, and the alignment.
  const int64_t from = made.begin - mine + least, span = made.end - made.begin + most - least;
  const std::string low =
      from == 0 ? address.text : set("add i64 " + address.text + ", " + std::to_string(from));
  require(within_window(true, low, static_cast<uint64_t>(span), access.bytes));
  if (multiple) checked_.push_back(made);
}

}  // namespace softgpu::jit

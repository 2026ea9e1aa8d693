// Compilers take the address of a kernel's parameter into a register and read through it, at offsets that
// they know: nvcc 13 does so for every parameter that is a structure. Parameters do not change during a
// launch, so such a read is a copy of a constant. As an access to memory it would lie outside the device's
// arena, where each lane's address is looked up by itself.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "softgpu/exec/lower/lowering.h"
#include "softgpu/exec/program/memory_operand.h"

namespace softgpu {

class KnownParameters {
 public:
  using Intern = std::function<Ref(const Constant&)>;

  // `bytes` of parameters; `intern` gives a constant its number.
  KnownParameters(LoweredFunction& lowered, uint64_t bytes, Intern intern)
      : lowered_(lowered),
        bytes_(bytes),
        intern_(std::move(intern)),
        definitions_(lowered.registers.size(), 0),
        offsets_(lowered.registers.size()) {}

  // The copies keep the place and the guard of the read.
  void replace_reads() {
    find_addresses();
    std::vector<LoweredInstruction> made;
    made.reserve(lowered_.code.size());
    std::vector<uint32_t> new_position(lowered_.code.size() + 1);
    for (size_t i = 0; i < lowered_.code.size(); ++i) {
      new_position[i] = static_cast<uint32_t>(made.size());
      if (!replace(lowered_.code[i], made)) made.push_back(std::move(lowered_.code[i]));
    }
    new_position.back() = static_cast<uint32_t>(made.size());
    for (uint32_t& target : lowered_.label_target) target = new_position[target];
    lowered_.code = std::move(made);
  }

 private:
  // A register that is written once, always, is what is written there, wherever it is read: the address is
  // the same for all threads and all times.
  void find_addresses() {
    for (const LoweredInstruction& in : lowered_.code) {
      for (uint32_t k = 0; k < in.defs; ++k) ++definitions_[Ref::from_bits(in.in.op[k]).index()];
      for (uint32_t k = 0; k < in.list_defs; ++k) ++definitions_[Ref::from_bits(in.list[k]).index()];
    }
    for (const LoweredInstruction& in : lowered_.code) {
      if (in.guarded || in.defs != 1) continue;
      const uint32_t to = Ref::from_bits(in.in.op[0]).index();
      if (definitions_[to] != 1 || lowered_.registers[to] != 'x') continue;
      if (in.opcode == "@parameter_address") {
        offsets_[to] = in.in.immediate;
      } else if (in.is_copy) {
        offsets_[to] = offset_of(in.in.op[1]);
      } else if (in.opcode == "add.s64" || in.opcode == "add.u64") {
        const auto base = offset_of(in.in.op[1]);
        const Ref more = Ref::from_bits(in.in.op[2]);
        if (!base || !more.is_constant()) continue;
        const Constant& constant = lowered_.constants[more.index()];
        if (constant.kind == Constant::Kind::immediate)
          offsets_[to] = static_cast<int64_t>(static_cast<uint64_t>(*base) + constant.value);
      }
    }
  }
  [[nodiscard]] std::optional<int64_t> offset_of(uint32_t bits) const {
    const Ref ref = Ref::from_bits(bits);
    return ref.is_constant() ? std::nullopt : offsets_[ref.index()];
  }

  bool replace(const LoweredInstruction& in, std::vector<LoweredInstruction>& into) const {
    const bool one = in.opcode.starts_with("@load."), several = in.opcode.starts_with("@vload.");
    if ((!one && !several) || in.ordered) return false;
    const uint32_t how = in.in.aux & ((1u << memory_operand::address_bits) - 1);
    const auto base = offset_of(in.in.op[one ? 1 : 0]);
    if (!base || how != memory_operand::flat) return false;
    // "@load.u32.w": what is read, and the register's size.
    const size_t type = in.opcode.find('.') + 1;
    const char size = in.opcode.back();
    const char kind = in.opcode[type];
    if (size == 'q' || (kind != 'u' && kind != 's')) return false;
    const auto bytes = static_cast<uint32_t>(std::stoul(std::string(in.opcode.substr(type + 1)))) / 8;
    const uint32_t count = several ? in.list_defs : 1;
    const auto from = static_cast<uint64_t>(*base) + static_cast<uint64_t>(in.in.immediate);
    const uint64_t all = uint64_t{bytes} * count;
    // What is a fault stays one.
    if (from > bytes_ || bytes_ - from < all || from % all != 0 || lane_bytes(size) < bytes) return false;
    const std::string_view step = size == 'h' ? "mov.b16" : size == 'w' ? "mov.b32" : "mov.b64";
    for (uint32_t k = 0; k < count; ++k) {
      Constant value;
      value.kind = Constant::Kind::parameter;
      value.lane_bytes = static_cast<uint8_t>(lane_bytes(size));
      value.parameter_bytes = static_cast<uint8_t>(bytes);
      value.sign_extends = kind == 's';
      value.value = from + uint64_t{k} * bytes;
      LoweredInstruction& copy = into.emplace_back();
      const Opcode& opcode = *opcode_table().find(step);
      copy.in.handler = opcode.handler;
      copy.in.aux = opcode.aux;
      copy.in.line = in.in.line;
      copy.in.source = in.in.source;
      copy.in.op[0] = several ? in.list[k] : in.in.op[0];
      copy.in.op[1] = intern_(value).bits();
      copy.defs = copy.uses = 1;
      copy.opcode = opcode.name;
      copy.is_copy = true;
      copy.guarded = in.guarded;
      copy.guard = in.guard;
      copy.guard_negated = in.guard_negated;
    }
    return true;
  }

  LoweredFunction& lowered_;
  const uint64_t bytes_;
  const Intern intern_;
  std::vector<uint32_t> definitions_;            // of each register
  std::vector<std::optional<int64_t>> offsets_;  // of each register that is the address of a parameter
};

}  // namespace softgpu

// Video instructions. Operands may name parts of a register: %r1.h0, %r1.b3210.
#include <algorithm>

#include "softgpu/exec/lower/lowering.h"
#include "softgpu/exec/program/video_form.h"
#include "softgpu/ptx/error.h"

namespace softgpu {

using ptx::Operand;

namespace {

std::optional<video::Operation> operation_named(std::string_view name) {
  static constexpr std::pair<std::string_view, video::Operation> operation_names[] = {
      {"vadd", video::add},         {"vsub", video::subtract}, {"vabsdiff", video::absolute_difference},
      {"vmin", video::minimum},     {"vmax", video::maximum},  {"vshl", video::shift_left},
      {"vshr", video::shift_right}, {"vset", video::set},      {"vmad", video::multiply_add}};
  for (const auto& [known, operation] : operation_names) {
    if (name == known) return operation;
  }
  return std::nullopt;
}

}  // namespace

// Which parts `selector` ("h10", "b7531") names, three bits each, the first in the low bits.
static std::optional<uint64_t> parts_named(std::string_view selector, uint32_t parts) {
  if (selector.size() != parts + 1 || selector[0] != (parts == 2 ? 'h' : 'b')) return std::nullopt;
  uint64_t choices = 0;
  for (uint32_t k = 0; k < parts; ++k) {
    const auto choice = static_cast<uint64_t>(selector[parts - k] - '0');
    if (choice >= 2 * parts) return std::nullopt;
    choices |= choice << (3 * k);
  }
  return choices;
}

void Lowering::lower_video(const ptx::Instruction& instruction, const Suffixes& suffixes) {
  std::string_view base = instruction.opcode.substr(0, instruction.opcode.find('.'));
  video::Form form;
  if (base.ends_with('2') || base.ends_with('4')) {
    form.parts = static_cast<uint64_t>(base.back() - '0');
    base.remove_suffix(1);
  }
  const auto operation = operation_named(base);
  if (!operation || (form.parts > 1 && *operation > video::maximum && *operation != video::set))
    fail_opcode();
  form.operation = *operation;
  std::vector<bool> is_signed;
  bool compares = false;
  for (const std::string_view s : suffixes) {
    static constexpr std::string_view comparison_names[] = {"eq", "ne", "lt", "le", "gt", "ge"};
    const auto* const comparison = std::find(std::begin(comparison_names), std::end(comparison_names), s);
    if (s == "u32" || s == "s32")
      is_signed.push_back(s == "s32");
    else if (s == "sat")
      form.saturates = 1;
    else if (s == "add")
      form.second = video::then_add;
    else if (s == "min" && form.parts == 1)
      form.second = video::then_minimum;
    else if (s == "max" && form.parts == 1)
      form.second = video::then_maximum;
    else if (s == "clamp" || s == "wrap")
      form.wraps = s == "wrap";
    else if (s == "shr7" || s == "shr15")
      form.shift = s == "shr7" ? 7 : 15;
    else if (s == "po")
      form.plus_one = 1;
    else if (comparison != std::end(comparison_names)) {
      form.comparison = static_cast<uint64_t>(comparison - std::begin(comparison_names));
      compares = true;
    } else
      fail_opcode();
  }
  const bool sets = form.operation == video::set;
  if (sets != compares || is_signed.size() != (sets ? 2u : 3u)) fail_opcode();
  form.result_signed = !sets && is_signed[0];
  form.a_signed = is_signed[sets ? 0 : 1];
  form.b_signed = is_signed[sets ? 1 : 2];

  const std::vector<Operand>& operands = instruction.operands;
  if (operands.size() < 3 || operands.size() > 4) fail("wrong number of operands");
  auto plain = [](Operand operand) {
    operand.selector = {};
    operand.negated = false;
    return operand;
  };
  if (form.parts > 1) {
    const auto parts = static_cast<uint32_t>(form.parts);
    if (operands.size() != 4) fail("four operands expected");
    const auto a = parts_named(
        operands[1].selector.empty() ? (parts == 2 ? "h10" : "b3210") : operands[1].selector, parts);
    const auto b = parts_named(
        operands[2].selector.empty() ? (parts == 2 ? "h32" : "b7654") : operands[2].selector, parts);
    if (!a || !b) fail("parts of an operand do not exist");
    form.a_parts = *a;
    form.b_parts = *b;
    form.mask = (1u << parts) - 1;
    if (const std::string_view written = operands[0].selector; !written.empty()) {
      form.mask = 0;
      for (const char c : written.substr(1)) form.mask |= uint64_t{1} << ((c - '0') & 3);
    }
  } else {
    auto select = [&](const Operand& operand, auto set) {
      if (operand.selector.empty()) return;
      if (operand.selector.size() != 2) fail("one part of an operand expected");
      set(operand.selector[0] == 'b' ? 1u : 2u, static_cast<uint32_t>(operand.selector[1] - '0') & 3);
    };
    select(operands[0], [&](uint32_t bytes, uint32_t index) { form.d_bytes = bytes, form.d_index = index; });
    select(operands[1], [&](uint32_t bytes, uint32_t index) { form.a_bytes = bytes, form.a_index = index; });
    select(operands[2], [&](uint32_t bytes, uint32_t index) { form.b_bytes = bytes, form.b_index = index; });
    const bool uses_c =
        form.second != video::none || form.d_bytes != 0 || form.operation == video::multiply_add;
    if (uses_c != (operands.size() == 4)) fail("wrong number of operands");
    form.negate_product = operands[1].negated != operands[2].negated;
    form.negate_c = operands.size() == 4 && operands[3].negated;
  }
  const Ref a = source(plain(operands[1]), 'w'), b = source(plain(operands[2]), 'w');
  const Ref c = operands.size() == 4 ? source(plain(operands[3]), 'w') : immediate(0, 'w');
  emit("@video", {destination(plain(operands[0]), 'w')}, {a, b, c}).in.immediate = video::pack(form);
}

}  // namespace softgpu

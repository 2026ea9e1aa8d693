#include "softgpu/ptx/fuse_products.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

namespace softgpu::ptx {
namespace {

constexpr uint32_t none = ~uint32_t{0};

struct Form {  // the names that belong together
  std::string_view mul, add, sub, add_saturated, sub_saturated, fma, fma_saturated, neg;
};
constexpr std::array forms = {
    Form{"mul.f32", "add.f32", "sub.f32", "add.sat.f32", "sub.sat.f32", "fma.rn.f32", "fma.rn.sat.f32",
         "neg.f32"},
    Form{"mul.ftz.f32", "add.ftz.f32", "sub.ftz.f32", "add.ftz.sat.f32", "sub.ftz.sat.f32", "fma.rn.ftz.f32",
         "fma.rn.ftz.sat.f32", "neg.f32"},
    Form{"mul.f64", "add.f64", "sub.f64", {}, {}, "fma.rn.f64", {}, "neg.f64"},
    Form{"mul.f16", "add.f16", "sub.f16", "add.sat.f16", "sub.sat.f16", "fma.rn.f16", "fma.rn.sat.f16",
         "neg.f16"},
    Form{"mul.ftz.f16", "add.ftz.f16", "sub.ftz.f16", "add.ftz.sat.f16", "sub.ftz.sat.f16", "fma.rn.ftz.f16",
         "fma.rn.ftz.sat.f16", "neg.f16"},
    Form{"mul.f16x2", "add.f16x2", "sub.f16x2", "add.sat.f16x2", "sub.sat.f16x2", "fma.rn.f16x2",
         "fma.rn.sat.f16x2", "neg.f16x2"},
    Form{"mul.ftz.f16x2", "add.ftz.f16x2", "sub.ftz.f16x2", "add.ftz.sat.f16x2", "sub.ftz.sat.f16x2",
         "fma.rn.ftz.f16x2", "fma.rn.ftz.sat.f16x2", "neg.f16x2"},
    Form{"mul.bf16", "add.bf16", "sub.bf16", {}, {}, "fma.rn.bf16", {}, "neg.bf16"},
    Form{"mul.bf16x2", "add.bf16x2", "sub.bf16x2", {}, {}, "fma.rn.bf16x2", {}, "neg.bf16x2"},
};

const Form* form_of_product(const Instruction& in) {
  if (!in.opcode.starts_with("mul.")) return nullptr;
  const auto* const found =
      std::find_if(forms.begin(), forms.end(), [&](const Form& form) { return form.mul == in.opcode; });
  return found == forms.end() ? nullptr : found;
}

template <class F>
void each_register(const Operand& operand, F use) {
  if (operand.kind == OperandKind::reg) use(operand.reg);
  for (const Operand& element : operand.elements) each_register(element, use);
}

bool is_plain_register(const Operand& operand) {
  return operand.kind == OperandKind::reg && !operand.negated && operand.selector.empty();
}
bool is_constant(const Operand& operand) {
  return operand.kind == OperandKind::real32 || operand.kind == OperandKind::real64;
}
// Three operands, of which the first is a register and the others are values.
bool is_plain(const Instruction& in) {
  return in.guard < 0 && in.operands.size() == 3 && is_plain_register(in.operands[0]) &&
         std::all_of(
             in.operands.begin() + 1, in.operands.end(),
             [](const Operand& operand) { return is_plain_register(operand) || is_constant(operand); });
}

class Fuser {
 public:
  explicit Fuser(Function& function)
      : function_(function),
        mentions_(function.registers.size()),
        written_(function.registers.size(), none) {}

  void run() {
    auto& code = function_.instructions;
    if (std::none_of(code.begin(), code.end(), [](const Instruction& in) { return form_of_product(in); }))
      return;
    for (const Instruction& in : code) {
      for (const Operand& operand : in.operands) each_register(operand, [&](uint32_t r) { ++mentions_[r]; });
    }
    std::vector<uint32_t> labels;
    for (const Label& label : function_.labels) labels.push_back(label.instruction);
    std::sort(labels.begin(), labels.end());
    auto label = labels.begin();
    product_in_.assign(function_.registers.size(), none);
    for (uint32_t i = 0; i < code.size(); ++i) {
      for (; label != labels.end() && *label <= i; ++label) begin_ = i;
      const Instruction& in = code[i];
      fuse(i);
      if (form_of_product(in) != nullptr && is_plain(in)) product_in_[in.operands[0].reg] = i;
      // Whatever an instruction writes stands in its first operand; what it only reads there does no harm.
      if (!in.operands.empty()) each_register(in.operands[0], [&](uint32_t r) { written_[r] = i; });
      if (ends_stretch(in)) begin_ = i + 1;
    }
    rebuild();
  }

 private:
  struct Fused {
    uint32_t product, sum;
    uint32_t which;  // operand of the sum
  };

  static bool ends_stretch(const Instruction& in) {
    const std::string_view name = in.opcode.substr(0, in.opcode.find('.'));
    return name == "bra" || name == "brx" || name == "call" || name == "ret" || name == "exit" ||
           name == "trap";
  }

  // The product that the sum's operand is, if it is one that may be fused.
  uint32_t product_for(const Operand& operand, std::string_view opcode) const {
    if (operand.kind != OperandKind::reg || mentions_[operand.reg] != 2) return none;
    const uint32_t at = product_in_[operand.reg];
    if (at == none || at < begin_) return none;
    const Instruction& product = function_.instructions[at];
    const Form& form = *form_of_product(product);
    if (opcode != form.add && opcode != form.sub && opcode != form.add_saturated &&
        opcode != form.sub_saturated)
      return none;
    for (size_t k = 1; k < 3; ++k) {
      const Operand& factor = product.operands[k];
      if (factor.kind == OperandKind::reg && written_[factor.reg] != none && written_[factor.reg] >= at)
        return none;
    }
    return at;
  }

  void fuse(uint32_t i) {
    const Instruction& in = function_.instructions[i];
    if (!in.opcode.starts_with("add.") && !in.opcode.starts_with("sub.")) return;
    if (!is_plain(in)) return;
    for (uint32_t which = 1; which < 3; ++which) {
      const uint32_t product = product_for(in.operands[which], in.opcode);
      if (product == none) continue;
      fused_.push_back({product, i, which});
      return;
    }
  }

  // `neg` of a value into the product's register, which nobody else uses; of a constant its other sign.
  static std::optional<Instruction> negate(Operand& value, const Instruction& product, const Form& form) {
    if (is_constant(value)) {
      value.bits ^= uint64_t{1} << (value.kind == OperandKind::real32 ? 31 : 63);
      return std::nullopt;
    }
    Instruction made;
    made.opcode = form.neg;
    made.line = product.line;
    made.operands = {product.operands[0], value};
    value = product.operands[0];
    return made;
  }

  void rebuild() {
    if (fused_.empty()) return;
    auto& code = function_.instructions;
    std::vector<bool> gone(code.size());
    for (const Fused& one : fused_) gone[one.product] = true;
    std::vector<Instruction> made;
    made.reserve(code.size());
    std::vector<uint32_t> place(code.size() + 1);
    auto next = fused_.begin();
    for (uint32_t i = 0; i < code.size(); ++i) {
      place[i] = static_cast<uint32_t>(made.size());
      if (gone[i]) continue;
      if (next == fused_.end() || next->sum != i) {
        made.push_back(std::move(code[i]));
        continue;
      }
      const Instruction& product = code[next->product];
      const Form& form = *form_of_product(product);
      Instruction sum = std::move(code[i]);
      const bool saturated = sum.opcode == form.add_saturated || sum.opcode == form.sub_saturated;
      const bool subtracts = sum.opcode == form.sub || sum.opcode == form.sub_saturated;
      Operand a = product.operands[1], b = product.operands[2], c = sum.operands[3 - next->which];
      if (subtracts) {
        // a * b - c, or c - a * b
        Operand& changed = next->which == 1 ? c : (is_constant(b) ? b : a);
        if (auto negation = negate(changed, product, form)) made.push_back(std::move(*negation));
      }
      sum.opcode = saturated ? form.fma_saturated : form.fma;
      sum.operands = {sum.operands[0], std::move(a), std::move(b), std::move(c)};
      made.push_back(std::move(sum));
      ++next;
    }
    place[code.size()] = static_cast<uint32_t>(made.size());
    for (Label& label : function_.labels) label.instruction = place[label.instruction];
    code = std::move(made);
  }

  Function& function_;
  std::vector<uint32_t> mentions_;    // of a register, by register
  std::vector<uint32_t> written_;     // where last
  std::vector<uint32_t> product_in_;  // the instruction whose product the register holds
  std::vector<Fused> fused_;          // in the order of the sums
  uint32_t begin_ = 0;                // of the stretch without labels and jumps
};

}  // namespace

void fuse_products(Module& module) {
  for (Function& function : module.functions) Fuser(function).run();
}

}  // namespace softgpu::ptx

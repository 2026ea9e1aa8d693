// ldmatrix stmatrix wmma: registers in lists, addresses by lanes. (mma.sync goes by its signature.)
#include "softgpu/exec/lower/lowering.h"
#include "softgpu/exec/program/memory_suffix.h"
#include "softgpu/exec/program/wmma_shape.h"
#include "softgpu/ptx/error.h"

namespace softgpu {

using ptx::Operand;
using ptx::OperandKind;
using ptx::Space;

std::vector<uint32_t> Lowering::register_list(const Operand& operand, uint32_t count, char size,
                                              bool written) {
  const bool is_vector = operand.kind == OperandKind::vector;
  if (is_vector ? operand.elements.size() != count : count != 1)
    fail("vector of " + std::to_string(count) + " registers expected");
  std::vector<uint32_t> list;
  for (uint32_t k = 0; k < count; ++k) {
    const Operand& part = is_vector ? operand.elements[k] : operand;
    list.push_back((written ? destination(part, size) : source(part, size)).bits());
  }
  return list;
}

namespace {

struct MatrixForm {
  uint32_t count = 0;
  std::string_view shape, element, packed;
  Space space = Space::generic;  // without a name an address is generic, as llama.cpp writes it
  bool transposed = false, known = true;
};

MatrixForm matrix_form(const std::vector<std::string_view>& suffixes) {
  MatrixForm form;
  for (const std::string_view s : suffixes) {
    if (s == "x1" || s == "x2" || s == "x4")
      form.count = static_cast<uint32_t>(s[1] - '0');
    else if (s == "trans")
      form.transposed = true;
    else if (s == "m8n8" || s == "m16n16" || s == "m8n16" || s == "m16n8")
      form.shape = s;
    else if (s == "b16" || s == "b8" || s == "b8x16")
      form.element = s;
    else if (s == "b6x16_p32" || s == "b4x16_p64")
      form.packed = s.substr(0, 2);
    else if (space_named(s) == Space::shared)
      form.space = Space::shared;
    else if (s != "sync" && s != "aligned")
      form.known = false;
  }
  form.known &= form.count != 0;
  return form;
}

}  // namespace

// ldmatrix.sync.aligned.m8n8.x{1,2,4}[.trans][.shared].b16 d, [p], and shapes of bytes
void Lowering::lower_ldmatrix(const ptx::Instruction& instruction, const Suffixes& suffixes) {
  const MatrixForm form = matrix_form(suffixes);
  if (!form.known || instruction.operands.size() != 2) fail_opcode();
  std::string step;
  uint32_t registers = form.count;
  if (form.shape == "m8n8" && form.element == "b16" && form.packed.empty()) {
    step = form.transposed ? "@ldmatrix.trans" : "@ldmatrix";
  } else if (form.shape == "m16n16" && form.transposed && form.count <= 2 && form.element.starts_with("b8")) {
    step = "@ldmatrix.m16n16." + std::string(form.packed.empty() ? "b8" : form.packed);
    registers = 2 * form.count;
  } else if (form.shape == "m8n16" && !form.transposed && !form.packed.empty() && form.element == "b8x16") {
    step = "@ldmatrix.m8n16." + std::string(form.packed);
  } else {
    fail_opcode();
  }
  std::vector<uint32_t> list = register_list(instruction.operands[0], registers, 'w', true);
  uint32_t how = 0;
  const Ref at = plain_address(instruction.operands[1], form.space, how);
  LoweredInstruction& made = emit(step, {}, {at});
  made.in.aux = how;
  made.list = std::move(list);
  made.list_defs = registers;
}

// stmatrix.sync.aligned.{m8n8.x{1,2,4}[.trans][.shared].b16, m16n8.x{1,2,4}.trans[.shared].b8} [p], r
void Lowering::lower_stmatrix(const ptx::Instruction& instruction, const Suffixes& suffixes) {
  const MatrixForm form = matrix_form(suffixes);
  const bool halves = form.shape == "m8n8" && form.element == "b16";
  const bool bytes = form.shape == "m16n8" && form.element == "b8" && form.transposed;
  if (!form.known || !(halves || bytes) || !form.packed.empty() || instruction.operands.size() != 2)
    fail_opcode();
  uint32_t how = 0;
  const Ref at = plain_address(instruction.operands[0], form.space, how);
  std::vector<uint32_t> list = register_list(instruction.operands[1], form.count, 'w', false);
  LoweredInstruction& made = emit(bytes             ? "@stmatrix.trans.b8"
                                  : form.transposed ? "@stmatrix.trans.b16"
                                                    : "@stmatrix.b16",
                                  {}, {at});
  made.in.aux = how;
  made.list = std::move(list);
}

namespace {

using wmma::Element;

std::optional<Element> element_named(std::string_view s) {
  static constexpr std::pair<std::string_view, Element> element_names[] = {
      {"f16", Element::f16}, {"bf16", Element::bf16}, {"tf32", Element::tf32}, {"f32", Element::f32},
      {"f64", Element::f64}, {"s8", Element::s8},     {"u8", Element::u8},     {"s4", Element::s4},
      {"u4", Element::u4},   {"b1", Element::b1},     {"s32", Element::s32}};
  for (const auto& [name, element] : element_names) {
    if (s == name) return element;
  }
  return std::nullopt;
}

// "m16n16k16"
bool read_shape(std::string_view s, uint32_t (&shape)[3]) {
  size_t at = 0;
  const char letters[] = {'m', 'n', 'k'};
  for (int i = 0; i < 3; ++i) {
    if (at >= s.size() || s[at++] != letters[i]) return false;
    shape[i] = 0;
    while (at < s.size() && s[at] >= '0' && s[at] <= '9') {
      shape[i] = shape[i] * 10 + static_cast<uint32_t>(s[at++] - '0');
      if (shape[i] > 256) return false;
    }
  }
  return at == s.size();
}

// What A and B may be made of, and what C and D.
bool is_factor(Element type) {
  return type != Element::f32 && type != Element::s32;
}
bool is_sum(Element type) {
  return type == Element::f16 || type == Element::f32 || type == Element::f64 || type == Element::s32;
}
// Whether products of these elements are summed in those.
bool sums_in(Element factor, Element sum) {
  switch (factor) {
    case Element::f16:
      return sum == Element::f16 || sum == Element::f32;
    case Element::bf16:
    case Element::tf32:
      return sum == Element::f32;
    case Element::f64:
      return sum == Element::f64;
    default:
      return is_factor(factor) && sum == Element::s32;
  }
}

// Which shapes the elements of A come in.
bool shape_fits(Element type, const uint32_t (&shape)[3]) {
  const uint32_t m = shape[0], n = shape[1], k = shape[2];
  const bool square = (m == 16 && n == 16) || (m == 8 && n == 32) || (m == 32 && n == 8);
  switch (type) {
    case Element::f16:
    case Element::bf16:
    case Element::s8:
    case Element::u8:
      return square && k == 16;
    case Element::tf32:
      return m == 16 && n == 16 && k == 8;
    case Element::f64:
      return m == 8 && n == 8 && k == 4;
    case Element::s4:
    case Element::u4:
      return m == 8 && n == 8 && k == 32;
    case Element::b1:
      return m == 8 && n == 8 && k == 128;
    default:  // accumulators
      return (square && (k == 16 || k == 8)) || (m == 8 && n == 8);
  }
}

}  // namespace

// wmma.load.{a,b,c}.sync.aligned.layout.shape[.space].type r, [p] [, stride]
// wmma.store.d.sync.aligned.layout.shape[.space].type [p], r [, stride]
// wmma.mma[.xor.popc,.and.popc].sync.aligned.alayout.blayout.shape[.rounding].types d, a, b, c
void Lowering::lower_wmma(const ptx::Instruction& instruction, const Suffixes& suffixes) {
  if (suffixes.size() < 5) fail_opcode();
  const bool multiplies = suffixes[0] == "mma", loads = suffixes[0] == "load";
  if (!multiplies && !loads && suffixes[0] != "store") fail_opcode();
  uint32_t shape[3] = {};
  std::vector<Element> types;
  wmma::Multiply product;
  bool column = false, known = true;
  Space space = Space::generic;
  char which = 0;
  for (size_t i = 1; i < suffixes.size(); ++i) {
    const std::string_view s = suffixes[i];
    if (s == "sync" || s == "aligned" || s == "row" || s == "popc") continue;
    if (s == "col")
      column = true;
    else if (!multiplies && i == 1 && (s == "a" || s == "b" || s == "c" || s == "d"))
      which = s[0];
    else if (multiplies && (s == "xor" || s == "and"))
      product.bit_operation = s == "xor" ? 1 : 2;
    else if (multiplies && s == "satfinite")
      product.saturates = true;
    else if (multiplies && (s == "rn" || s == "rz" || s == "rm" || s == "rp"))
      product.rounding = s == "rn" ? 0 : s == "rz" ? 1 : s == "rm" ? 2 : 3;
    else if (const auto element = element_named(s))
      types.push_back(*element);
    else if (const auto named = space_named(s); named && !multiplies)
      space = *named;
    else
      known &= read_shape(s, shape);
  }
  if (!known || shape[0] == 0 || types.empty()) fail_opcode();
  const std::vector<Operand>& operands = instruction.operands;
  if (!multiplies) {
    const bool of_sums = which == 'c' || which == 'd';
    if (types.size() != 1 || which == 0 || (which == 'd') == loads ||
        !(of_sums ? is_sum(types[0]) : is_factor(types[0])) || !shape_fits(types[0], shape) ||
        operands.size() < 2 || operands.size() > 3) {
      fail_opcode();
    }
    const wmma::Fragment f = wmma::fragment(which, shape[0], shape[1], shape[2], types[0]);
    const uint32_t count = wmma::registers(f);
    const char size = f.bits == 64 ? 'x' : 'w';
    std::vector<uint32_t> list = register_list(operands[loads ? 0 : 1], count, size, loads);
    uint32_t how = 0;
    const Ref at = plain_address(operands[loads ? 1 : 0], space, how);
    // Without a stride rows (or columns) follow each other.
    const Ref stride =
        operands.size() == 3 ? source(operands[2], 'w') : immediate(column ? f.rows : f.columns, 'w');
    LoweredInstruction& made = emit(loads ? "@wmma.load" : "@wmma.store", {}, {at, stride});
    made.in.aux = how | (column ? 16 : 0);
    made.in.immediate = static_cast<int64_t>(wmma::pack(f));
    made.list = std::move(list);
    made.list_defs = loads ? count : 0;
    return;
  }
  product.m = shape[0];
  product.n = shape[1];
  product.k = shape[2];
  if (types.size() == 2) {  // .dtype.ctype: operands are f16
    product.d = types[0];
    product.c = types[1];
  } else if (types.size() == 4) {
    product.d = types[0];
    product.a = types[1];
    product.b = types[2];
    product.c = types[3];
  } else {
    fail_opcode();
  }
  if (product.a != product.b || !sums_in(product.a, product.c) || !sums_in(product.a, product.d) ||
      !shape_fits(product.a, shape) || operands.size() != 4) {
    fail_opcode();
  }
  const char size = product.a == Element::f64 ? 'x' : 'w';
  const wmma::Fragment fragments[] = {wmma::fragment('d', shape[0], shape[1], shape[2], product.d),
                                      wmma::fragment('a', shape[0], shape[1], shape[2], product.a),
                                      wmma::fragment('b', shape[0], shape[1], shape[2], product.b),
                                      wmma::fragment('c', shape[0], shape[1], shape[2], product.c)};
  std::vector<uint32_t> list;
  for (size_t i = 0; i < 4; ++i) {
    for (const uint32_t bits : register_list(operands[i], wmma::registers(fragments[i]), size, i == 0))
      list.push_back(bits);
  }
  LoweredInstruction& made = emit("@wmma.mma", {}, {});
  made.in.immediate = static_cast<int64_t>(wmma::pack(product));
  made.list = std::move(list);
  made.list_defs = wmma::registers(fragments[0]);
}

}  // namespace softgpu

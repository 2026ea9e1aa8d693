// Statements in which a whole warp multiplies, transposes, loads or stores matrices.
#include "softgpu/differential/generator.h"
#include "softgpu/reference/matrix_form.h"

namespace softgpu::differential {

using reference::FloatFormat;
using reference::MatrixElement;
using reference::MatrixForm;

namespace {

// Bits that stay random in a register of such elements, and bits that are set: numbers from 1 to 1.75 with
// either sign. Their sums are exact in any order, which PTX leaves open.
struct Pattern {
  uint64_t random = ~uint64_t{0}, set = 0;
};
Pattern pattern_of(const FloatFormat* format, int bits, int shift) {
  if (format == nullptr) return {};
  const int fraction = format->fraction_bits + format->low_zero_bits,
            kept = std::min(format->fraction_bits, 2);
  const uint64_t sign = uint64_t{1} << (fraction + format->exponent_bits),
                 some = ((uint64_t{1} << kept) - 1) << (fraction - kept),
                 one = ((uint64_t{1} << (format->exponent_bits - 1)) - 1) << fraction;
  Pattern made{0, 0};
  for (int at = 0; at < 64; at += bits) {
    made.random |= (sign | some) << shift << at;
    made.set |= one << shift << at;
  }
  return made;
}

}  // namespace

void Generator::write_matrix_operation(const Place& place) {
  switch (random_.below(4)) {
    case 0:
      return emit_fixed("movmatrix.sync.aligned.m8n8.trans.b16 " + any(32) + ", " + any(32) + ";");
    case 1:
      return write_matrix_access(place);
    default:
      return write_mma();
  }
}

// The fragments in registers of their own, filled from those of the pool; the result goes back as one number
// in which each register shows.
void Generator::write_mma() {
  group([&] {
    const std::string& opcode = catalogue_.choose_matrix(random_);
    const MatrixForm form = *reference::matrix_form(opcode);
    const bool wide = form.has_wide_registers();
    const std::string type = wide ? ".b64 " : ".b32 ";
    const int bits = wide ? 64 : 32;
    emit_fixed("{\n.reg" + type + "%fa<16>, %fb<8>, %fc<8>, %fd<8>;\n.reg .b32 %fs<2>;");
    const auto list = [&](const char* prefix, int count) {
      std::string made;
      for (int i = 0; i < count; ++i) made += (i == 0 ? "" : ", ") + name(prefix, static_cast<uint64_t>(i));
      return "{" + made + "}";
    };
    const auto fill = [&](const char* prefix, int count, const Pattern& pattern) {
      for (int i = 0; i < count; ++i) {
        const std::string to = name(prefix, static_cast<uint64_t>(i));
        emit_fixed((i == 0 || random_.chance(30) ? "mov" + type + to + ", " + any(bits) + ";"
                                                 : "mad.lo.u" + std::to_string(bits) + " " + to + ", " +
                                                       name(prefix, static_cast<uint64_t>(i - 1)) +
                                                       ", 0x5851f42d, " + any(bits) + ";"));
      }
      for (int i = 0; pattern.set != 0 && i < count; ++i) {
        const std::string to = name(prefix, static_cast<uint64_t>(i));
        const auto number = [&](uint64_t value) { return std::to_string(wide ? value : value & 0xffffffff); };
        emit_fixed("and" + type + to + ", " + to + ", " + number(pattern.random) + "; or" + type + to + ", " +
                   to + ", " + number(pattern.set) + ";");
      }
    };
    fill("%fa", form.a_registers(), pattern_of(form.a.format, form.a.bits, form.a.shift));
    fill("%fb", form.b_registers(), pattern_of(form.b.format, form.b.bits, form.b.shift));
    const int sum_bits = form.sum == &reference::f16_format ? 16 : bits;
    fill("%fc", form.sum_registers(), pattern_of(form.sum, sum_bits, 0));
    if (form.saturates) {  // when it does depends on the order of the sum
      for (int i = 0; i < form.sum_registers(); ++i) {
        const std::string c = name("%fc", static_cast<uint64_t>(i));
        emit_fixed("shr.s32 " + c + ", " + c + ", 2;");
      }
    }
    // The sums may be changed in place.
    const char* const to = random_.chance(40) ? "%fc" : "%fd";
    std::string scales;
    for (const uint64_t threads : {2, 4}) {  // of A, of B
      if (form.scales == 0) break;
      const std::string scale = name("%fs", threads / 4);
      // 1/2 and 1; or 1 to 1.75, whose sign does not count
      emit_fixed("and.b32 " + scale + ", " + any(32) +
                 (form.exponent_scales ? ", 0x01010101; or.b32 " + scale + ", " + scale + ", 0x7e7e7e7e;"
                                       : ", 0x86868686; or.b32 " + scale + ", " + scale + ", 0x38383838;"));
      const auto first =
          static_cast<uint64_t>(form.scales) * random_.below(4 / static_cast<uint64_t>(form.scales));
      scales +=
          ", " + scale + ", {" + std::to_string(first) + ", " + std::to_string(random_.below(threads)) + "}";
    }
    emit_fixed(opcode + " " + list(to, form.sum_registers()) + ", " + list("%fa", form.a_registers()) + ", " +
               list("%fb", form.b_registers()) + ", " + list("%fc", form.sum_registers()) + scales + ";");
    const std::string all = wide ? "%tx0" : "%tw0", result = any(bits);
    emit_fixed("mov" + type + all + ", 0;");
    for (int i = 0; i < form.sum_registers(); ++i) {
      emit_fixed("mad.lo.u" + std::to_string(bits) + " " + all + ", " + all + ", 0x9e3779b1, " +
                 name(to, static_cast<uint64_t>(i)) + ";");
    }
    emit_fixed("mov" + type + result + ", " + all + ";\n}");
  });
}

// Each lane's own 16 bytes of shared memory are a row. All lanes have written theirs before, and nobody
// writes on before all have read.
void Generator::write_matrix_access(const Place& place) {
  group([&] {
    const auto count = small_ ? uint64_t{1} << random_.below(2) : uint64_t{1} << random_.below(3);
    const bool loads = random_.chance(50);
    std::string registers;
    for (uint64_t i = 0; i < count; ++i) registers += (i == 0 ? "" : ", ") + name("%w", i);
    const std::string form = std::string("matrix.sync.aligned.m8n8.x") + std::to_string(count) +
                             (random_.chance(50) ? ".trans" : "") + ".shared.b16 ";
    emit_fixed("bar.warp.sync " + place.mask + ";");
    emit_fixed(loads ? "ld" + form + "{" + registers + "}, [%own];"
                     : "st" + form + "[%own], {" + registers + "};");
    emit_fixed("bar.warp.sync " + place.mask + ";");
  });
}

}  // namespace softgpu::differential

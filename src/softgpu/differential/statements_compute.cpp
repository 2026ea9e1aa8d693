// Statements that compute in registers.
#include <cstdio>

#include "softgpu/differential/generator.h"
#include "softgpu/differential/values.h"

namespace softgpu::differential {

using reference::Exactness;
using reference::FloatFormat;
using reference::Operation;

namespace {

std::string hexadecimal(uint64_t value) {
  char text[24];
  std::snprintf(text, sizeof(text), "0x%llx", static_cast<unsigned long long>(value));
  return text;
}
std::string float_literal(uint64_t bits, bool is_double) {
  char text[24];
  std::snprintf(text, sizeof(text), is_double ? "0d%016llX" : "0f%08llX",
                static_cast<unsigned long long>(bits));
  return text;
}

}  // namespace

std::string Generator::guard() {
  if (!random_.chance(20)) return "";
  return "@" + std::string(random_.chance(40) ? "!" : "") + any(1) + " ";
}

// One value for all threads now and then: engines treat it in ways of their own.
std::string Generator::in_table(int table) {
  const uint64_t entry = 8 * random_.below(layout::table_entries);
  if (random_.chance(small_ ? 45 : 15)) {
    return "[%base+" + std::to_string(static_cast<uint64_t>(table) * layout::table_bytes + entry) + "]";
  }
  return "[" + name("%tab", static_cast<uint64_t>(table)) + "+" + std::to_string(entry) + "]";
}

// A value of the right kind from this thread's stretch of a table, in a register of its own.
std::string Generator::loaded(int bits, const FloatFormat* format) {
  const char* const prefix = bits == 16 ? "%th" : bits == 32 ? "%tw" : "%tx";
  const std::string to = name(prefix, 1 + random_.below(3));
  const int table = format == &reference::f64_format    ? 3
                    : format == &reference::f32_format  ? 2
                    : format == &reference::bf16_format ? 1
                    : format == &reference::f16_format  ? 0
                                                        : (random_.chance(70) ? 4 : 5);
  emit("ld.global.b" + std::to_string(bits) + " " + to + ", " + in_table(table) + ";");
  return to;
}

std::string Generator::source(int bits, const FloatFormat* format, bool immediates) {
  if (bits == 1) return (random_.chance(20) ? "!" : "") + any(1);
  if (bits == 128) return any(128);
  const auto choice = random_.below(100);
  const bool small_float = format != nullptr && format->total_bits() == 16;
  if (choice < 50 || (choice < 70 && (!immediates || small_float))) return any(bits);
  if (choice >= 70) return loaded(bits, format);
  if (format != nullptr && format->total_bits() == bits && bits >= 32) {
    return float_literal(interesting_float(random_, *format), bits == 64);
  }
  return hexadecimal(interesting_integer(random_, bits));
}

// The operands after the destination, each with a comma before it.
void Generator::write_sources(const CatalogueEntry& entry, std::string& text) {
  const Operation& operation = *entry.operation;
  for (size_t i = 0; i < operation.sources.size(); ++i) {
    const int bits = operation.sources[i];
    std::string operand = source(bits, operation.source_format);
    if (entry.name.starts_with("lop3") && i == 3) operand = std::to_string(random_.below(256));
    if (i < operation.nonzero.size() && operation.nonzero[i]) {
      const std::string safe = bits == 16 ? "%th0" : bits == 32 ? "%tw0" : "%tx0";
      const std::string type = ".b" + std::to_string(bits) + " ";
      emit("mov" + type + safe + ", " + operand + ";", false);
      emit("setp.eq" + type + "%tp0, " + safe + ", 0;", false);
      emit("@%tp0 mov" + type + safe + ", 3;", false);
      operand = safe;
    }
    if (operation.source_limit != 0 && i == 1) {
      emit("and.b32 %tw0, " + operand + ", " + std::to_string(operation.source_limit - 1) + ";", false);
      operand = "%tw0";
    }
    text += ", " + operand;
  }
}

void Generator::write_operation(const Place&) {
  group([&] {
    const CatalogueEntry& entry = catalogue_.choose(random_);
    const Operation& operation = *entry.operation;
    std::string text = entry.name + " ";
    std::string to = any(operation.results[0]);
    const bool cvt = entry.name.starts_with("cvt.") && operation.sources.size() == 1;
    // Integer results of cvt may go to wider registers.
    if (cvt && operation.exactness == Exactness::bits && operation.format == nullptr && random_.chance(20)) {
      const int wider = operation.results[0] == 16 && random_.chance(50) ? 32 : 64;
      if (wider > operation.results[0]) to = any(wider);
    }
    text += to;
    if (entry.pair && random_.chance(50)) {
      std::string second = any(operation.results[1]);
      if (second == to) second = "_";
      text += "|" + second;
    }
    write_sources(entry, text);
    emit(guard() + text + ";");
    if (operation.exactness == Exactness::any_nan) write_canonical_nan(operation, to);
  });
}

// Any NaN becomes one, so that its bits may flow on.
void Generator::write_canonical_nan(const Operation& operation, const std::string& of) {
  const FloatFormat& format = *operation.format;
  const auto one = [&](const std::string& part) {
    if (format.total_bits() == 16) {
      const std::string type = &format == &reference::f16_format ? "f16" : "bf16";
      emit_fixed("setp.nan." + type + " %tp1, " + part + ", " + part + "; selp.b16 " + part + ", 0x7fff, " +
                 part + ", %tp1;");
    } else {
      const bool wide = format.total_bits() == 64;
      emit_fixed(std::string("testp.notanumber.") + (wide ? "f64" : "f32") + " %tp1, " + part + "; selp.b" +
                 (wide ? "64 " : "32 ") + part + (wide ? ", 0x7fffffffffffffff, " : ", 0x7fffffff, ") + part +
                 ", %tp1;");
    }
  };
  if (operation.parts == 1) return one(of);
  const bool halves = format.total_bits() == 16;
  const std::string low = halves ? "%th4" : "%tw4", high = halves ? "%th5" : "%tw5";
  const std::string type = halves ? "mov.b32 " : "mov.b64 ";
  emit_fixed(type + "{" + low + ", " + high + "}, " + of + ";");
  one(low);
  one(high);
  emit_fixed(type + of + ", {" + low + ", " + high + "};");
}

// The result goes nowhere but into the output, with its operands, to be compared by its bound.
void Generator::write_approximation() {
  const size_t slot = program_.approximate.size();
  if (slot == layout::slot_count) return;
  group([&] {
    const CatalogueEntry& entry = catalogue_.choose_approximate(random_);
    const Operation& operation = *entry.operation;
    program_.approximate.push_back(&operation);
    program_.approximate_name.push_back(entry.name);
    const int bits = operation.results[0];
    const std::string type = ".b" + std::to_string(bits) + " ";
    const char* const prefix = bits == 16 ? "%th" : bits == 32 ? "%tw" : "%tx";
    std::string text = entry.name + " " + prefix + "6";
    for (size_t i = 0; i < operation.sources.size(); ++i) {
      const std::string operand = name(prefix, 4 + i);
      emit_fixed("mov" + type + operand + ", " +
                 (random_.chance(70) ? loaded(bits, operation.source_format) : any(bits)) + ";");
      text += ", " + operand;
    }
    const std::string place = "[%approximate+" + std::to_string(slot * layout::slot_bytes);
    emit_fixed(text + ";");
    for (size_t i = 0; i < operation.sources.size(); ++i) {
      emit_fixed("st.global" + type + place + "+" + std::to_string(8 * i) + "], " + name(prefix, 4 + i) +
                 ";");
    }
    emit_fixed("st.global.b32 " + place + "+16], 1; st.global" + type + place + "+24], " + prefix + "6;");
  });
}

// add.cc, then some that read and write the flag, then one that reads it.
void Generator::write_carries() {
  group([&] {
    const uint64_t length = random_.below(4);
    for (uint64_t i = 0; i < length + 2; ++i) {
      const bool first = i == 0, last = i == length + 1;
      const CatalogueEntry& entry = catalogue_.choose_carry(random_, !first, !last);
      std::string text = entry.name + " " + any(entry.operation->results[0]);
      write_sources(entry, text);
      emit_fixed(text + ";");
    }
  });
}

void Generator::write_move() {
  switch (random_.below(8)) {
    case 0: {
      static const std::vector<std::string> special_registers{
          "%tid.x",  "%tid.y",       "%tid.z",       "%ntid.x",      "%ctaid.x",     "%nctaid.x",   "%laneid",
          "%warpid", "%lanemask_eq", "%lanemask_lt", "%lanemask_le", "%lanemask_ge", "%lanemask_gt"};
      return emit(guard() + "mov.u32 " + any(32) + ", " + random_.one_of(special_registers) + ";");
    }
    case 1:
      return emit(guard() + "mov.b32 " + any(32) + ", {" + any(16) + ", " + any(16) + "};");
    case 2:
      return emit(guard() + "mov.b64 " + any(64) + ", {" + any(32) + ", " + any(32) + "};");
    case 3: {
      const std::string low = any(16);
      return emit(guard() + "mov.b32 {" + (random_.chance(20) ? "_" : low) + ", _}, " + any(32) + ";");
    }
    case 4:
      return emit(guard() + "mov.b64 {%w0, %w1}, " + any(64) + ";");
    case 5:
      return emit(guard() + "mov.b128 " + any(128) + ", {" + any(64) + ", " + any(64) + "};");
    case 6:
      return emit(guard() + "mov.b128 {%x0, %x1}, " + any(128) + ";");
    default: {
      const int bits = random_.one_of({16, 32, 64});
      return emit(guard() + "mov.b" + std::to_string(bits) + " " + any(bits) + ", " + source(bits, nullptr) +
                  ";");
    }
  }
}

}  // namespace softgpu::differential

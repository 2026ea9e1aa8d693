#include "softgpu/exec/program/access_kind.h"

#include <charconv>

namespace softgpu {
namespace {

using Step = AccessKind::Step;

// "u32", "b128", "f16x2", "noftz.bf16" -> bytes; 0 if it names no type.
uint8_t bytes_of_type(std::string_view type) {
  type = type.substr(type.rfind('.') + 1);
  const size_t digit = type.find_first_of("0123456789");
  if (digit == std::string_view::npos) return 0;
  uint32_t bits = 0;
  const auto [end, error] = std::from_chars(type.data() + digit, type.data() + type.size(), bits);
  if (error != std::errc()) return 0;
  return static_cast<uint8_t>(bits / 8 * (std::string_view(end, type.data() + type.size()) == "x2" ? 2 : 1));
}

uint8_t bytes_of_register(char size) {
  return size == 'h' ? 2 : size == 'w' ? 4 : size == 'x' ? 8 : 16;
}

// "<what>.<type or bytes>.<register size>"
AccessKind plain(std::string_view rest, Step step, bool vector) {
  AccessKind kind;
  kind.step = step;
  kind.vector = vector;
  const std::string_view type = rest.substr(0, rest.rfind('.'));
  kind.register_bytes = bytes_of_register(rest.back());
  if (step == Step::load) {
    kind.element_bytes = bytes_of_type(type);
    kind.address_operand = vector ? 0 : 1;
  } else {
    uint32_t bytes = 0;
    std::from_chars(type.data(), type.data() + type.size(), bytes);
    kind.element_bytes = static_cast<uint8_t>(bytes);
    kind.value_operand = 1;
  }
  return kind;
}

bool take_prefix(std::string_view& name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return false;
  name.remove_prefix(prefix.size());
  return true;
}

}  // namespace

AccessKind access_kind(std::string_view name) {
  if (take_prefix(name, "@load.")) return plain(name, Step::load, false);
  if (take_prefix(name, "@vload.")) return plain(name, Step::load, true);
  if (take_prefix(name, "@store.")) return plain(name, Step::store, false);
  if (take_prefix(name, "@vstore.")) return plain(name, Step::store, true);
  AccessKind kind;
  if (take_prefix(name, "@atom.")) {
    kind.element_bytes = bytes_of_type(name);
    kind.address_operand = 1;
    if (kind.element_bytes != 0) kind.step = Step::atomic;
  } else if (name == "@cp.async") {
    kind.step = Step::copy;
  } else if (name == "@ldmatrix" || name == "@ldmatrix.trans") {
    kind.step = Step::matrix_load;
    kind.element_bytes = 16;
  } else if (name == "@bulk.copy" || name.starts_with("@bulk.reduce.")) {
    kind.step = Step::bulk;
  } else if (name == "@bulk.zero" || name.starts_with("@stmatrix.") || name == "@wmma.store") {
    kind.step = Step::wide;
  } else if (take_prefix(name, "@mbarrier.")) {
    kind.element_bytes = 8;
    if (name == "init" || name == "inval") {
      kind.step = Step::barrier_object;
    } else if (name.starts_with("arrive")) {
      kind.step = Step::arrive;
      kind.address_operand = 1;
    } else if (name.starts_with("test")) {
      kind.step = Step::test;
      kind.address_operand = 1;
    }
  }
  return kind;
}

}  // namespace softgpu

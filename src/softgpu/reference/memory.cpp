// Loads, stores, atomics and addresses.
#include <algorithm>
#include <cstring>

#include "softgpu/reference/machine.h"

namespace softgpu::reference {

using ptx::Operand;
using ptx::OperandKind;
using ptx::Space;

namespace {

std::optional<Space> space_named(std::string_view s) {
  if (s == "global") return Space::global;
  if (s == "shared" || s == "shared::cta" || s == "shared::cluster") return Space::shared;
  if (s == "local") return Space::local;
  if (s == "const") return Space::constant;
  if (s == "param" || s == "param::entry" || s == "param::func") return Space::param;
  return std::nullopt;
}

// Says nothing about the value: order (one thread runs at a time), scope, caching.
bool is_immaterial(std::string_view s) {
  static constexpr std::string_view immaterial_words[] = {
      "weak", "volatile", "relaxed", "acquire", "release", "acq_rel", "cta", "cluster", "gpu",
      "sys",  "nc",       "ca",      "cg",      "cs",      "lu",      "cv",  "wb",      "wt"};
  return std::find(std::begin(immaterial_words), std::end(immaterial_words), s) !=
             std::end(immaterial_words) ||
         s.starts_with("L1::") || s.starts_with("L2::");
}

}  // namespace

Access access_of(const Step& step) {
  Access made;
  for (const std::string_view s : step.suffixes) {
    if (is_immaterial(s)) continue;
    if (const auto space = space_named(s)) {
      made.space = *space;
    } else if (s == "v2" || s == "v4" || s == "v8") {
      made.elements = static_cast<size_t>(s[1] - '0');
    } else if (const auto type = number_type(s)) {
      made.type = *type;
    } else {
      throw Undefined("'" + std::string(step.syntax->opcode) + "' is not in the reference");
    }
  }
  return made;
}

Machine::Place Machine::locate(Thread& thread, uint64_t address, uint64_t bytes, uint64_t alignment,
                               bool writes) {
  if (address % alignment != 0) throw Undefined("misaligned access of " + std::to_string(bytes) + " bytes");
  const auto inside = [&](uint64_t begin, uint64_t size) {
    return address >= begin && address - begin < size && size - (address - begin) >= bytes;
  };
  const auto host = reinterpret_cast<uint64_t>(arena_.data());
  if (inside(host, arena_.size())) return {arena_.data() + (address - host), nullptr, 0};
  const auto in_memory = [&](uint64_t window, Memory& memory) -> Place {
    const uint64_t at = address - window;
    return {memory.bytes.data() + at, &memory.written, at};
  };
  if (inside(shared_window, shared_.bytes.size())) return in_memory(shared_window, shared_);
  if (inside(local_window, thread.local.bytes.size())) return in_memory(local_window, thread.local);
  if (inside(variable_window, global_variables_.bytes.size()))
    return in_memory(variable_window, global_variables_);
  if (!writes && inside(parameter_window, parameters_.size())) {
    return {const_cast<std::byte*>(parameters_.data()) + (address - parameter_window), nullptr, 0};
  }
  throw Undefined("access outside of the program's memory");
}

Bits Machine::load(Thread& thread, uint64_t address, uint64_t bytes, uint64_t alignment) {
  const Place place = locate(thread, address, bytes, alignment, false);
  for (uint64_t i = 0; place.written != nullptr && i < bytes; ++i) {
    if (!(*place.written)[place.offset + i]) throw Undefined("memory is read that was never written");
  }
  Bits result = 0;
  std::memcpy(&result, place.bytes, bytes);
  return result;
}

void Machine::store(Thread& thread, uint64_t address, Bits value, uint64_t bytes, uint64_t alignment) {
  const Place place = locate(thread, address, bytes, alignment, true);
  std::memcpy(place.bytes, &value, bytes);
  for (uint64_t i = 0; place.written != nullptr && i < bytes; ++i) (*place.written)[place.offset + i] = true;
}

void Machine::do_load(Thread& thread, const Step& step) {
  const Access& access = step.access;
  const auto bytes = static_cast<uint64_t>(access.type.register_bits() / 8);
  const Operand& to = step.syntax->operands.at(0);
  const uint64_t from = address(thread, step.syntax->operands.at(1), access.space);
  const bool vector = to.kind == OperandKind::vector && to.elements.size() == access.elements;
  if (access.elements > 1 && !vector) refuse(step, "vector expected");
  if (from % (bytes * access.elements) != 0) refuse(step, "misaligned access");
  std::vector<Bits> loaded;  // all first: a destination may be the address
  for (size_t i = 0; i < access.elements; ++i) {
    const Bits value = load(thread, from + i * bytes, bytes, bytes);
    loaded.push_back(access.type.is_signed() ? static_cast<Bits>(integer_value(value, access.type)) : value);
  }
  for (size_t i = 0; i < access.elements; ++i) set(thread, vector ? to.elements[i] : to, loaded[i]);
}

void Machine::do_store(Thread& thread, const Step& step) {
  const Access& access = step.access;
  const int bits = access.type.register_bits();
  const auto bytes = static_cast<uint64_t>(bits / 8);
  const Operand& from = step.syntax->operands.at(1);
  const uint64_t to = address(thread, step.syntax->operands.at(0), access.space);
  const bool vector = from.kind == OperandKind::vector && from.elements.size() == access.elements;
  if (access.elements > 1 && !vector) refuse(step, "vector expected");
  if (to % (bytes * access.elements) != 0) refuse(step, "misaligned access");
  for (size_t i = 0; i < access.elements; ++i) {
    const Operand& element = vector ? from.elements[i] : from;
    store(thread, to + i * bytes, value(thread, element, bits), bytes, bytes);
  }
}

// atom d, [a], b [, c]; red [a], b
void Machine::do_atomic(Thread& thread, const Step& step) {
  const bool returns = step.syntax->opcode.starts_with("atom");
  Space space = Space::generic;
  std::string_view operation;
  std::optional<NumberType> type;
  for (const std::string_view s : step.suffixes) {
    if (is_immaterial(s) || s == "noftz") continue;
    if (const auto named = space_named(s)) {
      space = *named;
    } else if (operation.empty()) {
      operation = s;
    } else if (const auto known = number_type(s)) {
      type = known;
    } else {
      refuse(step, "is not in the reference");
    }
  }
  if (!type) refuse(step, "type expected");
  const std::vector<Operand>& operands = step.syntax->operands;
  const size_t first = returns ? 1 : 0;
  const int bits = type->register_bits();
  const auto bytes = static_cast<uint64_t>(bits / 8);
  const uint64_t at = address(thread, operands.at(first), space);
  const Bits b = value(thread, operands.at(first + 1), bits);
  const Bits old = load(thread, at, bytes, bytes);
  Bits changed = 0;
  if (operation == "exch") {
    changed = b;
  } else if (operation == "cas") {
    changed = old == b ? value(thread, operands.at(first + 2), bits) : old;
  } else if (operation == "and") {
    changed = old & b;
  } else if (operation == "or") {
    changed = old | b;
  } else if (operation == "xor") {
    changed = old ^ b;
  } else if (operation == "inc") {
    changed = old >= b ? 0 : old + 1;
  } else if (operation == "dec") {
    changed = old == 0 || old > b ? b : old - 1;
  } else if (operation == "add" && type->is_float()) {
    for (int part = 0; part < type->parts; ++part) {
      const auto number = [&](Bits whole) {
        return unpack(static_cast<uint64_t>(low_bits(whole >> (part * type->bits), type->bits)),
                      *type->format);
      };
      const Number sum = reference::add(number(old), number(b), Rounding::nearest_even);
      changed |= Bits{pack(sum, *type->format, Rounding::nearest_even)} << (part * type->bits);
    }
  } else if (operation == "add") {
    changed = low_bits(old + b, bits);
  } else if ((operation == "min" || operation == "max") && !type->is_float()) {
    const __int128 x = integer_value(old, *type), y = integer_value(b, *type);
    changed = low_bits(static_cast<Bits>(operation == "min" ? std::min(x, y) : std::max(x, y)), bits);
  } else {
    refuse(step, "is not in the reference");
  }
  store(thread, at, changed, bytes, bytes);
  if (returns) set(thread, operands[0], old);
}

// cp.async.{ca,cg}.shared.global [to], [from], bytes [, bytes to read]; at once, as a wait may follow at any
// time.
void Machine::do_copy_async(Thread& thread, const Step& step) {
  if (step.suffixes.at(0) != "async") refuse(step, "is not in the reference");
  if (step.suffixes.size() == 2 && step.suffixes[1] != "ca" && step.suffixes[1] != "cg") {
    if (!step.suffixes[1].starts_with("wait") && step.suffixes[1] != "commit_group") {
      refuse(step, "is not in the reference");
    }
    return;
  }
  const std::vector<Operand>& operands = step.syntax->operands;
  const uint64_t to = address(thread, operands.at(0), Space::shared);
  const uint64_t from = address(thread, operands.at(1), Space::global);
  const auto bytes = static_cast<uint64_t>(value(thread, operands.at(2), 32));
  const auto read = operands.size() > 3 ? static_cast<uint64_t>(value(thread, operands[3], 32)) : bytes;
  if (read > bytes) refuse(step, "reads more than it copies");
  Bits copied = 0;
  if (read != 0) copied = low_bits(load(thread, from, bytes, bytes), static_cast<int>(8 * read));
  store(thread, to, copied, bytes, bytes);
}

void Machine::do_convert_address(Thread& thread, const Step& step) {
  bool to_space = false;
  Space space = Space::generic;
  for (const std::string_view s : step.suffixes) {
    if (s == "to") to_space = true;
    if (const auto named = space_named(s)) space = *named;
  }
  const uint64_t window = space == Space::shared ? shared_window : space == Space::local ? local_window : 0;
  const auto from = static_cast<uint64_t>(value(thread, step.syntax->operands.at(1), 64));
  set(thread, step.syntax->operands[0], to_space ? from - window : from + window);
}

void Machine::do_is_in_space(Thread& thread, const Step& step) {
  const auto space = space_named(step.suffixes.at(0));
  const auto at = static_cast<uint64_t>(value(thread, step.syntax->operands.at(1), 64));
  const auto in = [&](uint64_t window) { return at >= window && at - window < window_bytes; };
  bool result = false;
  if (space == Space::shared) result = in(shared_window);
  if (space == Space::local) result = in(local_window);
  if (space == Space::global) result = !in(shared_window) && !in(local_window) && !in(parameter_window);
  if (space == Space::constant || space == Space::param) refuse(step, "is not in the reference");
  set(thread, step.syntax->operands[0], result);
}

}  // namespace softgpu::reference

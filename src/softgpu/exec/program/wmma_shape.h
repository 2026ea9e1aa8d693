// Shapes and element types of wmma; shared by lowering and handlers.
#pragma once

#include <cstdint>

namespace softgpu::wmma {

enum class Element : uint8_t { f16, bf16, tf32, f32, f64, s8, u8, s4, u4, b1, s32 };

constexpr uint32_t element_bits(Element type) {
  switch (type) {
    case Element::f16:
    case Element::bf16:
      return 16;
    case Element::f64:
      return 64;
    case Element::s8:
    case Element::u8:
      return 8;
    case Element::s4:
    case Element::u4:
      return 4;
    case Element::b1:
      return 1;
    default:
      return 32;
  }
}

struct Fragment {
  uint8_t which = 'a';  // a, b, c or d
  Element type = Element::f16;
  uint32_t rows = 16, columns = 16, bits = 16;
  [[nodiscard]] constexpr uint32_t elements() const { return rows * columns; }
  [[nodiscard]] constexpr bool by_columns() const { return which == 'b'; }
};

constexpr Fragment fragment(char which, uint32_t m, uint32_t n, uint32_t k, Element type) {
  return Fragment{static_cast<uint8_t>(which), type, which == 'b' ? k : m, which == 'a' ? k : n,
                  element_bits(type)};
}

// How many registers PTX gives to a fragment. f16 operands have eight whatever the shape.
constexpr uint32_t registers(const Fragment& f) {
  if (f.type == Element::f16 && (f.which == 'a' || f.which == 'b')) return 8;
  const uint32_t register_bits = f.bits == 64 ? 64 : 32;
  return f.elements() * f.bits / (32 * register_bits);
}

constexpr uint64_t pack(const Fragment& f) {
  return f.which | uint64_t{static_cast<uint8_t>(f.type)} << 8 | uint64_t{f.rows} << 16 |
         uint64_t{f.columns} << 32;
}
constexpr Fragment unpack(uint64_t bits) {
  const auto type = static_cast<Element>(bits >> 8 & 0xff);
  return Fragment{static_cast<uint8_t>(bits), type, static_cast<uint32_t>(bits >> 16 & 0xffff),
                  static_cast<uint32_t>(bits >> 32 & 0xffff), element_bits(type)};
}

struct Multiply {
  uint32_t m = 16, n = 16, k = 16;
  Element a = Element::f16, b = Element::f16, c = Element::f32, d = Element::f32;
  bool saturates = false;
  uint32_t bit_operation = 0;  // 1 xor, 2 and
  uint32_t rounding = 0;       // of f64: as in handlers/rounding.h
};

constexpr uint64_t pack(const Multiply& m) {
  auto type = [](Element e) { return uint64_t{static_cast<uint8_t>(e)}; };
  return uint64_t{m.m} | uint64_t{m.n} << 8 | uint64_t{m.k} << 16 | type(m.a) << 28 | type(m.b) << 32 |
         type(m.c) << 36 | type(m.d) << 40 | uint64_t{m.saturates} << 44 | uint64_t{m.bit_operation} << 45 |
         uint64_t{m.rounding} << 48;
}
constexpr Multiply unpack_multiply(uint64_t bits) {
  auto number = [bits](uint32_t shift, uint64_t mask) { return static_cast<uint32_t>(bits >> shift & mask); };
  auto type = [&](uint32_t shift) { return static_cast<Element>(number(shift, 0xf)); };
  return Multiply{number(0, 0xff), number(8, 0xff), number(16, 0xfff),  type(28),      type(32),
                  type(36),        type(40),        number(44, 1) != 0, number(45, 3), number(48, 0x7)};
}

}  // namespace softgpu::wmma

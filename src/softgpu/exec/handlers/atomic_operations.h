// What atom, red and bulk reductions do to one element of memory.
#pragma once

#include "softgpu/exec/handlers/address.h"
#include "softgpu/exec/handlers/half_format.h"

namespace softgpu::SOFTGPU_ISA {
namespace {

struct Add {
  template <class T>
  static T apply(T a, T b) {
    return static_cast<T>(a + b);
  }
};
struct And {
  template <class T>
  static T apply(T a, T b) {
    return a & b;
  }
};
struct Or {
  template <class T>
  static T apply(T a, T b) {
    return a | b;
  }
};
struct Xor {
  template <class T>
  static T apply(T a, T b) {
    return a ^ b;
  }
};
struct Min {
  template <class T>
  static T apply(T a, T b) {
    return a < b ? a : b;
  }
};
struct Max {
  template <class T>
  static T apply(T a, T b) {
    return a > b ? a : b;
  }
};
struct Exchange {
  template <class T>
  static T apply(T, T b) {
    return b;
  }
};
struct Increment {
  template <class T>
  static T apply(T a, T b) {
    return a >= b ? T{0} : static_cast<T>(a + 1);
  }
};
struct Decrement {
  template <class T>
  static T apply(T a, T b) {
    return a == 0 || a > b ? b : static_cast<T>(a - 1);
  }
};

struct AddFloat {
  static uint32_t apply(uint32_t a, uint32_t b) {
    return std::bit_cast<uint32_t>(std::bit_cast<float>(a) + std::bit_cast<float>(b));
  }
  static uint64_t apply(uint64_t a, uint64_t b) {
    return std::bit_cast<uint64_t>(std::bit_cast<double>(a) + std::bit_cast<double>(b));
  }
};
template <class F>
struct AddSmall {
  static uint16_t apply(uint16_t a, uint16_t b) { return F::store(F::load(a) + F::load(b)); }
  static uint32_t apply(uint32_t a, uint32_t b) {
    const uint16_t low = apply(static_cast<uint16_t>(a), static_cast<uint16_t>(b));
    return low | uint32_t{apply(static_cast<uint16_t>(a >> 16), static_cast<uint16_t>(b >> 16))} << 16;
  }
};

// min.NaN-less of the half types: a number wins against NaN.
template <class F, bool maximum>
struct ExtremeSmall {
  static uint16_t apply(uint16_t a, uint16_t b) {
    const float x = F::load(a), y = F::load(b);
    if (x != x && y != y) return 0x7fff;
    if (x != x) return b;
    if (y != y) return a;
    if (x == y) return maximum ? static_cast<uint16_t>(a & b) : static_cast<uint16_t>(a | b);  // -0 below +0
    return (x < y) != maximum ? a : b;
  }
  static uint32_t apply(uint32_t a, uint32_t b) {
    const uint16_t low = apply(static_cast<uint16_t>(a), static_cast<uint16_t>(b));
    return low | uint32_t{apply(static_cast<uint16_t>(a >> 16), static_cast<uint16_t>(b >> 16))} << 16;
  }
};

template <class Op, class T>
SOFTGPU_INLINE T update(T* target, T operand) {
  if constexpr (std::is_same_v<Op, Add>) return __atomic_fetch_add(target, operand, __ATOMIC_SEQ_CST);
  if constexpr (std::is_same_v<Op, And>) return __atomic_fetch_and(target, operand, __ATOMIC_SEQ_CST);
  if constexpr (std::is_same_v<Op, Or>) return __atomic_fetch_or(target, operand, __ATOMIC_SEQ_CST);
  if constexpr (std::is_same_v<Op, Xor>) return __atomic_fetch_xor(target, operand, __ATOMIC_SEQ_CST);
  if constexpr (std::is_same_v<Op, Exchange>) return __atomic_exchange_n(target, operand, __ATOMIC_SEQ_CST);
  T old = __atomic_load_n(target, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(target, &old, Op::apply(old, operand), false, __ATOMIC_SEQ_CST,
                                      __ATOMIC_RELAXED)) {
  }
  return old;
}

}  // namespace
}  // namespace softgpu::SOFTGPU_ISA

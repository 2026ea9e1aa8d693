// Helpers for handlers: lane loops over registers. This header and everything in handlers/ is compiled
// once per instruction set, each in its own namespace (SOFTGPU_ISA), so that no function compiled for a
// newer processor can be picked by the linker for an older one.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "softgpu/exec/program/opcode_table.h"
#include "softgpu/exec/run/warp.h"

#ifndef SOFTGPU_ISA
#define SOFTGPU_ISA isa_baseline
#endif

#define SOFTGPU_INLINE [[gnu::always_inline]] inline

namespace softgpu::SOFTGPU_ISA {

void register_hot(OpcodeTable& table);
void register_cold(OpcodeTable& table);
void register_integer(OpcodeTable& table);
void register_bits(OpcodeTable& table);
void register_carry(OpcodeTable& table);
void register_float(OpcodeTable& table);
void register_half(OpcodeTable& table);
void register_mixed(OpcodeTable& table);
void register_compare(OpcodeTable& table);
void register_convert(OpcodeTable& table);
void register_convert_half(OpcodeTable& table);
void register_convert_small(OpcodeTable& table);
void register_matrix_general(OpcodeTable& table);
void register_matrix_scaled(OpcodeTable& table);
void register_wmma(OpcodeTable& table);
void register_matrix_move(OpcodeTable& table);
void register_bulk(OpcodeTable& table);
void register_video(OpcodeTable& table);
void register_rare(OpcodeTable& table);
void register_math(OpcodeTable& table);
void register_move(OpcodeTable& table);
void register_memory(OpcodeTable& table);
void register_atomic(OpcodeTable& table);
void register_barrier_object(OpcodeTable& table);
void register_warp(OpcodeTable& table);
void register_control(OpcodeTable& table);
void register_matrix(OpcodeTable& table);
void register_texture(OpcodeTable& table);

namespace {

template <class T>
SOFTGPU_INLINE T* reg(const Warp& warp, uint32_t offset) {
  return reinterpret_cast<T*>(__builtin_assume_aligned(warp.registers + offset, 64));
}

SOFTGPU_INLINE uint32_t& predicate(const Warp& warp, uint32_t offset) {
  return *reinterpret_cast<uint32_t*>(warp.registers + offset);
}

SOFTGPU_INLINE void write_predicate(const Warp& warp, uint32_t offset, uint32_t value) {
  uint32_t& p = predicate(warp, offset);
  p = (p & ~warp.mask) | (value & warp.mask);
}

// d[i] = f(i) for every active lane. f must be harmless on inactive lanes' garbage.
template <class D, class F>
SOFTGPU_INLINE void write(const Warp& warp, uint32_t destination, F f) {
  D* const d = reg<D>(warp, destination);
  if (warp.mask == full_mask) {
#pragma GCC ivdep
    for (uint32_t i = 0; i < warp_lanes; ++i) d[i] = f(i);
  } else {
    const int32_t* const m = warp.lane_mask;
#pragma GCC ivdep
    for (uint32_t i = 0; i < warp_lanes; ++i) {
      const D value = f(i);
      if constexpr (sizeof(D) == 2) {  // gcc 12 cannot expand a masked 16-bit minimum for AVX-512
        const auto keep = static_cast<int16_t>(~m[i]);
        d[i] = static_cast<D>((value & ~keep) | (d[i] & keep));
      } else {
        d[i] = m[i] ? value : d[i];
      }
    }
  }
}

// f(i) for every active lane, in lane order; for what has side effects or is expensive.
template <class F>
SOFTGPU_INLINE void each_active(const Warp& warp, F f) {
  for (uint32_t rest = warp.mask; rest != 0; rest &= rest - 1)
    f(static_cast<uint32_t>(std::countr_zero(rest)));
}

// The mask of lanes for which f(i) holds.
template <class F>
SOFTGPU_INLINE uint32_t collect(F f) {
  uint32_t result = 0;
  for (uint32_t i = 0; i < warp_lanes; ++i) result |= f(i) ? uint32_t{1} << i : 0;
  return result;
}

// A .sync instruction, whose member masks are the register at `masks_at`. act(mask, lanes) computes it for
// the running lanes, which all name `mask`; `lanes` are those of them that are here. It is called once for
// each mask that the lanes name, so it must not read from a register what the instruction writes.
template <class Act>
SOFTGPU_INLINE void together(Warp& warp, const Instruction& in, uint32_t masks_at, Act act,
                             bool exchanges = true) {
  const uint32_t* const masks = reg<uint32_t>(warp, masks_at);
  const uint32_t mask = masks[std::countr_zero(warp.mask)];
  const uint32_t same = collect([&](uint32_t i) { return masks[i] == mask; });
  if ((warp.mask & ~same) == 0) [[likely]] {
    if (converge(warp, in, mask, exchanges)) act(mask, warp.mask & mask);
    return;
  }
  uint32_t named[warp_lanes];
  std::memcpy(named, masks, sizeof(named));
  const uint32_t here = warp.mask;
  for (uint32_t rest = converge_apart(warp, in, named, exchanges); rest != 0;) {
    const uint32_t one = named[std::countr_zero(rest)];
    const uint32_t lanes = rest & collect([&](uint32_t i) { return named[i] == one; });
    set_mask(warp, lanes);
    act(one, here & one);
    rest &= ~lanes;
  }
  set_mask(warp, warp.group_mask);
}

template <class Op, class D, class A>
void unary(Warp& warp, const Instruction& in) {
  const A* const a = reg<A>(warp, in.op[1]);
  write<D>(warp, in.op[0], [=](uint32_t i) { return static_cast<D>(Op::apply(a[i])); });
}

template <class Op, class D, class A, class B = A>
void binary(Warp& warp, const Instruction& in) {
  const A* const a = reg<A>(warp, in.op[1]);
  const B* const b = reg<B>(warp, in.op[2]);
  write<D>(warp, in.op[0], [=](uint32_t i) { return static_cast<D>(Op::apply(a[i], b[i])); });
}

template <class Op, class D, class A, class B = A, class C = A>
void ternary(Warp& warp, const Instruction& in) {
  const A* const a = reg<A>(warp, in.op[1]);
  const B* const b = reg<B>(warp, in.op[2]);
  const C* const c = reg<C>(warp, in.op[3]);
  write<D>(warp, in.op[0], [=](uint32_t i) { return static_cast<D>(Op::apply(a[i], b[i], c[i])); });
}

template <class T>
struct WiderOf;
template <>
struct WiderOf<uint16_t> {
  using Type = uint32_t;
};
template <>
struct WiderOf<int16_t> {
  using Type = int32_t;
};
template <>
struct WiderOf<uint32_t> {
  using Type = uint64_t;
};
template <>
struct WiderOf<int32_t> {
  using Type = int64_t;
};
template <>
struct WiderOf<uint64_t> {
  using Type = unsigned __int128;
};
template <>
struct WiderOf<int64_t> {
  using Type = __int128;
};
template <class T>
using Wider = typename WiderOf<T>::Type;

// std::make_unsigned, but 16-bit arithmetic in 32 bits so that promotion to int cannot overflow.
template <class T>
using Work = std::conditional_t<(sizeof(T) < 4), uint32_t, std::make_unsigned_t<T>>;

template <class T>
constexpr const char* letters(const char* h, const char* w, const char* x) {
  return sizeof(T) == 2 ? h : sizeof(T) == 4 ? w : x;
}

}  // namespace
}  // namespace softgpu::SOFTGPU_ISA

// mov, and the internal steps that pack and unpack vectors.
#include "softgpu/exec/handlers/lanes.h"

namespace softgpu::SOFTGPU_ISA {
namespace {

struct Quad {
  uint64_t low, high;
};

template <class T>
void copy(Warp& warp, const Instruction& in) {
  const T* const a = reg<T>(warp, in.op[1]);
  write<T>(warp, in.op[0], [=](uint32_t i) { return a[i]; });
}
void copy_quad(Warp& warp, const Instruction& in) {
  const Quad* const a = reg<Quad>(warp, in.op[1]);
  Quad* const d = reg<Quad>(warp, in.op[0]);
  each_active(warp, [=](uint32_t i) { d[i] = a[i]; });
}
void copy_predicate(Warp& warp, const Instruction& in) {
  write_predicate(warp, in.op[0], predicate(warp, in.op[1]));
}

// op[0] = {list}: element 0 in the lowest bits.
template <class D, class E>
void pack(Warp& warp, const Instruction& in) {
  constexpr uint32_t part_count = sizeof(D) / sizeof(E);
  const E* parts[part_count];
  for (uint32_t k = 0; k < part_count; ++k) parts[k] = reg<E>(warp, in.list[k]);
  write<D>(warp, in.op[0], [&](uint32_t i) {
    D value = 0;
    for (uint32_t k = 0; k < part_count; ++k) value |= static_cast<D>(D{parts[k][i]} << (8 * sizeof(E) * k));
    return value;
  });
}
// {list} = op[0]
template <class S, class E>
void unpack(Warp& warp, const Instruction& in) {
  alignas(64) S source[warp_lanes];
  std::memcpy(source, reg<S>(warp, in.op[0]), sizeof(source));
  for (uint32_t k = 0; k < sizeof(S) / sizeof(E); ++k) {
    write<E>(warp, in.list[k], [&](uint32_t i) { return static_cast<E>(source[i] >> (8 * sizeof(E) * k)); });
  }
}
// The same for registers of 8 bits, which have lanes of 16.
template <class D>
void pack_bytes(Warp& warp, const Instruction& in) {
  const uint16_t* parts[sizeof(D)];
  for (uint32_t k = 0; k < sizeof(D); ++k) parts[k] = reg<uint16_t>(warp, in.list[k]);
  write<D>(warp, in.op[0], [&](uint32_t i) {
    D value = 0;
    for (uint32_t k = 0; k < sizeof(D); ++k) value |= static_cast<D>(D(parts[k][i] & 0xffu) << (8 * k));
    return value;
  });
}
template <class S>
void unpack_bytes(Warp& warp, const Instruction& in) {
  alignas(64) S source[warp_lanes];
  std::memcpy(source, reg<S>(warp, in.op[0]), sizeof(source));
  for (uint32_t k = 0; k < sizeof(S); ++k) {
    write<uint16_t>(warp, in.list[k],
                    [&](uint32_t i) { return static_cast<uint16_t>(source[i] >> (8 * k) & 0xff); });
  }
}
void pack_quad(Warp& warp, const Instruction& in) {
  const uint64_t* const low = reg<uint64_t>(warp, in.list[0]);
  const uint64_t* const high = reg<uint64_t>(warp, in.list[1]);
  Quad* const d = reg<Quad>(warp, in.op[0]);
  each_active(warp, [=](uint32_t i) { d[i] = Quad{low[i], high[i]}; });
}
void unpack_quad(Warp& warp, const Instruction& in) {
  const Quad* const a = reg<Quad>(warp, in.op[0]);
  uint64_t* const low = reg<uint64_t>(warp, in.list[0]);
  uint64_t* const high = reg<uint64_t>(warp, in.list[1]);
  each_active(warp, [=](uint32_t i) {
    low[i] = a[i].low;
    high[i] = a[i].high;
  });
}

template <class D, class A>
void resize(Warp& warp, const Instruction& in) {
  const A* const a = reg<A>(warp, in.op[1]);
  write<D>(warp, in.op[0], [=](uint32_t i) { return static_cast<D>(a[i]); });
}

void read_clock64(Warp& warp, const Instruction& in) {
  const uint64_t now = read_clock(warp);
  write<uint64_t>(warp, in.op[0], [=](uint32_t) { return now; });
}
void read_clock32(Warp& warp, const Instruction& in) {
  const auto now = static_cast<uint32_t>(read_clock(warp) >> in.aux);
  write<uint32_t>(warp, in.op[0], [=](uint32_t) { return now; });
}
void read_timer64(Warp& warp, const Instruction& in) {
  const uint64_t now = read_global_timer();
  write<uint64_t>(warp, in.op[0], [=](uint32_t) { return now; });
}
void read_timer32(Warp& warp, const Instruction& in) {
  const auto now = static_cast<uint32_t>(read_global_timer() >> in.aux);
  write<uint32_t>(warp, in.op[0], [=](uint32_t) { return now; });
}

// Address of a .local or .param variable of this frame: offset within the thread's local memory
// (aux 0) or as a generic address (aux 1).
void local_address(Warp& warp, const Instruction& in) {
  const uint64_t offset = warp.frame->local_offset + static_cast<uint64_t>(in.immediate);
  const uint64_t base = in.aux ? warp.local_base : 0, stride = in.aux ? warp.local_stride : 0;
  write<uint64_t>(warp, in.op[0], [=](uint32_t i) { return base + i * stride + offset; });
}
// Address of a kernel parameter.
void parameter_address(Warp& warp, const Instruction& in) {
  const uint64_t address = warp.parameters + static_cast<uint64_t>(in.immediate);
  write<uint64_t>(warp, in.op[0], [=](uint32_t) { return address; });
}

}  // namespace

void register_move(OpcodeTable& table) {
  table.add("mov.{b16,u16,s16,f16,bf16}", "h=h", copy<uint16_t>);
  table.add("mov.{b32,u32,s32,f32,f16x2,bf16x2}", "w=w", copy<uint32_t>);
  table.add("mov.{b64,u64,s64,f64}", "x=x", copy<uint64_t>);
  table.add("mov.b128", "q=q", copy_quad);
  table.add("mov.pred", "p=p", copy_predicate);
  table.add("@pack.h.w", "", pack<uint32_t, uint16_t>);
  table.add("@pack.h.x", "", pack<uint64_t, uint16_t>);
  table.add("@pack.w.x", "", pack<uint64_t, uint32_t>);
  table.add("@pack.x.q", "", pack_quad);
  table.add("@pack.b.h", "", pack_bytes<uint16_t>);
  table.add("@pack.b.w", "", pack_bytes<uint32_t>);
  table.add("@unpack.b.h", "", unpack_bytes<uint16_t>);
  table.add("@unpack.b.w", "", unpack_bytes<uint32_t>);
  table.add("@unpack.h.w", "", unpack<uint32_t, uint16_t>);
  table.add("@unpack.h.x", "", unpack<uint64_t, uint16_t>);
  table.add("@unpack.w.x", "", unpack<uint64_t, uint32_t>);
  table.add("@unpack.x.q", "", unpack_quad);
  table.add("@trunc.w.h", "", resize<uint16_t, uint32_t>);
  table.add("@trunc.x.h", "", resize<uint16_t, uint64_t>);
  table.add("@trunc.x.w", "", resize<uint32_t, uint64_t>);
  table.add("@zext.h.w", "", resize<uint32_t, uint16_t>);
  table.add("@zext.h.x", "", resize<uint64_t, uint16_t>);
  table.add("@zext.w.x", "", resize<uint64_t, uint32_t>);
  table.add("@sext.h.w", "", resize<int32_t, int16_t>);
  table.add("@sext.h.x", "", resize<int64_t, int16_t>);
  table.add("@sext.w.x", "", resize<int64_t, int32_t>);
  table.add("@clock64", "", read_clock64);
  table.add("@clock", "", read_clock32, 0);
  table.add("@clock_hi", "", read_clock32, 32);
  table.add("@globaltimer", "", read_timer64);
  table.add("@globaltimer_lo", "", read_timer32, 0);
  table.add("@globaltimer_hi", "", read_timer32, 32);
  table.add("@local_address", "", local_address, 0);
  table.add("@local_generic_address", "", local_address, 1);
  table.add("@parameter_address", "", parameter_address);
}

}  // namespace softgpu::SOFTGPU_ISA

// wmma: the manual leaves open where a fragment's elements lie. Ours: element i, in row-major order for A, C
// and D and in column-major order for B, lies in lane i % 32, slot i / 32; slots fill the registers from the
// low bits of the first one on, and what is left over is zero. So loads and stores of 32 neighbours touch one
// line.
#include "softgpu/exec/program/wmma_shape.h"

#include "softgpu/exec/handlers/address.h"
#include "softgpu/exec/handlers/half_format.h"

namespace softgpu::SOFTGPU_ISA {
namespace {

using namespace wmma;

uint32_t read_slot(const Warp& warp, const uint32_t* list, uint32_t lane, uint32_t slot, uint32_t bits) {
  const uint32_t per_register = 32 / bits;
  const uint32_t word = reg<uint32_t>(warp, list[slot / per_register])[lane];
  return bits == 32 ? word : word >> (slot % per_register * bits) & ((1u << bits) - 1);
}

// How element (row, column) of the fragment lies in memory, in elements from the first.
uint64_t memory_index(const Fragment& f, uint32_t element, uint64_t stride, bool column_major) {
  const uint32_t row = f.by_columns() ? element % f.rows : element / f.columns;
  const uint32_t column = f.by_columns() ? element / f.rows : element % f.columns;
  return column_major ? column * stride + row : row * stride + column;
}

// op[0] address, op[1] stride in elements; list: registers; immediate: packed Fragment; aux: how, 16
// column-major
void check_matrix(Warp& warp, const Instruction& in, const Fragment& f, uint64_t stride, uint64_t first) {
  for (uint32_t k = 0; k < f.elements(); ++k) {
    const uint64_t bit = memory_index(f, k, stride, in.aux & 16) * f.bits;
    if (!address_is_valid(warp, first + bit / 8, (f.bits + 7) / 8))
      raise_fault(warp, in, Fault::illegal_address, "illegal address of a matrix element", first + bit / 8);
  }
}
uint64_t first_address(Warp& warp, const Instruction& in, const Fragment& f) {
  Addresses a;
  resolve(warp, in, in.op[0], in.aux & 15, 0, f.bits >= 8 ? f.bits / 8 : 4, a);
  return a.at[std::countr_zero(warp.mask)];
}

void load_fragment(Warp& warp, const Instruction& in) {
  if (!converge(warp, in, full_mask)) return;
  const Fragment f = unpack(static_cast<uint64_t>(in.immediate));
  const uint64_t stride = reg<uint32_t>(warp, in.op[1])[std::countr_zero(warp.mask)];
  const uint64_t first = first_address(warp, in, f);
  check_matrix(warp, in, f, stride, first);
  for (uint32_t r = 0; r < in.list_size; ++r) {
    if (f.bits == 64) {
      uint64_t values[warp_lanes] = {};
      for (uint32_t lane = 0; lane < warp_lanes && r * warp_lanes + lane < f.elements(); ++lane)
        values[lane] =
            read_from<uint64_t>(first + 8 * memory_index(f, r * warp_lanes + lane, stride, in.aux & 16));
      uint64_t* const d = reg<uint64_t>(warp, in.list[r]);
      each_active(warp, [&](uint32_t i) { d[i] = values[i]; });
      continue;
    }
    uint32_t values[warp_lanes] = {};
    const uint32_t per_register = 32 / f.bits;
    for (uint32_t lane = 0; lane < warp_lanes; ++lane) {
      for (uint32_t e = 0; e < per_register; ++e) {
        const uint32_t element = (r * per_register + e) * warp_lanes + lane;
        if (element >= f.elements()) continue;
        const uint64_t bit = memory_index(f, element, stride, in.aux & 16) * f.bits;
        const uint32_t word = f.bits == 32   ? read_from<uint32_t>(first + bit / 8)
                              : f.bits == 16 ? read_from<uint16_t>(first + bit / 8)
                                             : read_from<uint8_t>(first + bit / 8) >> bit % 8;
        values[lane] |= (f.bits == 32 ? word : word & ((1u << f.bits) - 1)) << (e * f.bits);
      }
    }
    uint32_t* const d = reg<uint32_t>(warp, in.list[r]);
    each_active(warp, [&](uint32_t i) { d[i] = values[i]; });
  }
}

void store_fragment(Warp& warp, const Instruction& in) {
  if (!converge(warp, in, full_mask)) return;
  const Fragment f = unpack(static_cast<uint64_t>(in.immediate));
  const uint64_t stride = reg<uint32_t>(warp, in.op[1])[std::countr_zero(warp.mask)];
  const uint64_t first = first_address(warp, in, f);
  check_matrix(warp, in, f, stride, first);
  for (uint32_t k = 0; k < f.elements(); ++k) {
    const uint64_t to = first + memory_index(f, k, stride, in.aux & 16) * f.bits / 8;
    if (f.bits == 64) {
      write_to(to, reg<uint64_t>(warp, in.list[k / warp_lanes])[k % warp_lanes]);
    } else if (f.bits == 32) {
      write_to(to, read_slot(warp, in.list, k % warp_lanes, k / warp_lanes, 32));
    } else {
      write_to(to, static_cast<uint16_t>(read_slot(warp, in.list, k % warp_lanes, k / warp_lanes, 16)));
    }
  }
}

double element_value(Element type, uint32_t bits) {
  switch (type) {
    case Element::f16:
      return HalfFormat::load(static_cast<uint16_t>(bits));
    case Element::bf16:
      return BfloatFormat::load(static_cast<uint16_t>(bits));
    case Element::tf32:
      return std::bit_cast<float>(bits & ~0x1fffu);
    case Element::f32:
      return std::bit_cast<float>(bits);
    case Element::s8:
      return static_cast<int8_t>(bits);
    case Element::s4:
      return static_cast<int32_t>(bits << 28) >> 28;
    case Element::s32:
      return static_cast<int32_t>(bits);
    default:  // u8, u4, b1
      return bits;
  }
}

// list: d, a, b, c; immediate: packed Multiply
void multiply(Warp& warp, const Instruction& in) {
  if (!converge(warp, in, full_mask)) return;
  const Multiply m = unpack_multiply(static_cast<uint64_t>(in.immediate));
  const Fragment a = fragment('a', m.m, m.n, m.k, m.a), b = fragment('b', m.m, m.n, m.k, m.b);
  const Fragment c = fragment('c', m.m, m.n, m.k, m.c), d = fragment('d', m.m, m.n, m.k, m.d);
  const uint32_t* const list_a = in.list + registers(d);
  const uint32_t* const list_b = list_a + registers(a);
  const uint32_t* const list_c = list_b + registers(b);
  static thread_local double values_a[32 * 128], values_b[32 * 128];
  if (m.a == Element::f64) {
    for (uint32_t k = 0; k < a.elements(); ++k)
      values_a[k] = reg<double>(warp, list_a[k / warp_lanes])[k % warp_lanes];
    for (uint32_t k = 0; k < b.elements(); ++k)
      values_b[k] = reg<double>(warp, list_b[k / warp_lanes])[k % warp_lanes];
  } else {
    for (uint32_t k = 0; k < a.elements(); ++k)
      values_a[k] = element_value(m.a, read_slot(warp, list_a, k % warp_lanes, k / warp_lanes, a.bits));
    for (uint32_t k = 0; k < b.elements(); ++k)
      values_b[k] = element_value(m.b, read_slot(warp, list_b, k % warp_lanes, k / warp_lanes, b.bits));
  }
  double results[32 * 32];
  const RoundingScope scope(m.a == Element::f64 ? m.rounding : 0);
  for (uint32_t row = 0; row < m.m; ++row) {
    for (uint32_t column = 0; column < m.n; ++column) {
      const uint32_t at = row * m.n + column;
      const double* const x = values_a + row * m.k;
      const double* const y = values_b + column * m.k;
      if (m.a == Element::f64) {
        double sum = reg<double>(warp, list_c[at / warp_lanes])[at % warp_lanes];
        for (uint32_t k = 0; k < m.k; ++k) sum = __builtin_fma(x[k], y[k], sum);
        results[at] = sum;
        continue;
      }
      const double start =
          element_value(m.c, read_slot(warp, list_c, at % warp_lanes, at / warp_lanes, c.bits));
      if (m.d == Element::s32) {
        double sum = start;
        for (uint32_t k = 0; k < m.k; ++k) {
          sum += m.bit_operation == 1   ? double(uint32_t(x[k]) ^ uint32_t(y[k]))
                 : m.bit_operation == 2 ? double(uint32_t(x[k]) & uint32_t(y[k]))
                                        : x[k] * y[k];
        }
        results[at] = sum;
      } else {
        float sum = static_cast<float>(start);
        for (uint32_t k = 0; k < m.k; ++k) sum += static_cast<float>(x[k]) * static_cast<float>(y[k]);
        results[at] = sum;
      }
    }
  }
  auto bits_of = [&](double value) -> uint32_t {
    if (m.d == Element::s32) {
      if (m.saturates)
        return static_cast<uint32_t>(static_cast<int32_t>(value > INT32_MAX   ? INT32_MAX
                                                          : value < INT32_MIN ? INT32_MIN
                                                                              : value));
      return static_cast<uint32_t>(static_cast<int64_t>(value));
    }
    if (m.d == Element::f16) return HalfFormat::store(static_cast<float>(value));
    return std::bit_cast<uint32_t>(static_cast<float>(value));
  };
  for (uint32_t r = 0; r < registers(d); ++r) {
    each_active(warp, [&](uint32_t lane) {
      if (m.d == Element::f64) {
        reg<double>(warp, in.list[r])[lane] = results[r * warp_lanes + lane];
      } else if (d.bits == 16) {
        reg<uint32_t>(warp, in.list[r])[lane] = bits_of(results[2 * r * warp_lanes + lane]) |
                                                bits_of(results[(2 * r + 1) * warp_lanes + lane]) << 16;
      } else {
        reg<uint32_t>(warp, in.list[r])[lane] = bits_of(results[r * warp_lanes + lane]);
      }
    });
  }
}

}  // namespace

void register_wmma(OpcodeTable& table) {
  table.add("@wmma.load", "", load_fragment);
  table.add("@wmma.store", "", store_fragment);
  table.add("@wmma.mma", "", multiply);
}

}  // namespace softgpu::SOFTGPU_ISA

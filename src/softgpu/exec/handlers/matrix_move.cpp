// ldmatrix of bytes, stmatrix, movmatrix. matrix.cpp has the common ldmatrix and draws its fragments. Steps
// "@ldmatrix.*" and "@stmatrix.*": op[0] the address of a row, list the registers, aux how to address.
#include "softgpu/exec/handlers/address.h"

namespace softgpu::SOFTGPU_ISA {
namespace {

// Resolves the row addresses of the lanes that give one: the first `rows`. Rows have 16 bytes.
void resolve_rows(Warp& warp, const Instruction& in, uint32_t rows, Addresses& a) {
  const uint32_t all = warp.mask, used = rows == warp_lanes ? full_mask : (uint32_t{1} << rows) - 1;
  set_mask(warp, used & all);
  if (warp.mask == 0)
    raise_fault(warp, in, Fault::illegal_instruction, "matrix access without its address lanes");
  resolve(warp, in, in.op[0], in.aux & 15, 0, 16, a);
  set_mask(warp, all);
}

// ldmatrix.m16n16.trans.b8: each matrix gives two registers. Byte e of register r is the element in row
// 4 * (lane % 4) + e and column lane / 4 + 8 * r.
template <uint32_t element_bits>
void load_transposed_bytes(Warp& warp, const Instruction& in) {
  if (!converge(warp, in, full_mask)) return;
  Addresses a;
  const uint32_t matrices = in.list_size / 2;
  resolve_rows(warp, in, 16 * matrices, a);
  for (uint32_t n = 0; n < in.list_size; ++n) {
    uint32_t values[warp_lanes] = {};
    for (uint32_t lane = 0; lane < warp_lanes; ++lane) {
      const uint32_t column = lane / 4 + 8 * (n % 2);
      for (uint32_t e = 0; e < 4; ++e) {
        const uint64_t row = a.at[16 * (n / 2) + lane % 4 * 4 + e];
        const uint32_t bit = column * element_bits;
        const uint32_t bits = read_from<uint8_t>(row + bit / 8) |
                              uint32_t{read_from<uint8_t>(row + (bit + element_bits - 1) / 8)} << 8;
        values[lane] |= (bits >> bit % 8 & ((1u << element_bits) - 1)) << (8 * e);
      }
    }
    uint32_t* const d = reg<uint32_t>(warp, in.list[n]);
    each_active(warp, [&](uint32_t i) { d[i] = values[i]; });
  }
}

// ldmatrix.m8n16.b8x16.{b4x16_p64,b6x16_p32}: rows of 16 packed elements become bytes, with the element in
// the low bits. Byte e of a register is the element in row lane / 4 and column 4 * (lane % 4) + e.
template <uint32_t element_bits>
void load_unpacked(Warp& warp, const Instruction& in) {
  if (!converge(warp, in, full_mask)) return;
  Addresses a;
  resolve_rows(warp, in, 8 * in.list_size, a);
  for (uint32_t n = 0; n < in.list_size; ++n) {
    uint32_t values[warp_lanes] = {};
    for (uint32_t lane = 0; lane < warp_lanes; ++lane) {
      const uint64_t row = a.at[8 * n + lane / 4];
      for (uint32_t e = 0; e < 4; ++e) {
        const uint32_t bit = (lane % 4 * 4 + e) * element_bits;
        const uint32_t bits = read_from<uint8_t>(row + bit / 8) |
                              uint32_t{read_from<uint8_t>(row + (bit + element_bits - 1) / 8)} << 8;
        values[lane] |= (bits >> bit % 8 & ((1u << element_bits) - 1)) << (8 * e);
      }
    }
    uint32_t* const d = reg<uint32_t>(warp, in.list[n]);
    each_active(warp, [&](uint32_t i) { d[i] = values[i]; });
  }
}

// stmatrix.m8n8.b16 and, transposed, .m16n8.b8: lanes that take no part leave their elements as they are.
enum class Store { halves, transposed_halves, transposed_bytes };
template <Store layout>
void store_matrices(Warp& warp, const Instruction& in) {
  if (!converge(warp, in, full_mask)) return;
  Addresses a;
  resolve_rows(warp, in, 8 * in.list_size, a);
  for (uint32_t n = 0; n < in.list_size; ++n) {
    const uint32_t* const values = reg<uint32_t>(warp, in.list[n]);
    each_active(warp, [&](uint32_t lane) {
      const uint64_t* const row = a.at + 8 * n;
      const uint32_t group = lane / 4, pair = lane % 4;
      if constexpr (layout == Store::halves) {
        write_to(row[group] + 4 * pair, values[lane]);
      } else if constexpr (layout == Store::transposed_halves) {
        write_to(row[2 * pair] + 2 * group, static_cast<uint16_t>(values[lane]));
        write_to(row[2 * pair + 1] + 2 * group, static_cast<uint16_t>(values[lane] >> 16));
      } else {
        for (uint32_t e = 0; e < 4; ++e)
          write_to(row[2 * pair + e % 2] + group + 8 * (e / 2),
                   static_cast<uint8_t>(values[lane] >> (8 * e)));
      }
    });
  }
}

// movmatrix.sync.aligned.m8n8.trans.b16 d, a
void transpose(Warp& warp, const Instruction& in) {
  if (!converge(warp, in, full_mask)) return;
  uint32_t a[warp_lanes];
  std::memcpy(a, reg<uint32_t>(warp, in.op[1]), sizeof(a));
  auto element = [&](uint32_t row, uint32_t column) {
    return a[4 * row + column / 2] >> (16 * (column % 2)) & 0xffff;
  };
  uint32_t* const d = reg<uint32_t>(warp, in.op[0]);
  each_active(warp, [&](uint32_t lane) {
    const uint32_t row = lane / 4, column = lane % 4 * 2;
    d[lane] = element(column, row) | element(column + 1, row) << 16;
  });
}

}  // namespace

void register_matrix_move(OpcodeTable& table) {
  table.add("@ldmatrix.m16n16.b8", "", load_transposed_bytes<8>);
  table.add("@ldmatrix.m16n16.b6", "", load_transposed_bytes<6>);
  table.add("@ldmatrix.m16n16.b4", "", load_transposed_bytes<4>);
  table.add("@ldmatrix.m8n16.b6", "", load_unpacked<6>);
  table.add("@ldmatrix.m8n16.b4", "", load_unpacked<4>);
  table.add("@stmatrix.b16", "", store_matrices<Store::halves>);
  table.add("@stmatrix.trans.b16", "", store_matrices<Store::transposed_halves>);
  table.add("@stmatrix.trans.b8", "", store_matrices<Store::transposed_bytes>);
  table.add("movmatrix.sync.aligned.m8n8.trans.b16", "w=w", transpose);
}

}  // namespace softgpu::SOFTGPU_ISA

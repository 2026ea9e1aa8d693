// Loads and stores. Internal steps, named by memory type and register size: "@load.u8.w", "@store.4.w",
// "@vload.u32.w" (elements in list); and cp.async, which runs synchronously.
#include "softgpu/exec/handlers/address.h"

namespace softgpu::SOFTGPU_ISA {
namespace {

using Quad = Vector16;

template <class M, class R>
[[gnu::noinline]] void load_looking(Warp& warp, const Instruction& in) {
  AddressShape own;
  Rows rows;
  if (may_be_regular(in)) {
    const AddressShape& shape = shape_of(warp, in, in.op[1], sizeof(M), own);
    R* const d = reg<R>(warp, in.op[0]);
    uint64_t address;
    if (warp.mask == full_mask && resolve_whole(warp, in, shape, sizeof(M), address)) {
      if (shape.whole == Shape::uniform) {
        const R value = static_cast<R>(read_from<M>(address));
        for (uint32_t i = 0; i < warp_lanes; ++i) d[i] = value;
      } else if constexpr (sizeof(M) == sizeof(R)) {
        std::memcpy(d, reinterpret_cast<const void*>(address), warp_lanes * sizeof(M));
      } else {
        M values[warp_lanes];
        std::memcpy(values, reinterpret_cast<const void*>(address), sizeof(values));
        for (uint32_t i = 0; i < warp_lanes; ++i) d[i] = static_cast<R>(values[i]);
      }
      return;
    }
    if (resolve_rows(warp, in, shape, sizeof(M), rows)) {
      if (may_read_all(warp, in)) {
        if (sizeof(M) == sizeof(R) && warp.mask == full_mask) {
          read_row(shape.row[0], rows.at[0], reinterpret_cast<M*>(d));
          read_row(shape.row[1], rows.at[1], reinterpret_cast<M*>(d) + row_lanes);
          return;
        }
        alignas(64) M values[warp_lanes];
        read_row(shape.row[0], rows.at[0], values);
        read_row(shape.row[1], rows.at[1], values + row_lanes);
        return write<R>(warp, in.op[0], [&](uint32_t i) { return static_cast<R>(values[i]); });
      }
      return each_active(warp, [&](uint32_t i) {
        d[i] = static_cast<R>(read_from<M>(lane_address(shape, rows, sizeof(M), i)));
      });
    }
  }
  Addresses a;
  resolve(warp, in, in.op[1], in.aux, in.immediate, sizeof(M), a);
  alignas(64) M values[warp_lanes];
#pragma GCC unroll 8
  for (uint32_t i = 0; i < warp_lanes; ++i) values[i] = read_from<M>(a.at[i]);
  write<R>(warp, in.op[0], [&](uint32_t i) { return static_cast<R>(values[i]); });
}

void load_quad(Warp& warp, const Instruction& in) {
  Addresses a;
  resolve(warp, in, in.op[1], in.aux, in.immediate, 16, a);
  Quad* const d = reg<Quad>(warp, in.op[0]);
  each_active(warp, [&](uint32_t i) { d[i] = read_from<Quad>(a.at[i]); });
}

// R d = M at [op[1] + immediate]
template <class M, class R>
void load(Warp& warp, const Instruction& in) {
  if constexpr (sizeof(M) == sizeof(R)) {
    if (const AddressShape* const shape = known_rows(warp, in, sizeof(M))) {
      R* const d = reg<R>(warp, in.op[0]);
      const auto offset = static_cast<uint64_t>(in.immediate);
      if (shape->whole == Shape::contiguous) {
        std::memcpy(d, reinterpret_cast<const void*>(shape->host[0] + offset), warp_lanes * sizeof(M));
      } else {
        read_row(shape->row[0], shape->host[0] + offset, reinterpret_cast<M*>(d));
        read_row(shape->row[1], shape->host[1] + offset, reinterpret_cast<M*>(d) + row_lanes);
      }
      return;
    }
  }
  load_looking<M, R>(warp, in);
}

// Do all lanes, each with `bytes`, lie one behind the other? For accesses of vectors at [op[0]].
SOFTGPU_INLINE bool is_contiguous(const Warp& warp, const Instruction& in, uint32_t bytes,
                                  uint64_t& address) {
  if (warp.mask != full_mask || !may_be_regular(in)) return false;
  AddressShape own;
  const AddressShape& shape = shape_of(warp, in, in.op[0], bytes, own);
  return shape.whole == Shape::contiguous && resolve_whole(warp, in, shape, bytes, address);
}

// {list} = consecutive elements at [op[0] + immediate]; aux names how many bytes all are.
template <class M, class R>
void load_vector(Warp& warp, const Instruction& in) {
  const uint32_t count = in.list_size;
  uint64_t address;
  if (is_contiguous(warp, in, in.aux >> memory_operand::address_bits, address)) {
    alignas(64) M values[warp_lanes * 8];
    std::memcpy(values, reinterpret_cast<const void*>(address), warp_lanes * count * sizeof(M));
    for (uint32_t k = 0; k < count; ++k) {
      R* const d = reg<R>(warp, in.list[k]);
      const M* const from = values + k;
      if (count == 4) {
        for (uint32_t i = 0; i < warp_lanes; ++i) d[i] = static_cast<R>(from[4 * i]);
      } else if (count == 2) {
        for (uint32_t i = 0; i < warp_lanes; ++i) d[i] = static_cast<R>(from[2 * i]);
      } else {
        for (uint32_t i = 0; i < warp_lanes; ++i) d[i] = static_cast<R>(from[count * i]);
      }
    }
    return;
  }
  const uint32_t bytes = in.aux >> memory_operand::address_bits;
  Addresses a;
  resolve(warp, in, in.op[0], in.aux, in.immediate, bytes, a);
  alignas(64) M values[warp_lanes * 8];
  for (uint32_t i = 0; i < warp_lanes; ++i)
    copy_vector(reinterpret_cast<uint64_t>(values + i * count), a.at[i], bytes);
  for (uint32_t k = 0; k < count; ++k)
    write<R>(warp, in.list[k], [&](uint32_t i) { return static_cast<R>(values[i * count + k]); });
}
void load_vector_quad(Warp& warp, const Instruction& in) {
  Addresses a;
  resolve(warp, in, in.op[0], in.aux, in.immediate, in.aux >> memory_operand::address_bits, a);
  for (uint32_t k = 0; k < in.list_size; ++k) {
    Quad* const d = reg<Quad>(warp, in.list[k]);
    each_active(warp, [&](uint32_t i) { d[i] = read_from<Quad>(a.at[i] + k * sizeof(Quad)); });
  }
}

template <class M, class R>
[[gnu::noinline]] void store_looking(Warp& warp, const Instruction& in) {
  const R* const source = reg<R>(warp, in.op[1]);
  AddressShape own;
  Rows rows;
  if (may_be_regular(in)) {
    const AddressShape& shape = shape_of(warp, in, in.op[0], sizeof(M), own);
    uint64_t address;
    if (warp.mask == full_mask && shape.whole == Shape::contiguous &&
        resolve_whole(warp, in, shape, sizeof(M), address)) {
      if constexpr (sizeof(M) == sizeof(R)) {
        std::memcpy(reinterpret_cast<void*>(address), source, warp_lanes * sizeof(M));
      } else {
        M values[warp_lanes];
        for (uint32_t i = 0; i < warp_lanes; ++i) values[i] = static_cast<M>(source[i]);
        std::memcpy(reinterpret_cast<void*>(address), values, sizeof(values));
      }
      return;
    }
    if (resolve_rows(warp, in, shape, sizeof(M), rows)) {
      const bool by_rows = shape.row[0] == Shape::contiguous && shape.row[1] == Shape::contiguous;
      if (warp.mask == full_mask && by_rows && sizeof(M) == sizeof(R)) {
        std::memcpy(reinterpret_cast<void*>(rows.at[0]), source, row_lanes * sizeof(M));
        std::memcpy(reinterpret_cast<void*>(rows.at[1]), source + row_lanes, row_lanes * sizeof(M));
        return;
      }
      return each_active(warp, [&](uint32_t i) {
        write_to(lane_address(shape, rows, sizeof(M), i), static_cast<M>(source[i]));
      });
    }
  }
  Addresses a;
  resolve(warp, in, in.op[0], in.aux, in.immediate, sizeof(M), a);
  each_active(warp, [&](uint32_t i) { write_to(a.at[i], static_cast<M>(source[i])); });
}
// M at [op[0] + immediate] = low bits of op[1]
template <class M, class R>
void store(Warp& warp, const Instruction& in) {
  if constexpr (sizeof(M) == sizeof(R)) {
    const AddressShape* const shape = known_rows(warp, in, sizeof(M));
    if (shape != nullptr && shape->row[0] == Shape::contiguous && shape->row[1] == Shape::contiguous) {
      const R* const source = reg<R>(warp, in.op[1]);
      const auto offset = static_cast<uint64_t>(in.immediate);
      std::memcpy(reinterpret_cast<void*>(shape->host[0] + offset), source, row_lanes * sizeof(M));
      std::memcpy(reinterpret_cast<void*>(shape->host[1] + offset), source + row_lanes,
                  row_lanes * sizeof(M));
      return;
    }
  }
  store_looking<M, R>(warp, in);
}
void store_quad(Warp& warp, const Instruction& in) {
  Addresses a;
  resolve(warp, in, in.op[0], in.aux, in.immediate, 16, a);
  const Quad* const source = reg<Quad>(warp, in.op[1]);
  each_active(warp, [&](uint32_t i) { write_to(a.at[i], source[i]); });
}

template <class M, class R>
void store_vector(Warp& warp, const Instruction& in) {
  if constexpr (sizeof(M) < 16) {
    const uint32_t count = in.list_size;
    uint64_t address;
    if (is_contiguous(warp, in, in.aux >> memory_operand::address_bits, address)) {
      alignas(64) M values[warp_lanes * 8];
      for (uint32_t k = 0; k < count; ++k) {
        const R* const source = reg<R>(warp, in.list[k]);
        for (uint32_t i = 0; i < warp_lanes; ++i) values[count * i + k] = static_cast<M>(source[i]);
      }
      std::memcpy(reinterpret_cast<void*>(address), values, warp_lanes * count * sizeof(M));
      return;
    }
  }
  const uint32_t bytes = in.aux >> memory_operand::address_bits;
  Addresses a;
  resolve(warp, in, in.op[0], in.aux, in.immediate, bytes, a);
  if constexpr (sizeof(M) < 16) {
    alignas(64) M values[warp_lanes * 8];
    for (uint32_t k = 0; k < in.list_size; ++k) {
      const R* const source = reg<R>(warp, in.list[k]);
      for (uint32_t i = 0; i < warp_lanes; ++i) values[i * in.list_size + k] = static_cast<M>(source[i]);
    }
    each_active(warp, [&](uint32_t i) {
      copy_vector(a.at[i], reinterpret_cast<uint64_t>(values + i * in.list_size), bytes);
    });
  } else {
    for (uint32_t k = 0; k < in.list_size; ++k) {
      const R* const source = reg<R>(warp, in.list[k]);
      each_active(warp, [&](uint32_t i) { write_to(a.at[i] + k * sizeof(M), source[i]); });
    }
  }
}

// A kernel parameter; lowering has checked the offset. (Smaller ones are constants of the frame.)
void load_parameter_quad(Warp& warp, const Instruction& in) {
  const Quad value = read_from<Quad>(warp.parameters + static_cast<uint64_t>(in.immediate));
  Quad* const d = reg<Quad>(warp, in.op[0]);
  each_active(warp, [=](uint32_t i) { d[i] = value; });
}

// op[0] shared address, op[1] source address, op[2] bytes to read (the rest is zero); aux: how to address
// the two (low and next bits), then the bytes to write.
void copy_async(Warp& warp, const Instruction& in) {
  const uint32_t how_destination = in.aux & 15, how_source = in.aux >> 4 & 15, bytes = in.aux >> 8;
  Addresses to, from;
  resolve(warp, in, in.op[0], how_destination, 0, bytes, to);
  const uint32_t* const wanted = reg<uint32_t>(warp, in.op[2]);
  uint32_t reading = 0;
  each_active(warp, [&](uint32_t i) { reading |= static_cast<uint32_t>(wanted[i] != 0) << i; });
  if (reading != 0) {
    const uint32_t all = warp.mask;
    set_mask(warp, reading);
    resolve(warp, in, in.op[1], how_source, 0, bytes, from);
    set_mask(warp, all);
  }
  if (reading == warp.mask && bytes == 16) {  // what Triton writes
    uint32_t short_of = 0;
    for (uint32_t i = 0; i < warp_lanes; ++i) short_of |= static_cast<uint32_t>(wanted[i] < 16);
    if (short_of == 0)
      return each_active(warp, [&](uint32_t i) { write_to(to.at[i], read_from<Quad>(from.at[i])); });
  }
  each_active(warp, [&](uint32_t i) {
    const uint32_t read = wanted[i] < bytes ? wanted[i] : bytes;
    auto* const d = reinterpret_cast<std::byte*>(to.at[i]);
    if (read != 0) std::memcpy(d, reinterpret_cast<const void*>(from.at[i]), read);
    std::memset(d + read, 0, bytes - read);
  });
}

template <class M, class R>
void register_load(OpcodeTable& table, const std::string& memory, const std::string& size) {
  table.add("@load." + memory + "." + size, "", load<M, R>);
  table.add("@vload." + memory + "." + size, "", load_vector<M, R>);
}
template <class M, class R>
void register_store(OpcodeTable& table, const std::string& bytes, const std::string& size) {
  table.add("@store." + bytes + "." + size, "", store<M, R>);
  table.add("@vstore." + bytes + "." + size, "", store_vector<M, R>);
}

}  // namespace

void register_memory(OpcodeTable& table) {
  register_load<uint8_t, uint16_t>(table, "u8", "h");
  register_load<uint8_t, uint32_t>(table, "u8", "w");
  register_load<uint8_t, uint64_t>(table, "u8", "x");
  register_load<int8_t, int16_t>(table, "s8", "h");
  register_load<int8_t, int32_t>(table, "s8", "w");
  register_load<int8_t, int64_t>(table, "s8", "x");
  register_load<uint16_t, uint16_t>(table, "u16", "h");
  register_load<uint16_t, uint32_t>(table, "u16", "w");
  register_load<uint16_t, uint64_t>(table, "u16", "x");
  register_load<int16_t, int16_t>(table, "s16", "h");
  register_load<int16_t, int32_t>(table, "s16", "w");
  register_load<int16_t, int64_t>(table, "s16", "x");
  register_load<uint32_t, uint32_t>(table, "u32", "w");
  register_load<uint32_t, uint64_t>(table, "u32", "x");
  register_load<int32_t, int32_t>(table, "s32", "w");
  register_load<int32_t, int64_t>(table, "s32", "x");
  register_load<uint64_t, uint64_t>(table, "{u64,s64}", "x");
  table.add("@load.b128.q", "", load_quad);
  table.add("@vload.b128.q", "", load_vector_quad);
  table.add("@load_parameter.b128.q", "", load_parameter_quad);
  register_store<uint8_t, uint16_t>(table, "1", "h");
  register_store<uint8_t, uint32_t>(table, "1", "w");
  register_store<uint8_t, uint64_t>(table, "1", "x");
  register_store<uint16_t, uint16_t>(table, "2", "h");
  register_store<uint16_t, uint32_t>(table, "2", "w");
  register_store<uint16_t, uint64_t>(table, "2", "x");
  register_store<uint32_t, uint32_t>(table, "4", "w");
  register_store<uint32_t, uint64_t>(table, "4", "x");
  register_store<uint64_t, uint64_t>(table, "8", "x");
  table.add("@store.16.q", "", store_quad);
  table.add("@vstore.16.q", "", store_vector<Quad, Quad>);
  table.add("@cp.async", "", copy_async);
}

}  // namespace softgpu::SOFTGPU_ISA

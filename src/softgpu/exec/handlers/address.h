// Address computation and checking for everything that touches memory.
#pragma once

#include <algorithm>
#include <cstring>

#include "softgpu/exec/handlers/lanes.h"
#include "softgpu/exec/program/memory_operand.h"

namespace softgpu::SOFTGPU_ISA {
namespace {

struct Addresses {
  alignas(64) uint64_t at[warp_lanes];  // host addresses; inactive lanes repeat an active one
  uint64_t lowest = 0, highest = 0;
};

[[gnu::noinline]] inline void check_slowly(Warp& warp, const Instruction& in, const Addresses& a,
                                           uint64_t size, uint64_t alignment) {
  each_active(warp, [&](uint32_t i) {
    if (a.at[i] & (alignment - 1)) {
      raise_fault(warp, in, Fault::misaligned_address, "misaligned address", a.at[i], i);
    }
    if (!address_is_valid(warp, a.at[i], size)) {
      raise_fault(warp, in, Fault::illegal_address, "illegal address", a.at[i], i);
    }
  });
}

// Fills `a` for an access of `size` bytes per lane at [register + immediate] in the space that `how`
// names, and raises the fault if a lane may not. Must not be called without an active lane.
SOFTGPU_INLINE void resolve(Warp& warp, const Instruction& in, uint32_t address_register, uint32_t how,
                            int64_t immediate, uint64_t size, Addresses& a) {
  const auto offset = static_cast<uint64_t>(immediate);
  const uint32_t space = how & memory_operand::space_mask;
  if (how & memory_operand::no_base) {
    for (uint32_t i = 0; i < warp_lanes; ++i) a.at[i] = offset;
  } else if (how & memory_operand::address32) {
    const uint32_t* const base = reg<uint32_t>(warp, address_register);
    for (uint32_t i = 0; i < warp_lanes; ++i)
      a.at[i] = static_cast<uint32_t>(base[i] + static_cast<uint32_t>(offset));
  } else {
    const uint64_t* const base = reg<uint64_t>(warp, address_register);
    for (uint32_t i = 0; i < warp_lanes; ++i) a.at[i] = base[i] + offset;
  }
  if (warp.mask != full_mask) {
    const uint64_t stand_in = a.at[std::countr_zero(warp.mask)];
    const int32_t* const m = warp.lane_mask;
    for (uint32_t i = 0; i < warp_lanes; ++i) a.at[i] = m[i] ? a.at[i] : stand_in;
  }
  uint64_t lowest = a.at[0], highest = a.at[0], low_bits = 0;
  for (uint32_t i = 0; i < warp_lanes; ++i) {
    lowest = a.at[i] < lowest ? a.at[i] : lowest;
    highest = a.at[i] > highest ? a.at[i] : highest;
    low_bits |= a.at[i];
  }
  const bool aligned = (low_bits & (size - 1)) == 0;
  if (space == memory_operand::shared) {
    const bool inside = highest < warp.shared_bytes && warp.shared_bytes - highest >= size;
    for (uint32_t i = 0; i < warp_lanes; ++i) a.at[i] += warp.shared_base;
    lowest += warp.shared_base;
    highest += warp.shared_base;
    if (!inside || !aligned) [[unlikely]] {
      each_active(warp, [&](uint32_t i) {
        const uint64_t from_base = a.at[i] - warp.shared_base;
        if (from_base & (size - 1)) {
          raise_fault(warp, in, Fault::misaligned_address, "misaligned shared memory address", from_base, i);
        }
        if (from_base >= warp.shared_bytes || warp.shared_bytes - from_base < size) {
          raise_fault(warp, in, Fault::illegal_address, "address outside the block's shared memory",
                      from_base, i);
        }
      });
    }
  } else if (space == memory_operand::local) {
    const uint64_t frame = how & memory_operand::no_base ? warp.frame->local_offset : 0;
    if (highest + frame >= warp.local_stride || warp.local_stride - highest - frame < size || !aligned)
        [[unlikely]] {
      each_active(warp, [&](uint32_t i) {
        const uint64_t from_base = a.at[i] + frame;
        if (from_base & (size - 1)) {
          raise_fault(warp, in, Fault::misaligned_address, "misaligned local memory address", from_base, i);
        }
        if (from_base >= warp.local_stride || warp.local_stride - from_base < size) {
          raise_fault(warp, in, Fault::illegal_address, "address outside the thread's local memory",
                      from_base, i);
        }
      });
    }
    const uint64_t base = warp.local_base + frame, stride = warp.local_stride;
    const auto first = static_cast<uint32_t>(std::countr_zero(warp.mask));
    for (uint32_t i = 0; i < warp_lanes; ++i) {
      const uint64_t lane = warp.mask == full_mask || warp.lane_mask[i] ? i : first;
      a.at[i] += base + lane * stride;
    }
    lowest = 0;  // neither uniform nor contiguous
    highest = ~uint64_t{0};
  } else if (!aligned || lowest < warp.primary_begin || highest >= warp.primary_end ||
             warp.primary_end - highest < size) {
    const bool shared = aligned && lowest >= warp.shared_base &&
                        highest - warp.shared_base < warp.shared_bytes &&
                        warp.shared_bytes - (highest - warp.shared_base) >= size;
    const uint64_t local_bytes = warp.local_stride * warp_lanes;
    const bool local = aligned && lowest >= warp.local_base && highest - warp.local_base < local_bytes &&
                       local_bytes - (highest - warp.local_base) >= size;
    // What takes the address of a parameter that is a structure.
    const bool parameter = aligned && lowest >= warp.parameters &&
                           highest - warp.parameters < warp.parameter_bytes &&
                           warp.parameter_bytes - (highest - warp.parameters) >= size;
    if (!shared && !local && !parameter) check_slowly(warp, in, a, size, size);
  }
  a.lowest = lowest;
  a.highest = highest;
}

// The common shapes of a row of lanes: neighbours in memory, or all at one address.
enum class Shape : uint8_t { contiguous, uniform, scattered };

inline constexpr uint32_t row_lanes = warp_lanes / 2;  // blocks 16 wide give every warp two rows

// What the lanes of an address register look like, all of them, active or not. Lowering gives the accesses
// that follow each other without a change of the register one slot for it (Instruction::op[shape_slot]); the
// first of them fills it. The slot tells the truth about the lanes that came by the first access (`lanes`),
// because none of them changes its register before the last one. Other lanes may use the slot for another
// register meanwhile, and fill it there.
struct AddressShape {
  uint64_t first[2];  // the register's value in the first lane of each row
  Shape row[2];
  Shape whole;
  uint32_t size;  // of the elements that contiguous is meant for

  // For accesses with other offsets: host addresses of the rows at offset 0, and the offsets (a multiple of
  // the size) for which all lanes may access; none if span is below 0.
  uint64_t host[2];
  int64_t least, span;
  uint32_t lanes;  // that have come by the access that filled it
};
static_assert(sizeof(AddressShape) <= memory_operand::shape_bytes);

template <uint32_t lane_count, class T>
SOFTGPU_INLINE Shape shape_of_row(const T* lanes, uint32_t size) {
  const T first = lanes[0];
  T not_row = 0, not_first = 0;
  for (uint32_t i = 0; i < lane_count; ++i) {
    not_row |= lanes[i] ^ static_cast<T>(first + i * static_cast<T>(size));
    not_first |= lanes[i] ^ first;
  }
  return not_row == 0 ? Shape::contiguous : not_first == 0 ? Shape::uniform : Shape::scattered;
}

template <class T>
SOFTGPU_INLINE void find_shape(const T* base, uint32_t size, AddressShape& shape) {
  shape.whole = shape_of_row<warp_lanes>(base, size);
  shape.size = size;
  shape.first[0] = base[0];
  shape.first[1] = base[row_lanes];
  shape.row[0] = shape.row[1] = shape.whole;
  if (shape.whole == Shape::scattered) {
    shape.row[0] = shape_of_row<row_lanes>(base, size);
    shape.row[1] = shape_of_row<row_lanes>(base + row_lanes, size);
  }
}

// Fills in for which other offsets the access is allowed.
SOFTGPU_INLINE void find_range(const Warp& warp, const Instruction& in, uint64_t size, AddressShape& shape) {
  const bool shared = (in.aux & memory_operand::space_mask) == memory_operand::shared;
  const uint64_t begin = shared ? 0 : warp.primary_begin;
  const auto bytes = static_cast<int64_t>(shared ? warp.shared_bytes : warp.primary_end - warp.primary_begin);
  int64_t least = std::numeric_limits<int64_t>::min(), most = std::numeric_limits<int64_t>::max();
  for (uint32_t row = 0; row < 2; ++row) {
    const auto from_begin = static_cast<int64_t>(shape.first[row] - begin);
    const auto extent = static_cast<int64_t>(shape.row[row] == Shape::contiguous ? row_lanes * size : size);
    least = std::max(least, -from_begin);
    most = std::min(most, bytes - extent - from_begin);
    shape.host[row] = shape.first[row] + (shared ? warp.shared_base : 0);
  }
  constexpr int64_t no_distance = int64_t{1} << 62;  // no distance between host addresses
  const bool odd = ((shape.first[0] | shape.first[1]) & (size - 1)) != 0;
  const bool regular = shape.row[0] != Shape::scattered && shape.row[1] != Shape::scattered;
  const bool usable = regular && !odd && least <= most && least > -no_distance && most < no_distance;
  shape.least = least;
  shape.span = usable ? most - least : -1;
}

// The shape of an access through `address_register`, from its slot or worked out into `own`.
SOFTGPU_INLINE const AddressShape& shape_of(const Warp& warp, const Instruction& in,
                                            uint32_t address_register, uint32_t size, AddressShape& own) {
  const uint32_t slot = warp.keeps_shapes ? in.op[memory_operand::shape_slot] : 0;
  AddressShape& shape = slot == 0 ? own : *reinterpret_cast<AddressShape*>(warp.registers + slot);
  if (slot != 0 && !in.op[memory_operand::shape_first] && shape.size == size && !(warp.mask & ~shape.lanes))
    return shape;
  if (in.aux & memory_operand::address32) {
    find_shape(reg<uint32_t>(warp, address_register), size, shape);
  } else {
    find_shape(reg<uint64_t>(warp, address_register), size, shape);
  }
  if (slot != 0) {
    find_range(warp, in, size, shape);
    shape.lanes = warp.mask;
  }
  return shape;
}

// Host addresses of the two rows of a regular access.
struct Rows {
  uint64_t at[2];
};

// True if the shape is regular and the access of all lanes certainly allowed; else resolve() has to decide.
SOFTGPU_INLINE bool resolve_rows(const Warp& warp, const Instruction& in, const AddressShape& shape,
                                 uint64_t size, Rows& rows) {
  const uint32_t how = in.aux & ((1u << memory_operand::address_bits) - 1),
                 space = how & memory_operand::space_mask;
  if (shape.row[0] == Shape::scattered || shape.row[1] == Shape::scattered) return false;
  const bool shared = space == memory_operand::shared;
  const uint64_t begin = shared ? 0 : warp.primary_begin;
  const uint64_t bytes = shared ? warp.shared_bytes : warp.primary_end - warp.primary_begin;
  const uint64_t host = shared ? warp.shared_base : 0;
  uint64_t wrong = 0;
  for (uint32_t row = 0; row < 2; ++row) {
    uint64_t address = shape.first[row] + static_cast<uint64_t>(in.immediate);
    if (how & memory_operand::address32) address = static_cast<uint32_t>(address);
    const uint64_t extent = shape.row[row] == Shape::contiguous ? row_lanes * size : size;
    // Beyond the end, or before the beginning, which is far beyond the end.
    wrong |= static_cast<uint64_t>(extent > bytes || address - begin > bytes - extent);
    wrong |= address & (size - 1);
    rows.at[row] = address + host;
  }
  return wrong == 0;
}

// The slot of an access that is not the first through its register, if all lanes take part and this offset is
// allowed: then the rows are at host + immediate. Else null, and the access has to be looked at.
SOFTGPU_INLINE const AddressShape* known_rows(const Warp& warp, const Instruction& in, uint32_t size) {
  const uint32_t slot = in.op[memory_operand::shape_slot];
  if (slot == 0 || in.op[memory_operand::shape_first] || !warp.keeps_shapes) return nullptr;
  const auto* const shape = reinterpret_cast<const AddressShape*>(warp.registers + slot);
  const int64_t from_least = in.immediate - shape->least;
  const bool allowed = from_least >= 0 && from_least <= shape->span;
  const bool fits = shape->size == size && warp.mask == full_mask && (in.immediate & (size - 1)) == 0;
  return allowed && fits ? shape : nullptr;
}

// The same for a shape of all lanes together; `address` is the host address of lane 0.
SOFTGPU_INLINE bool resolve_whole(const Warp& warp, const Instruction& in, const AddressShape& shape,
                                  uint64_t size, uint64_t& address) {
  if (shape.whole == Shape::scattered) return false;
  const bool shared = (in.aux & memory_operand::space_mask) == memory_operand::shared;
  const uint64_t begin = shared ? 0 : warp.primary_begin;
  const uint64_t bytes = shared ? warp.shared_bytes : warp.primary_end - warp.primary_begin;
  const uint64_t extent = shape.whole == Shape::contiguous ? warp_lanes * size : size;
  address = shape.first[0] + static_cast<uint64_t>(in.immediate);
  if (in.aux & memory_operand::address32) address = static_cast<uint32_t>(address);
  if (extent > bytes || address - begin > bytes - extent || (address & (size - 1)) != 0) return false;
  address += shared ? warp.shared_base : 0;
  return true;
}

// Are accesses of this instruction to be looked at by rows at all?
SOFTGPU_INLINE bool may_be_regular(const Instruction& in) {
  const uint32_t how = in.aux & ((1u << memory_operand::address_bits) - 1);
  return !(how & memory_operand::no_base) && (how & memory_operand::space_mask) != memory_operand::local;
}
// Lanes that do not take part may be given memory to read that is always there.
SOFTGPU_INLINE bool may_read_all(const Warp& warp, const Instruction& in) {
  return warp.mask == full_mask || (in.aux & memory_operand::space_mask) == memory_operand::shared;
}

template <class T>
SOFTGPU_INLINE void read_row(Shape shape, uint64_t address, T* into) {
  if (shape == Shape::contiguous) {
    std::memcpy(into, reinterpret_cast<const void*>(address), row_lanes * sizeof(T));
  } else {
    T value;
    std::memcpy(&value, reinterpret_cast<const void*>(address), sizeof(T));
    for (uint32_t i = 0; i < row_lanes; ++i) into[i] = value;
  }
}

// The host address of lane `i`.
SOFTGPU_INLINE uint64_t lane_address(const AddressShape& shape, const Rows& rows, uint64_t size, uint32_t i) {
  const uint32_t row = i / row_lanes;
  return rows.at[row] + (shape.row[row] == Shape::contiguous ? (i % row_lanes) * size : 0);
}

// A lane's vector as hardware moves it, at once: programs hand data over with their flag in one vector. 16
// bytes are one access on every processor with AVX.
using Vector16 [[gnu::vector_size(16)]] = int64_t;

template <class T>
SOFTGPU_INLINE T read_from(uint64_t address) {
  T value;
  std::memcpy(&value, reinterpret_cast<const void*>(address), sizeof(T));
  return value;
}
template <class T>
SOFTGPU_INLINE void write_to(uint64_t address, T value) {
  std::memcpy(reinterpret_cast<void*>(address), &value, sizeof(T));
}
SOFTGPU_INLINE void copy_vector(uint64_t to, uint64_t from, uint32_t bytes) {
  if (bytes == 16) {
    write_to(to, read_from<Vector16>(from));
  } else if (bytes == 8) {
    write_to(to, read_from<uint64_t>(from));
  } else {
    std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
  }
}

}  // namespace
}  // namespace softgpu::SOFTGPU_ISA

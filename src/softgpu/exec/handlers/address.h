// Address computation and checking for everything that touches memory.
#pragma once

#include "softgpu/exec/handlers/lanes.h"
#include "softgpu/exec/memory_operand.h"

namespace softgpu::SOFTGPU_ISA {
namespace {

struct Addresses {
  alignas(64) uint64_t at[kLanes];  // host addresses; inactive lanes repeat an active one
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
  const uint32_t space = how & memory_operand::kSpaceMask;
  if (how & memory_operand::kNoBase) {
    for (uint32_t i = 0; i < kLanes; ++i) a.at[i] = offset;
  } else if (how & memory_operand::kAddress32) {
    const uint32_t* const base = reg<uint32_t>(warp, address_register);
    for (uint32_t i = 0; i < kLanes; ++i)
      a.at[i] = static_cast<uint32_t>(base[i] + static_cast<uint32_t>(offset));
  } else {
    const uint64_t* const base = reg<uint64_t>(warp, address_register);
    for (uint32_t i = 0; i < kLanes; ++i) a.at[i] = base[i] + offset;
  }
  if (warp.mask != kFullMask) {
    const uint64_t stand_in = a.at[std::countr_zero(warp.mask)];
    const int32_t* const m = warp.lane_mask;
    for (uint32_t i = 0; i < kLanes; ++i) a.at[i] = m[i] ? a.at[i] : stand_in;
  }
  uint64_t lowest = a.at[0], highest = a.at[0], low_bits = 0;
  for (uint32_t i = 0; i < kLanes; ++i) {
    lowest = a.at[i] < lowest ? a.at[i] : lowest;
    highest = a.at[i] > highest ? a.at[i] : highest;
    low_bits |= a.at[i];
  }
  const bool aligned = (low_bits & (size - 1)) == 0;
  if (space == memory_operand::kShared) {
    const bool inside = highest < warp.shared_bytes && warp.shared_bytes - highest >= size;
    for (uint32_t i = 0; i < kLanes; ++i) a.at[i] += warp.shared_base;
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
  } else if (space == memory_operand::kLocal) {
    const uint64_t frame = how & memory_operand::kNoBase ? warp.frame->local_offset : 0;
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
    for (uint32_t i = 0; i < kLanes; ++i) {
      const uint64_t lane = warp.mask == kFullMask || warp.lane_mask[i] ? i : first;
      a.at[i] += base + lane * stride;
    }
    lowest = 0;  // neither uniform nor contiguous
    highest = ~uint64_t{0};
  } else if (!aligned || lowest < warp.primary_begin || highest >= warp.primary_end ||
             warp.primary_end - highest < size) {
    const bool shared = aligned && lowest >= warp.shared_base &&
                        highest - warp.shared_base < warp.shared_bytes &&
                        warp.shared_bytes - (highest - warp.shared_base) >= size;
    const uint64_t local_bytes = warp.local_stride * kLanes;
    const bool local = aligned && lowest >= warp.local_base && highest - warp.local_base < local_bytes &&
                       local_bytes - (highest - warp.local_base) >= size;
    if (!shared && !local) check_slowly(warp, in, a, size, size);
  }
  a.lowest = lowest;
  a.highest = highest;
}

// The common shapes of an access: all lanes active and lane i at first + i * size, or all at one address.
// Decided from the address register alone; everything else goes by resolve().
enum class Shape : uint8_t { contiguous, uniform, scattered };

template <uint32_t kCount = kLanes, class T>
SOFTGPU_INLINE Shape shape_of(const T* base, uint64_t size) {
  const T first = base[0];
  T from_row = 0, from_first = 0;
  for (uint32_t i = 0; i < kCount; ++i) {
    from_row |= base[i] ^ static_cast<T>(first + i * static_cast<T>(size));
    from_first |= base[i] ^ first;
  }
  return from_row == 0 ? Shape::contiguous : from_first == 0 ? Shape::uniform : Shape::scattered;
}

// The host address of lane 0 if the shape is regular and the access certainly allowed; else scattered.
SOFTGPU_INLINE Shape resolve_regular(const Warp& warp, const Instruction& in, uint32_t address_register,
                                     uint64_t size, uint64_t& address) {
  const uint32_t how = in.aux & ((1u << memory_operand::kBits) - 1), space = how & memory_operand::kSpaceMask;
  if (warp.mask != kFullMask || (how & memory_operand::kNoBase) || space == memory_operand::kLocal)
    return Shape::scattered;
  Shape shape;
  if (how & memory_operand::kAddress32) {
    const uint32_t* const base = reg<uint32_t>(warp, address_register);
    shape = shape_of(base, size);
    address = static_cast<uint32_t>(base[0] + static_cast<uint32_t>(in.immediate));
  } else {
    const uint64_t* const base = reg<uint64_t>(warp, address_register);
    shape = shape_of(base, size);
    address = base[0] + static_cast<uint64_t>(in.immediate);
  }
  const uint64_t total = shape == Shape::contiguous ? size * kLanes : size;
  if (address & (size - 1)) return Shape::scattered;
  if (space == memory_operand::kShared) {
    if (address >= warp.shared_bytes || warp.shared_bytes - address < total) return Shape::scattered;
    address += warp.shared_base;
  } else if (address < warp.primary_begin || address >= warp.primary_end ||
             warp.primary_end - address < total) {
    return Shape::scattered;
  }
  return shape;
}

// Blocks 16 wide give every warp two rows. If both halves of the (resolved) addresses are regular, reads
// them as such.
template <class T>
SOFTGPU_INLINE bool load_halves(const Addresses& a, T* values) {
  constexpr uint32_t kHalf = kLanes / 2;
  const Shape low = shape_of<kHalf>(a.at, sizeof(T)), high = shape_of<kHalf>(a.at + kHalf, sizeof(T));
  if (low == Shape::scattered || high == Shape::scattered) return false;
  auto read = [](Shape shape, uint64_t address, T* into) {
    if (shape == Shape::contiguous) {
      std::memcpy(into, reinterpret_cast<const void*>(address), kHalf * sizeof(T));
    } else {
      T value;
      std::memcpy(&value, reinterpret_cast<const void*>(address), sizeof(T));
      for (uint32_t i = 0; i < kHalf; ++i) into[i] = value;
    }
  };
  read(low, a.at[0], values);
  read(high, a.at[kHalf], values + kHalf);
  return true;
}

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

}  // namespace
}  // namespace softgpu::SOFTGPU_ISA

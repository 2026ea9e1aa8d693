// cvt between integers, f32 and f64. 8-bit values live in 16-bit registers, extended by their sign.
#include <cmath>

#include "softgpu/exec/handlers/rounding.h"

namespace softgpu::SOFTGPU_ISA {
namespace {

template <class T>
using Container =
    std::conditional_t<sizeof(T) == 1, std::conditional_t<std::is_signed_v<T>, int16_t, uint16_t>, T>;

template <class D, class S>
void integer_to_integer(Warp& warp, const Instruction& in) {
  const Container<S>* const a = reg<Container<S>>(warp, in.op[1]);
  write<Container<D>>(warp, in.op[0], [=](uint32_t i) {
    return static_cast<Container<D>>(static_cast<D>(static_cast<S>(a[i])));
  });
}

template <class D, class S>
void integer_to_integer_saturating(Warp& warp, const Instruction& in) {
  const Container<S>* const a = reg<Container<S>>(warp, in.op[1]);
  write<Container<D>>(warp, in.op[0], [=](uint32_t i) {
    const auto value = static_cast<__int128>(static_cast<S>(a[i]));
    constexpr __int128 lowest = std::numeric_limits<D>::min(), highest = std::numeric_limits<D>::max();
    return static_cast<Container<D>>(value < lowest ? lowest : value > highest ? highest : value);
  });
}

template <class D, class S>
void integer_to_float(Warp& warp, const Instruction& in) {
  const Container<S>* const a = reg<Container<S>>(warp, in.op[1]);
  if (in.aux == round_nearest_even) {
    write<D>(warp, in.op[0], [=](uint32_t i) { return static_cast<D>(static_cast<S>(a[i])); });
    return;
  }
  const RoundingScope scope(in.aux & 7);
  const bool sat = in.aux & sat_flag;
  write<D>(warp, in.op[0], [=](uint32_t i) {
    const D value = static_cast<D>(static_cast<S>(a[i]));
    return sat ? saturate_unit(value) : value;
  });
}

template <class T>
SOFTGPU_INLINE T round_integral(T value, uint32_t mode) {
  switch (mode) {
    case round_toward_zero:
      return std::trunc(value);
    case round_down:
      return std::floor(value);
    case round_up:
      return std::ceil(value);
    default:
      return std::nearbyint(value);
  }
}

// Out of range -> nearest representable. NaN -> 0, but the pattern with only the highest bit set where a
// 64-bit type takes part (the manual's "Integer Notes" of cvt).
template <class D, class S>
void float_to_integer(Warp& warp, const Instruction& in) {
  const S* const a = reg<S>(warp, in.op[1]);
  const uint32_t mode = in.aux & 7;
  const bool ftz = in.aux & ftz_flag;
  auto convert = [=](S value, auto round) -> Container<D> {
    // 2^bits is exact in every type; comparisons against it avoid the inexact maximum.
    constexpr S past_highest = static_cast<S>(std::numeric_limits<D>::max() / 2 + 1) * S(2);
    constexpr S lowest = static_cast<S>(std::numeric_limits<D>::min());
    const S rounded = round(ftz ? flush(value) : value);
    const bool low = !(rounded >= lowest), high = rounded >= past_highest;
    const S safe = low || high ? S(0) : rounded;
    const D inside = static_cast<D>(safe);
    const D clamped = high ? std::numeric_limits<D>::max() : low ? std::numeric_limits<D>::min() : inside;
    constexpr bool wide = sizeof(S) == 8 || sizeof(D) == 8;
    constexpr D value_of_nan =
        wide ? static_cast<D>(std::make_unsigned_t<D>{1} << (8 * sizeof(D) - 1)) : D(0);
    return static_cast<Container<D>>(value != value ? value_of_nan : clamped);
  };
  if (mode == round_toward_zero) {
    write<Container<D>>(warp, in.op[0],
                        [=](uint32_t i) { return convert(a[i], [](S v) { return std::trunc(v); }); });
  } else {
    write<Container<D>>(warp, in.op[0], [=](uint32_t i) {
      return convert(a[i], [=](S v) { return round_integral(v, mode); });
    });
  }
}

template <class T>
void float_to_integral(Warp& warp, const Instruction& in) {
  const T* const a = reg<T>(warp, in.op[1]);
  const uint32_t mode = in.aux & 7;
  const bool ftz = in.aux & ftz_flag, sat = in.aux & sat_flag;
  write<T>(warp, in.op[0], [=](uint32_t i) {
    const T value = round_integral(ftz ? flush(a[i]) : a[i], mode);
    return sat ? saturate_unit(value) : value;
  });
}
// cvt.f32.f32 without integer rounding: only the modifiers act.
template <class T>
void float_to_same(Warp& warp, const Instruction& in) {
  const T* const a = reg<T>(warp, in.op[1]);
  const bool ftz = in.aux & ftz_flag, sat = in.aux & sat_flag;
  write<T>(warp, in.op[0], [=](uint32_t i) {
    const T value = ftz ? flush(a[i]) : a[i];
    return sat ? saturate_unit(value) : value;
  });
}
template <class D, class S>
void float_to_float(Warp& warp, const Instruction& in) {
  const S* const a = reg<S>(warp, in.op[1]);
  const bool ftz = in.aux & ftz_flag, sat = in.aux & sat_flag;
  const RoundingScope scope(in.aux & 7);
  write<D>(warp, in.op[0], [=](uint32_t i) {
    D value = static_cast<D>(ftz ? flush(a[i]) : a[i]);
    if (ftz) value = flush(value);
    return sat ? saturate_unit(value) : value;
  });
}

template <class T>
constexpr char register_letter = sizeof(T) <= 2   ? 'h'
                                 : sizeof(T) == 4 ? 'w'
                                                  : 'x';
// Signatures must outlive the table.
template <class D, class S>
constexpr char conversion_signature[] = {register_letter<D>, '=', register_letter<S>, '\0'};

template <class T>
constexpr const char* name_of() {
  if constexpr (std::is_floating_point_v<T>) {
    return sizeof(T) == 4 ? ".f32" : ".f64";
  } else {
    constexpr const char* type_names[][2] = {
        {".u8", ".s8"}, {".u16", ".s16"}, {".u32", ".s32"}, {".u64", ".s64"}};
    return type_names[std::bit_width(sizeof(T)) - 1][std::is_signed_v<T>];
  }
}
inline constexpr const char* rounding_names[] = {".rn", ".rz", ".rm", ".rp"};
inline constexpr const char* integral_rounding_names[] = {".rni", ".rzi", ".rmi", ".rpi"};

template <class D, class S>
void register_pair(OpcodeTable& table) {
  constexpr const char *to = name_of<D>(), *from = name_of<S>();
  const char* const form = conversion_signature<D, S>;
  constexpr bool from_float = std::is_floating_point_v<S>, to_float = std::is_floating_point_v<D>;
  if constexpr (!from_float && !to_float) {
    table.add({"cvt", to, from}, form, integer_to_integer<D, S>);
    table.add({"cvt.sat", to, from}, form, integer_to_integer_saturating<D, S>);
  } else if constexpr (to_float && !from_float) {
    for (uint32_t mode = 0; mode < 4; ++mode) {
      table.add({"cvt", rounding_names[mode], to, from}, form, integer_to_float<D, S>, mode);
      table.add({"cvt", rounding_names[mode], ".sat", to, from}, form, integer_to_float<D, S>,
                mode | sat_flag);
    }
  } else if constexpr (from_float && !to_float) {
    for (uint32_t mode = 0; mode < 4; ++mode) {
      table.add({"cvt", integral_rounding_names[mode], "{.sat,}", to, from}, form, float_to_integer<D, S>,
                mode);
      table.add({"cvt", integral_rounding_names[mode], ".ftz{.sat,}", to, from}, form, float_to_integer<D, S>,
                mode | ftz_flag);
    }
  } else {
    for (uint32_t ftz = 0; ftz < 2; ++ftz) {
      for (uint32_t sat = 0; sat < 2; ++sat) {
        const char *const flushed = ftz ? ".ftz" : "", *const saturated = sat ? ".sat" : "";
        const uint32_t aux = (ftz ? ftz_flag : 0) | (sat ? sat_flag : 0);
        if constexpr (std::is_same_v<D, S>) {
          table.add({"cvt", flushed, saturated, to, from}, form, float_to_same<D>, aux);
          for (uint32_t mode = 0; mode < 4; ++mode) {
            table.add({"cvt", integral_rounding_names[mode], flushed, saturated, to, from}, form,
                      float_to_integral<D>, mode | aux);
          }
        } else if constexpr (sizeof(D) > sizeof(S)) {
          table.add({"cvt", flushed, saturated, to, from}, form, float_to_float<D, S>, aux);
        } else {
          for (uint32_t mode = 0; mode < 4; ++mode) {
            table.add({"cvt", rounding_names[mode], flushed, saturated, to, from}, form, float_to_float<D, S>,
                      mode | aux);
          }
        }
      }
    }
  }
}

template <class D>
void register_destination(OpcodeTable& table) {
  register_pair<D, uint8_t>(table);
  register_pair<D, int8_t>(table);
  register_pair<D, uint16_t>(table);
  register_pair<D, int16_t>(table);
  register_pair<D, uint32_t>(table);
  register_pair<D, int32_t>(table);
  register_pair<D, uint64_t>(table);
  register_pair<D, int64_t>(table);
  register_pair<D, float>(table);
  register_pair<D, double>(table);
}

// cvt.pack.sat.u8.s32.b32 d, a, b, c: two saturated values below c's, moved up.
template <class D, int packed_bits>
void pack_saturating(Warp& warp, const Instruction& in) {
  const int32_t* const a = reg<int32_t>(warp, in.op[1]);
  const int32_t* const b = reg<int32_t>(warp, in.op[2]);
  const uint32_t* const c = reg<uint32_t>(warp, in.op[3]);
  write<uint32_t>(warp, in.op[0], [=](uint32_t i) {
    auto clamp = [](int32_t v) {
      constexpr int32_t lowest = std::numeric_limits<D>::min(), highest = std::numeric_limits<D>::max();
      return static_cast<uint32_t>(v < lowest    ? lowest
                                   : v > highest ? highest
                                                 : v) &
             ((1u << packed_bits) - 1);
    };
    const uint64_t above = packed_bits == 16 ? 0 : uint64_t{c[i]} << (2 * packed_bits);
    return static_cast<uint32_t>(above) | clamp(a[i]) << packed_bits | clamp(b[i]);
  });
}

}  // namespace

void register_convert(OpcodeTable& table) {
  register_destination<uint8_t>(table);
  register_destination<int8_t>(table);
  register_destination<uint16_t>(table);
  register_destination<int16_t>(table);
  register_destination<uint32_t>(table);
  register_destination<int32_t>(table);
  register_destination<uint64_t>(table);
  register_destination<int64_t>(table);
  register_destination<float>(table);
  register_destination<double>(table);
  table.add("cvt.pack.sat.u8.s32.b32", "w=www", pack_saturating<uint8_t, 8>);
  table.add("cvt.pack.sat.s8.s32.b32", "w=www", pack_saturating<int8_t, 8>);
  table.add("cvt.pack.sat.u16.s32", "w=www?", pack_saturating<uint16_t, 16>);
  table.add("cvt.pack.sat.s16.s32", "w=www?", pack_saturating<int16_t, 16>);
}

}  // namespace softgpu::SOFTGPU_ISA

// Video instructions: vadd vsub vabsdiff vmin vmax vshl vshr vset vmad on selected bytes or halves, and their
// forms in two and four parts. Step "@video": op[0] d, op[1] a, op[2] b, op[3] c; immediate: video::Form.
#include "softgpu/exec/program/video_form.h"

#include "softgpu/exec/handlers/lanes.h"

namespace softgpu::SOFTGPU_ISA {
namespace {

using video::Form;

int64_t part_of(uint32_t word, uint32_t bytes, uint32_t index, bool is_signed) {
  if (bytes == 0) return is_signed ? int64_t{static_cast<int32_t>(word)} : int64_t{word};
  const uint32_t bits = 8 * bytes, value = word >> (bits * index) & ((1u << bits) - 1);
  return is_signed && value >> (bits - 1) ? int64_t{value} - (int64_t{1} << bits) : int64_t{value};
}

__int128 clamp_to(__int128 value, uint32_t bits, bool is_signed) {
  const int64_t low = is_signed ? -(int64_t{1} << (bits - 1)) : 0;
  const int64_t high = is_signed ? (int64_t{1} << (bits - 1)) - 1 : (int64_t{1} << bits) - 1;
  return value < low ? low : value > high ? high : value;
}

// Wide enough for a word shifted left by 32.
__int128 compute(const Form& f, int64_t a, int64_t b) {
  switch (f.operation) {
    case video::add:
      return a + b;
    case video::subtract:
      return a - b;
    case video::absolute_difference:
      return a > b ? a - b : b - a;
    case video::minimum:
      return a < b ? a : b;
    case video::maximum:
      return a > b ? a : b;
    case video::shift_left:
    case video::shift_right: {
      const int64_t amount = f.wraps ? b & 31 : b > 32 ? 32 : b;
      return f.operation == video::shift_left ? static_cast<__int128>(a) * (int64_t{1} << amount)
                                              : a >> amount;
    }
    default: {
      const bool holds[] = {a == b, a != b, a<b, a <= b, a> b, a >= b};
      return holds[f.comparison % 6];
    }
  }
}

uint32_t one_part(const Form& f, uint32_t a, uint32_t b, uint32_t c) {
  const bool shifts = f.operation == video::shift_left || f.operation == video::shift_right;
  const int64_t ta = part_of(a, f.a_bytes, f.a_index, f.a_signed);
  const int64_t tb = part_of(b, f.b_bytes, f.b_index, f.b_signed && !shifts);
  __int128 result = compute(f, ta, tb);
  const uint32_t bits = f.d_bytes == 0 ? 32 : 8 * static_cast<uint32_t>(f.d_bytes);
  if (f.saturates) result = clamp_to(result, bits, f.result_signed);
  const auto word = static_cast<uint32_t>(result);
  switch (f.second) {
    case video::then_add:
      return word + c;
    case video::then_minimum:
    case video::then_maximum: {
      const bool less = f.result_signed ? static_cast<int32_t>(word) < static_cast<int32_t>(c) : word < c;
      return less == (f.second == video::then_minimum) ? word : c;
    }
    default:
      break;
  }
  if (f.d_bytes == 0) return word;
  const uint32_t ones = ((1u << bits) - 1) << (bits * f.d_index);
  return (c & ~ones) | (word << (bits * f.d_index) & ones);
}

uint32_t several_parts(const Form& f, uint32_t a, uint32_t b, uint32_t c) {
  const auto parts = static_cast<uint32_t>(f.parts), bytes = 4 / parts, bits = 8 * bytes;
  const uint32_t ones = (1u << bits) - 1;
  uint32_t merged = c, sum = c;
  auto select = [&](uint64_t choices, uint32_t k, bool is_signed) {
    const uint32_t choice = choices >> (3 * k) & 7;
    return part_of(choice < parts ? a : b, bytes, choice % parts, is_signed);
  };
  for (uint32_t k = 0; k < parts; ++k) {
    if (!(f.mask >> k & 1)) continue;
    __int128 result = compute(f, select(f.a_parts, k, f.a_signed), select(f.b_parts, k, f.b_signed));
    if (f.saturates) result = clamp_to(result, bits, f.result_signed);
    sum += static_cast<uint32_t>(result);
    merged = (merged & ~(ones << (bits * k))) | (static_cast<uint32_t>(result) & ones) << (bits * k);
  }
  return f.second == video::then_add ? sum : merged;
}

uint32_t multiply_add(const Form& f, uint32_t a, uint32_t b, uint32_t c) {
  const __int128 product = static_cast<__int128>(part_of(a, f.a_bytes, f.a_index, f.a_signed)) *
                           part_of(b, f.b_bytes, f.b_index, f.b_signed);
  const bool is_signed = f.a_signed || f.b_signed || f.negate_product || f.negate_c;
  __int128 addend = is_signed ? int64_t{static_cast<int32_t>(c)} : int64_t{c};
  if (f.negate_c) addend = -addend;
  __int128 sum = (f.negate_product ? -product : product) + addend + (f.plus_one ? 1 : 0);
  sum >>= f.shift;
  if (!f.saturates) return static_cast<uint32_t>(sum);
  const __int128 low = f.result_signed ? INT32_MIN : 0,
                 high = f.result_signed ? __int128{INT32_MAX} : UINT32_MAX;
  return static_cast<uint32_t>(sum < low ? low : sum > high ? high : sum);
}

void run(Warp& warp, const Instruction& in) {
  const Form f = video::unpack(in.immediate);
  const uint32_t* const a = reg<uint32_t>(warp, in.op[1]);
  const uint32_t* const b = reg<uint32_t>(warp, in.op[2]);
  const uint32_t* const c = reg<uint32_t>(warp, in.op[3]);
  uint32_t* const d = reg<uint32_t>(warp, in.op[0]);
  each_active(warp, [&](uint32_t i) {
    d[i] = f.operation == video::multiply_add ? multiply_add(f, a[i], b[i], c[i])
           : f.parts > 1                      ? several_parts(f, a[i], b[i], c[i])
                                              : one_part(f, a[i], b[i], c[i]);
  });
}

}  // namespace

void register_video(OpcodeTable& table) {
  table.add("@video", "", run);
}

}  // namespace softgpu::SOFTGPU_ISA

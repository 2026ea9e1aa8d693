// Logic, shifts and bit fields.
#include <algorithm>
#include <array>

#include "softgpu/reference/operation.h"

namespace softgpu::reference {
namespace {

using Domain = NumberType::Domain;

Operation with_widths(std::vector<int> results, std::vector<int> sources,
                      std::function<Bits(const Bits*)> function) {
  Operation made;
  made.evaluate = [function = std::move(function), width = results[0]](const Bits* s, Bits* d) {
    d[0] = low_bits(function(s), width);
  };
  made.results = std::move(results);
  made.sources = std::move(sources);
  return made;
}

bool bit(Bits value, int at) {
  return (value >> at & 1) != 0;
}
int count_ones(Bits value) {
  int count = 0;
  for (; value != 0; value &= value - 1) ++count;
  return count;
}

std::optional<Operation> logic(Words& words) {
  const std::string_view base = words.base();
  const auto type = words.take_type();
  if (!type || !words.empty() || (type->domain != Domain::bits && type->domain != Domain::predicate)) {
    return std::nullopt;
  }
  const int n = type->bits;
  if (base == "not") return with_widths({n}, {n}, [](const Bits* s) { return ~s[0]; });
  if (base == "cnot") return with_widths({n}, {n}, [](const Bits* s) { return Bits{s[0] == 0}; });
  return with_widths({n}, {n, n}, [=](const Bits* s) {
    return base == "and" ? s[0] & s[1] : base == "or" ? s[0] | s[1] : s[0] ^ s[1];
  });
}

std::optional<Operation> shift(Words& words) {
  const bool left = words.base() == "shl";
  const auto type = words.take_type();
  if (!type || type->is_float() || type->parts != 1 || !words.empty()) return std::nullopt;
  const int n = type->bits;
  return with_widths({n}, {n, 32}, [=](const Bits* s) {
    const int by =
        static_cast<int>(std::min<Bits>(s[1], static_cast<Bits>(n)));  // amounts beyond are clamped
    if (left) return s[0] << by;
    return static_cast<Bits>(integer_value(s[0], *type) >> by);
  });
}

std::optional<Operation> funnel_shift(Words& words) {
  const std::string_view direction = words.take_one_of({"l", "r"}),
                         mode = words.take_one_of({"clamp", "wrap"});
  if (direction.empty() || mode.empty() || !words.take("b32") || !words.empty()) return std::nullopt;
  return with_widths({32}, {32, 32, 32}, [=](const Bits* s) {
    const Bits both = s[1] << 32 | s[0];
    const int by = static_cast<int>(mode == "clamp" ? std::min<Bits>(s[2], 32) : s[2] & 31);
    return direction == "l" ? both << by >> 32 : both >> by;
  });
}

std::optional<Operation> counting(Words& words) {
  const std::string_view base = words.base();
  const auto type = words.take_type();
  if (!type || type->domain != Domain::bits || type->bits < 32 || !words.empty()) return std::nullopt;
  const int n = type->bits;
  if (base == "brev") {
    return with_widths({n}, {n}, [=](const Bits* s) {
      Bits reversed = 0;
      for (int i = 0; i < n; ++i) reversed |= Bits{bit(s[0], i)} << (n - 1 - i);
      return reversed;
    });
  }
  return with_widths({32}, {n}, [=](const Bits* s) {
    if (base == "popc") return static_cast<Bits>(count_ones(s[0]));
    int zeros = 0;
    while (zeros < n && !bit(s[0], n - 1 - zeros)) ++zeros;
    return static_cast<Bits>(zeros);
  });
}

// The highest bit that differs from the sign; as a place, or as the shift that would move it to the top.
std::optional<Operation> find_leading(Words& words) {
  const bool amount = words.take("shiftamt");
  const auto type = words.take_type();
  if (!type || type->is_float() || type->domain == Domain::bits || type->bits < 32 || !words.empty()) {
    return std::nullopt;
  }
  const int n = type->bits;
  return with_widths({32}, {n}, [=](const Bits* s) {
    const bool sign = type->is_signed() && bit(s[0], n - 1);
    for (int at = n - 1; at >= 0; --at) {
      if (bit(s[0], at) != sign) return static_cast<Bits>(amount ? n - 1 - at : at);
    }
    return Bits{0xffffffff};
  });
}

std::optional<Operation> extract(Words& words) {
  const auto type = words.take_type();
  if (!type || type->is_float() || type->domain == Domain::bits || type->bits < 32 || !words.empty()) {
    return std::nullopt;
  }
  const int msb = type->bits - 1;
  return with_widths({type->bits}, {type->bits, 32, 32}, [=](const Bits* s) {
    const int position = static_cast<int>(s[1] & 0xff), length = static_cast<int>(s[2] & 0xff);
    const bool fill = type->is_signed() && length != 0 && bit(s[0], std::min(position + length - 1, msb));
    Bits result = 0;
    for (int i = 0; i <= msb; ++i) {
      const bool inside = i < length && position + i <= msb;
      result |= Bits{inside ? bit(s[0], position + i) : fill} << i;
    }
    return result;
  });
}

std::optional<Operation> insert(Words& words) {
  const auto type = words.take_type();
  if (!type || type->domain != Domain::bits || type->bits < 32 || !words.empty()) return std::nullopt;
  const int n = type->bits;
  return with_widths({n}, {n, n, 32, 32}, [=](const Bits* s) {
    const int position = static_cast<int>(s[2] & 0xff), length = static_cast<int>(s[3] & 0xff);
    Bits result = s[1];
    for (int i = 0; i < length && position + i < n; ++i) {
      const Bits one = Bits{1} << (position + i);
      result = bit(s[0], i) ? result | one : result & ~one;
    }
    return result;
  });
}

// lop3.b32 d, a, b, c, table; lop3.{or,and}.b32 d|p, a, b, c, table, q: p = (d != 0) with q
std::optional<Operation> lookup(Words& words) {
  const std::string_view combine = words.take_one_of({"or", "and"});
  if (!words.take("b32") || !words.empty()) return std::nullopt;
  Operation made = with_widths({32}, {32, 32, 32, 32}, [](const Bits* s) {
    Bits result = 0;
    for (int i = 0; i < 32; ++i) {
      const int row = bit(s[0], i) * 4 + bit(s[1], i) * 2 + bit(s[2], i);
      result |= Bits{bit(s[3], row)} << i;
    }
    return result;
  });
  if (combine.empty()) return made;
  made.results.push_back(1);
  made.sources.push_back(1);
  made.evaluate = [=, table = made.evaluate](const Bits* s, Bits* d) {
    table(s, d);
    d[1] = combine == "or" ? d[0] != 0 || s[4] != 0 : d[0] != 0 && s[4] != 0;
  };
  return made;
}

std::optional<Operation> permute(Words& words) {
  if (!words.take("b32")) return std::nullopt;
  const std::string_view mode = words.take_one_of({"f4e", "b4e", "rc8", "ecl", "ecr", "rc16"});
  if (!words.empty()) return std::nullopt;
  using Rows = std::array<std::array<int, 4>, 4>;  // by selector; the bytes d.b0 .. d.b3
  static constexpr Rows forward_rows{{{0, 1, 2, 3}, {1, 2, 3, 4}, {2, 3, 4, 5}, {3, 4, 5, 6}}};
  static constexpr Rows backward_rows{{{0, 7, 6, 5}, {1, 0, 7, 6}, {2, 1, 0, 7}, {3, 2, 1, 0}}};
  static constexpr Rows replicate8_rows{{{0, 0, 0, 0}, {1, 1, 1, 1}, {2, 2, 2, 2}, {3, 3, 3, 3}}};
  static constexpr Rows clamp_left_rows{{{0, 1, 2, 3}, {1, 1, 2, 3}, {2, 2, 2, 3}, {3, 3, 3, 3}}};
  static constexpr Rows clamp_right_rows{{{0, 0, 0, 0}, {0, 1, 1, 1}, {0, 1, 2, 2}, {0, 1, 2, 3}}};
  static constexpr Rows replicate16_rows{{{0, 1, 0, 1}, {2, 3, 2, 3}, {0, 1, 0, 1}, {2, 3, 2, 3}}};
  const Rows* const rows = mode == "f4e"   ? &forward_rows
                           : mode == "b4e" ? &backward_rows
                           : mode == "rc8" ? &replicate8_rows
                           : mode == "ecl" ? &clamp_left_rows
                           : mode == "ecr" ? &clamp_right_rows
                                           : &replicate16_rows;
  return with_widths({32}, {32, 32, 32}, [=](const Bits* s) {
    const Bits bytes = s[1] << 32 | s[0];
    Bits result = 0;
    for (int k = 0; k < 4; ++k) {
      const int selector = static_cast<int>(s[2] >> (4 * k) & 15);
      const int from =
          mode.empty() ? selector & 7 : (*rows)[static_cast<size_t>(s[2] & 3)][static_cast<size_t>(k)];
      Bits byte = bytes >> (8 * from) & 0xff;
      if (mode.empty() && (selector & 8) != 0) byte = bit(byte, 7) ? 0xff : 0;
      result |= byte << (8 * k);
    }
    return result;
  });
}

std::optional<Operation> find_nth_set(Words& words) {
  if (!words.take("b32") || !words.empty()) return std::nullopt;
  Operation made = with_widths({32}, {32, 32, 32}, [](const Bits* s) {
    const auto offset = static_cast<int64_t>(static_cast<int32_t>(static_cast<uint32_t>(s[2])));
    const int step = offset < 0 ? -1 : 1;
    int64_t left = offset == 0 ? 0 : std::abs(offset) - 1;
    for (auto at = static_cast<int64_t>(s[1]); at >= 0 && at < 32; at += step) {
      if (bit(s[0], static_cast<int>(at))) {
        if (left-- == 0) return static_cast<Bits>(at);
      }
      if (offset == 0) break;
    }
    return Bits{0xffffffff};
  });
  made.source_limit = 32;  // the base; more is undefined
  return made;
}

std::optional<Operation> bit_mask(Words& words) {
  const std::string_view mode = words.take_one_of({"clamp", "wrap"});
  if (mode.empty() || !words.take("b32") || !words.empty()) return std::nullopt;
  return with_widths({32}, {32, 32}, [=](const Bits* s) {
    const Bits position = mode == "wrap" ? s[0] & 31 : s[0], width = mode == "wrap" ? s[1] & 31 : s[1];
    Bits result = 0;
    for (Bits i = 0; i < 32; ++i) {
      if (i >= position && i < position + width) result |= Bits{1} << static_cast<int>(i);
    }
    return result;
  });
}

// The lowest b bits of a, extended to 32.
std::optional<Operation> extend(Words& words) {
  const std::string_view mode = words.take_one_of({"clamp", "wrap"});
  const auto type = words.take_type();
  if (mode.empty() || !type || type->bits != 32 || type->domain == Domain::bits || !words.empty()) {
    return std::nullopt;
  }
  return with_widths({32}, {32, 32}, [=](const Bits* s) {
    if (mode == "clamp" && s[1] >= 32) return s[0];
    NumberType narrow = *type;
    narrow.bits = static_cast<int>(s[1] & 31);
    return narrow.bits == 0 ? Bits{0} : static_cast<Bits>(integer_value(s[0], narrow));
  });
}

}  // namespace

std::optional<Operation> bit_operation(Words words) {
  const std::string_view base = words.base();
  if (base == "and" || base == "or" || base == "xor" || base == "not" || base == "cnot") return logic(words);
  if (base == "shl" || base == "shr") return shift(words);
  if (base == "shf") return funnel_shift(words);
  if (base == "popc" || base == "clz" || base == "brev") return counting(words);
  if (base == "bfind") return find_leading(words);
  if (base == "bfe") return extract(words);
  if (base == "bfi") return insert(words);
  if (base == "lop3") return lookup(words);
  if (base == "prmt") return permute(words);
  if (base == "fns") return find_nth_set(words);
  if (base == "bmsk") return bit_mask(words);
  if (base == "szext") return extend(words);
  return std::nullopt;
}

}  // namespace softgpu::reference

#include "softgpu/ptx/types.h"

#include <array>
#include <utility>

namespace softgpu::ptx {

std::optional<Type> type_from_name(std::string_view name) {
  static constexpr std::array<std::pair<std::string_view, Type>, 22> known_types{{
      {"pred", {Kind::predicate, 1}},
      {"b8", {Kind::bits, 1}},
      {"b16", {Kind::bits, 2}},
      {"b32", {Kind::bits, 4}},
      {"b64", {Kind::bits, 8}},
      {"b128", {Kind::bits, 16}},
      {"u8", {Kind::unsigned_integer, 1}},
      {"u16", {Kind::unsigned_integer, 2}},
      {"u32", {Kind::unsigned_integer, 4}},
      {"u64", {Kind::unsigned_integer, 8}},
      {"s8", {Kind::signed_integer, 1}},
      {"s16", {Kind::signed_integer, 2}},
      {"s32", {Kind::signed_integer, 4}},
      {"s64", {Kind::signed_integer, 8}},
      {"f16", {Kind::floating, 2}},
      {"f32", {Kind::floating, 4}},
      {"f64", {Kind::floating, 8}},
      {"bf16", {Kind::bfloat, 2}},
      {"f16x2", {Kind::packed_half, 4}},
      {"bf16x2", {Kind::packed_bfloat, 4}},
      {"tf32", {Kind::bits, 4}},
      {"f32x2", {Kind::bits, 8}},
  }};
  for (const auto& [known, type] : known_types) {
    if (known == name) return type;
  }
  return std::nullopt;
}

}  // namespace softgpu::ptx

#include "softgpu/reference/operation.h"

#include <algorithm>
#include <memory>
#include <unordered_map>

#include "base/mutex.h"

namespace softgpu::reference {

Words::Words(std::string_view full_name) : base_(full_name.substr(0, full_name.find('.'))) {
  std::string_view rest = full_name.substr(base_.size());
  while (!rest.empty()) {
    rest.remove_prefix(1);
    suffixes_.push_back(rest.substr(0, rest.find('.')));
    rest.remove_prefix(suffixes_.back().size());
  }
}

bool Words::take(std::string_view suffix) {
  if (suffixes_.empty() || suffixes_.front() != suffix) return false;
  suffixes_.erase(suffixes_.begin());
  return true;
}

std::string_view Words::take_one_of(std::initializer_list<std::string_view> suffixes) {
  for (const std::string_view suffix : suffixes) {
    if (take(suffix)) return suffix;
  }
  return {};
}

std::optional<NumberType> Words::take_type() {
  if (suffixes_.empty()) return std::nullopt;
  const auto type = number_type(suffixes_.front());
  if (type) suffixes_.erase(suffixes_.begin());
  return type;
}

std::optional<NumberType> Words::take_last_type() {
  if (suffixes_.empty()) return std::nullopt;
  const auto type = number_type(suffixes_.back());
  if (type) suffixes_.pop_back();
  return type;
}

std::optional<Rounding> Words::take_rounding() {
  const std::string_view word = take_one_of({"rn", "rz", "rm", "rp", "rna"});
  if (word == "rn") return Rounding::nearest_even;
  if (word == "rz") return Rounding::zero;
  if (word == "rm") return Rounding::down;
  if (word == "rp") return Rounding::up;
  if (word == "rna") return Rounding::nearest_away;
  return std::nullopt;
}

std::optional<NumberType> number_type(std::string_view name) {
  using D = NumberType::Domain;
  static const std::unordered_map<std::string_view, NumberType> number_types{
      {"b8", {D::bits, 8, 1, nullptr}},
      {"b16", {D::bits, 16, 1, nullptr}},
      {"b32", {D::bits, 32, 1, nullptr}},
      {"b64", {D::bits, 64, 1, nullptr}},
      {"b128", {D::bits, 128, 1, nullptr}},
      {"u8", {D::unsigned_integer, 8, 1, nullptr}},
      {"u16", {D::unsigned_integer, 16, 1, nullptr}},
      {"u32", {D::unsigned_integer, 32, 1, nullptr}},
      {"u64", {D::unsigned_integer, 64, 1, nullptr}},
      {"s8", {D::signed_integer, 8, 1, nullptr}},
      {"s16", {D::signed_integer, 16, 1, nullptr}},
      {"s32", {D::signed_integer, 32, 1, nullptr}},
      {"s64", {D::signed_integer, 64, 1, nullptr}},
      {"u16x2", {D::unsigned_integer, 16, 2, nullptr}},
      {"s16x2", {D::signed_integer, 16, 2, nullptr}},
      {"u8x4", {D::unsigned_integer, 8, 4, nullptr}},
      {"s8x4", {D::signed_integer, 8, 4, nullptr}},
      {"u4", {D::unsigned_integer, 4, 1, nullptr}},
      {"s4", {D::signed_integer, 4, 1, nullptr}},
      {"u2", {D::unsigned_integer, 2, 1, nullptr}},
      {"s2", {D::signed_integer, 2, 1, nullptr}},
      {"f16", {D::floating, 16, 1, &f16_format}},
      {"bf16", {D::floating, 16, 1, &bf16_format}},
      {"f32", {D::floating, 32, 1, &f32_format}},
      {"f64", {D::floating, 64, 1, &f64_format}},
      {"tf32", {D::floating, 32, 1, &tf32_format}},
      {"f16x2", {D::floating, 16, 2, &f16_format}},
      {"bf16x2", {D::floating, 16, 2, &bf16_format}},
      {"f32x2", {D::floating, 32, 2, &f32_format}},
      {"e4m3x2", {D::floating, 8, 2, &e4m3_format}},
      {"e5m2x2", {D::floating, 8, 2, &e5m2_format}},
      {"e2m3x2", {D::floating, 8, 2, &e2m3_format}},  // six bits each, in bytes
      {"e3m2x2", {D::floating, 8, 2, &e3m2_format}},
      {"e2m1x2", {D::floating, 4, 2, &e2m1_format}},
      {"pred", {D::predicate, 1, 1, nullptr}},
  };
  const auto found = number_types.find(name);
  return found == number_types.end() ? std::nullopt : std::optional(found->second);
}

__int128 integer_value(Bits bits, const NumberType& type) {
  const Bits low = low_bits(bits, type.bits);
  const bool negative = type.is_signed() && (low >> (type.bits - 1) & 1) != 0;
  return static_cast<__int128>(negative ? low | ~low_bits(~Bits{0}, type.bits) : low);
}

__int128 clamp_to(__int128 value, const NumberType& type) {
  const __int128 range = __int128{1} << (type.is_signed() ? type.bits - 1 : type.bits);
  return std::clamp<__int128>(value, type.is_signed() ? -range : 0, range - 1);
}

const Operation* find_operation(std::string_view full_name) {
  static gpupool::Mutex mutex;
  static std::unordered_map<std::string, std::unique_ptr<const Operation>> known;
  const gpupool::MutexLock lock(mutex);
  const auto [place, fresh] = known.try_emplace(std::string(full_name));
  if (fresh) {
    for (const auto family : {integer_operation, bit_operation, float_operation, approximate_operation,
                              comparison_operation, conversion_operation}) {
      if (auto made = family(Words(place->first))) {
        place->second = std::make_unique<const Operation>(std::move(*made));
        break;
      }
    }
  }
  return place->second.get();
}

}  // namespace softgpu::reference

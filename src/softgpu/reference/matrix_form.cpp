#include "softgpu/reference/matrix_form.h"

#include <charconv>

namespace softgpu::reference {
namespace {

// "m16n8k32"
bool read_shape(std::string_view word, MatrixForm& form) {
  const size_t n = word.find('n'), k = word.find('k');
  if (!word.starts_with('m') || n == std::string_view::npos || k == std::string_view::npos ||
      word.substr(n, k - n) != "n8")
    return false;
  const auto number = [&](size_t from, size_t to, int& value) {
    return std::from_chars(word.data() + from, word.data() + to, value).ptr == word.data() + to;
  };
  return number(1, n, form.rows) && number(k + 1, word.size(), form.depth);
}

enum class Kind : uint8_t { none, padded, packed_four };

// [kind::...[.block_scale[.scale_vec::...]]], in front of the shape or behind it
bool take_kind(Words& words, Kind& kind, MatrixForm& form) {
  const std::string_view word =
      words.take_one_of({"kind::f8f6f4", "kind::mxf8f6f4", "kind::mxf4", "kind::mxf4nvf4"});
  if (word.empty()) return true;
  kind = word.ends_with("f8f6f4") ? Kind::padded : Kind::packed_four;
  if (word == "kind::f8f6f4") return true;
  const std::string_view most = word == "kind::mxf4nvf4" ? "scale_vec::4X" : "";
  form.scales = kind == Kind::padded ? 1 : 2;
  if (!words.take("block_scale")) return false;
  if (!most.empty() && words.take(most)) {
    form.scales = 4;
  } else if (!words.take(kind == Kind::padded ? "scale_vec::1X" : "scale_vec::2X")) {
    return word != "kind::mxf4nvf4";  // which has no default
  }
  return true;
}

std::optional<MatrixElement> element(std::string_view word, Kind kind) {
  const bool padded = kind == Kind::padded;
  if (kind == Kind::packed_four)
    return word == "e2m1" ? std::optional(MatrixElement{4, &e2m1_format, 0, true}) : std::nullopt;
  if (word == "b1") return MatrixElement{1, nullptr, 0, false};
  if (word == "e2m3" && padded) return MatrixElement{8, &e2m3_format, 0, true};
  if (word == "e3m2" && padded) return MatrixElement{8, &e3m2_format, 0, true};
  if (word == "e2m1" && padded) return MatrixElement{8, &e2m1_format, 2, true};
  if (word == "e4m3") return MatrixElement{8, &e4m3_format, 0, true};
  if (word == "e5m2") return MatrixElement{8, &e5m2_format, 0, true};
  const auto type = number_type(word);
  if (!type || type->parts != 1) return std::nullopt;
  if (!type->is_float() && type->bits != 4 && type->bits != 8) return std::nullopt;
  return MatrixElement{type->bits, type->format, 0, type->is_signed()};
}

}  // namespace

std::optional<MatrixForm> matrix_form(std::string_view opcode) {
  Words words(opcode);
  if (words.base() != "mma" || !words.take("sync") || !words.take("aligned")) return std::nullopt;
  MatrixForm form;
  Kind kind = Kind::none;
  if (!take_kind(words, kind, form)) return std::nullopt;
  const std::string_view shape =
      words.take_one_of({"m8n8k4", "m8n8k16", "m8n8k32", "m8n8k128", "m16n8k4", "m16n8k8", "m16n8k16",
                         "m16n8k32", "m16n8k64", "m16n8k128", "m16n8k256"});
  if (!read_shape(shape, form) || !words.take("row") || !words.take("col")) return std::nullopt;
  if (kind == Kind::none && !take_kind(words, kind, form)) return std::nullopt;
  form.rounding = words.take_rounding().value_or(Rounding::nearest_even);
  form.saturates = words.take("satfinite");
  const std::string_view sum = words.take_one_of({"f16", "f32", "f64", "s32"});
  if (sum.empty()) return std::nullopt;
  form.sum = number_type(sum)->format;
  static constexpr std::string_view element_names[] = {"f16",  "bf16", "tf32", "f64", "e4m3", "e5m2", "e2m3",
                                                       "e3m2", "e2m1", "s8",   "u8",  "s4",   "u4",   "b1"};
  for (MatrixElement* const of : {&form.a, &form.b}) {
    for (const std::string_view word : element_names) {
      if (of->bits != 0 || !words.take(word)) continue;
      const auto known = element(word, kind);
      if (!known) return std::nullopt;
      *of = *known;
    }
    if (of->bits == 0) return std::nullopt;
  }
  if (!words.take(sum)) return std::nullopt;
  if (form.a.bits == 1) {
    const std::string_view product = words.take_one_of({"xor", "and"});
    if (product.empty() || !words.take("popc")) return std::nullopt;
    form.product = product == "xor" ? MatrixForm::Product::xor_bits : MatrixForm::Product::and_bits;
  }
  if (form.scales != 0) {
    form.exponent_scales = words.take("ue8m0");
    if (!form.exponent_scales && (form.scales != 4 || !words.take("ue4m3"))) return std::nullopt;
  }
  if (!words.empty()) return std::nullopt;
  return form;
}

}  // namespace softgpu::reference

#include "libraries/nccl/elements.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "libraries/operations/element.h"

namespace gpupool::nccl {
namespace {

struct Half {
  using Wide = float;
  std::uint16_t bits;
  [[nodiscard]] float wide() const { return operations::of_float16(bits); }
  static Half of(float value) { return {operations::float16_of(value)}; }
};

struct Brain {
  using Wide = float;
  std::uint16_t bits;
  [[nodiscard]] float wide() const { return std::bit_cast<float>(std::uint32_t{bits} << 16); }
  static Brain of(float value) { return {operations::bfloat16_of(value)}; }
};

template <class T>
struct Plain {
  using Wide = T;
  T bits;
  [[nodiscard]] T wide() const { return bits; }
  static Plain of(T value) { return {value}; }
};

/// Integers go round without being undefined.
template <class T, class Operation>
T wrapping(T a, T b, Operation operation) {
  if constexpr (std::is_integral_v<T>) {
    // 64 bits, so that no operand is promoted to a signed int.
    return static_cast<T>(operation(static_cast<std::uint64_t>(a), static_cast<std::uint64_t>(b)));
  } else {
    return operation(a, b);
  }
}

template <class T>
bool is_nan(T value) {
  if constexpr (std::is_floating_point_v<T>) return std::isnan(value);
  return false;
}

template <class T>
T combined(Reduction reduction, T a, T b) {
  switch (reduction) {
    case Reduction::prod:
      return wrapping(a, b, [](auto x, auto y) { return x * y; });
    case Reduction::max:
      return is_nan(a) || a > b ? a : b;
    case Reduction::min:
      return is_nan(a) || a < b ? a : b;
    default:
      return wrapping(a, b, [](auto x, auto y) { return x + y; });
  }
}

/// Of integers in 64 bits: the number of ranks need not be one of T.
template <class T>
T divided(T sum, std::size_t ranks) {
  if constexpr (std::is_signed_v<T> && std::is_integral_v<T>) {
    return static_cast<T>(std::int64_t{sum} / static_cast<std::int64_t>(ranks));
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(std::uint64_t{sum} / ranks);
  } else {
    return sum / static_cast<T>(ranks);
  }
}

template <class Element>
void reduce_elements(Reduction reduction, std::span<const std::byte* const> arrays, std::size_t count,
                     std::byte* result) {
  using Wide = typename Element::Wide;
  for (std::size_t i = 0; i < count; ++i) {
    Element element;
    Wide value{};
    for (std::size_t from = 0; from < arrays.size(); ++from) {
      std::memcpy(&element, arrays[from] + i * sizeof(Element), sizeof(Element));
      value = from == 0 ? element.wide() : combined(reduction, value, element.wide());
    }
    if (reduction == Reduction::avg) value = divided(value, arrays.size());
    element = Element::of(value);
    std::memcpy(result + i * sizeof(Element), &element, sizeof(Element));
  }
}

template <class Element>
void multiply_elements(std::byte* elements, std::size_t count, const std::byte* factor) {
  Element element;
  std::memcpy(&element, factor, sizeof(Element));
  const auto by = element.wide();
  for (std::size_t i = 0; i < count; ++i) {
    std::memcpy(&element, elements + i * sizeof(Element), sizeof(Element));
    element = Element::of(combined(Reduction::prod, element.wide(), by));
    std::memcpy(elements + i * sizeof(Element), &element, sizeof(Element));
  }
}

/// f with an element of the type; nothing for types that are carried alone.
template <class F>
void with_element(Type type, F f) {
  switch (type) {
    case Type::i8:
      return f(Plain<std::int8_t>{});
    case Type::u8:
      return f(Plain<std::uint8_t>{});
    case Type::i32:
      return f(Plain<std::int32_t>{});
    case Type::u32:
      return f(Plain<std::uint32_t>{});
    case Type::i64:
      return f(Plain<std::int64_t>{});
    case Type::u64:
      return f(Plain<std::uint64_t>{});
    case Type::f16:
      return f(Half{});
    case Type::f32:
      return f(Plain<float>{});
    case Type::f64:
      return f(Plain<double>{});
    case Type::bf16:
      return f(Brain{});
    default:
      return;
  }
}

}  // namespace

void reduce(Type type, Reduction reduction, std::span<const std::byte* const> arrays, std::size_t count,
            std::byte* result) {
  with_element(type,
               [&](auto element) { reduce_elements<decltype(element)>(reduction, arrays, count, result); });
}

void multiply(Type type, std::byte* elements, std::size_t count, const std::byte* factor) {
  with_element(type, [&](auto element) { multiply_elements<decltype(element)>(elements, count, factor); });
}

}  // namespace gpupool::nccl

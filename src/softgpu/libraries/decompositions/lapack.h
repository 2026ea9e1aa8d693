// LAPACK of the CPU by its names: OpenBLAS's, where there is one.
#pragma once

#include <complex>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "softgpu/libraries/blas.h"
#include "softgpu/libraries/views.h"

namespace softgpu::libraries::lapack {

/// The real type of a number.
template <class N>
using Real = decltype(std::real(N{}));

namespace detail {

template <class T>
const void* address_of(const T& argument) {
  if constexpr (std::is_pointer_v<T>) {
    return argument;
  } else {
    static_assert(std::is_same_v<T, char> || std::is_same_v<T, std::int64_t>);
    return &argument;
  }
}

/// Fortran takes every argument by its address, and behind them the length of each character.
template <std::size_t... characters, class... A>
void called(void* function, std::index_sequence<characters...>, const A&... arguments) {
  using Function = void (*)(decltype(address_of(arguments))..., decltype(characters)...);
  reinterpret_cast<Function>(function)(address_of(arguments)..., (characters * 0 + 1)...);
}

template <class N>
constexpr char letter = std::is_same_v<N, float>                 ? 's'
                        : std::is_same_v<N, double>              ? 'd'
                        : std::is_same_v<N, std::complex<float>> ? 'c'
                                                                 : 'z';

}  // namespace detail

/// Calls the function of a type by its name without letter, such as "potrf". Integers are 64 bits wide. What
/// it is given must be right: LAPACK reports mistakes on standard error.
template <class N, class... A>
void call(const char* name, const A&... arguments) {
  const std::string own = detail::letter<N> + std::string(name);
  void* const function = blas_function(own.c_str());
  if (function == nullptr) {
    throw Failure(softgpu::Fault::illegal_instruction,
                  own + ": no LAPACK is there; install NumPy, or name an OpenBLAS in GPUPOOL_SOFTGPU_BLAS");
  }
  constexpr std::size_t characters = (std::size_t{0} + ... + (std::is_same_v<A, char> ? 1 : 0));
  detail::called(function, std::make_index_sequence<characters>{}, arguments...);
}

/// The name of real numbers, or that of complex ones.
template <class N>
constexpr const char* by_type(const char* real, const char* complex) {
  return std::is_arithmetic_v<N> ? real : complex;
}

/// Calls `f(work, size)` twice: with size -1 it says how much work space it needs.
template <class N, class F>
void with_work(F f) {
  N wish{};
  f(&wish, std::int64_t{-1});
  // Single precision rounds large sizes; as LAPACK does, a little more is taken.
  const auto size = static_cast<std::int64_t>(static_cast<double>(std::real(wish)) * 1.000001) + 1;
  std::vector<N> work(static_cast<std::size_t>(size));
  f(work.data(), size);
}

}  // namespace softgpu::libraries::lapack

// Epilogues: from the sums of a tile to what is stored as D, and beside it.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "libraries/operations/gemm.h"
#include "softgpu/libraries/elements.h"
#include "softgpu/libraries/memory.h"
#include "softgpu/libraries/products/matrices.h"

namespace softgpu::libraries {

/// Makes a size in device memory at least as large, whatever other parts do with it at the same time. Sizes
/// of numbers have the order of their bits.
inline void raise(std::uint32_t& known, float size) {
  const std::atomic_ref<std::uint32_t> shared(known);
  const auto bits = std::bit_cast<std::uint32_t>(size);
  std::uint32_t before = shared.load();
  while (before < bits && !shared.compare_exchange_weak(before, bits)) {
  }
}

/// Of the form of GELU that cuBLASLt documents: tanh(slope · (x + cube · x³)).
struct GeluTanh {
  static constexpr double slope = 0.7978845608028654, cube = 0.044715;  // the first is sqrt(2 / pi)
  static double at(double x) { return std::tanh(slope * (x + cube * x * x * x)); }
};

inline double gelu(double x) {
  return 0.5 * x * (1.0 + GeluTanh::at(x));
}

/// Its derivative.
inline double gelu_slope(double x) {
  const double t = GeluTanh::at(x), bend = 1.0 - t * t;
  // Far from 0 it is a line. There x may be infinite, so that its product with 0 would be no number.
  if (bend == 0.0) return 0.5 * (1.0 + t);
  return 0.5 * (1.0 + t) + 0.5 * x * bend * GeluTanh::slope * (1.0 + 3.0 * GeluTanh::cube * x * x);
}

/// The mask of ReLU of one batch, column after column. The first of eight rows is the lowest bit of a byte.
struct ReluMask {
  std::uint8_t* bytes;
  std::int64_t pitch;  // bytes from one column to the next

  /// The byte that a row is in.
  [[nodiscard]] std::uint8_t& at(std::int64_t row, std::int64_t column) const {
    return bytes[column * pitch + row / 8];
  }
};

/// All of it is checked.
inline ReluMask mask_of(const gpupool::operations::Gemm& op, std::int64_t batch, const Memory& memory) {
  const gpupool::operations::Matrix& matrix = op.auxiliary;
  if (matrix.leading < op.m || matrix.leading % 8 != 0 || matrix.stride % 8 != 0)
    throw Failure(softgpu::Fault::illegal_instruction, "the mask of ReLU: columns overlap");
  const std::uint64_t address =
      matrix.address + static_cast<std::uint64_t>(batch) * static_cast<std::uint64_t>(matrix.stride / 8);
  memory.check_rows(address, (op.m + 7) / 8, op.n, matrix.leading / 8, 1, "the mask of ReLU");
  return {reinterpret_cast<std::uint8_t*>(address), matrix.leading / 8};
}

/// So many sums of `terms` numbers each, always in the same order. at(sum, term) is a number's address.
template <class At>
std::vector<double> added_up(Element type, std::int64_t sums, std::int64_t terms, At at) {
  std::vector<double> result(static_cast<std::size_t>(sums), 0.0);
  with_type(type, [&](auto element) {
    using T = decltype(element);
    for (std::int64_t term = 0; term < terms; ++term) {
      for (std::int64_t sum = 0; sum < sums; ++sum) {
        const T number = *reinterpret_cast<const T*>(at(sum, term));
        result[static_cast<std::size_t>(sum)] += to_number<double>(number);
      }
    }
  });
  return result;
}

/// `N`: what the product is added up in.
template <class N>
class GemmEpilogue {
 public:
  GemmEpilogue(const gpupool::operations::Gemm& op, const Memory& memory)
      : op_(op), memory_(memory), scale_d_(N(scale_at(op.scale_d, memory, "the scale of D"))) {
    using namespace gpupool::operations;
    if (op.largest_d != 0) largest_ = memory.at<std::uint32_t>(op.largest_d, 1, "the largest of D");
    const bool has_auxiliary = op.has(epilogue_auxiliary | epilogue_relu_gradient | epilogue_gelu_gradient);
    if (!std::is_arithmetic_v<N> && (has_auxiliary || op.stores_sums()))
      throw Failure(softgpu::Fault::illegal_instruction, "complex numbers have no such epilogue");
    if (op.has_vector() && bytes_of(op.bias_type) == 0)
      throw Failure(softgpu::Fault::illegal_instruction, "the bias: unknown type");
    // Else parts would write what others read or write at the same time.
    if (std::popcount(op.epilogue &
                      (epilogue_bias | epilogue_bias_gradient | epilogue_sums_a | epilogue_sums_b)) > 1)
      throw Failure(softgpu::Fault::illegal_instruction, "the bias: more than one is in its place");
  }

  /// Whether the sums are D already, but for its type.
  [[nodiscard]] bool is_none() const {
    return op_.epilogue == gpupool::operations::epilogue_none && op_.scale_d == 0 && largest_ == nullptr;
  }

  /// Before the first tile of a part.
  void begin(const Tile& tile) {
    using namespace gpupool::operations;
    row_sums_.assign(static_cast<std::size_t>(tile.m), 0.0);
    // Of all tiles that have the same rows of A, or columns of B, the first one adds them up.
    if (op_.has(epilogue_sums_a) && tile.j == 0) {
      const Stored a = stored(op_.a, op_.transpose_a, op_.m, op_.k, tile.batch, memory_, "A");
      const auto at = [&](std::int64_t row, std::int64_t term) { return a.at(tile.i + row, term); };
      store_sums(tile.batch, op_.m, tile.i, added_up(op_.a.type, tile.m, op_.k, at));
    }
    if (op_.has(epilogue_sums_b) && tile.i == 0) {
      const Stored b = stored(op_.b, op_.transpose_b, op_.k, op_.n, tile.batch, memory_, "B");
      const auto at = [&](std::int64_t column, std::int64_t term) { return b.at(term, tile.j + column); };
      store_sums(tile.batch, op_.n, tile.j, added_up(op_.b.type, tile.n, op_.k, at));
    }
  }

  /// `values`: the sums of a tile with their factors and C. They become D.
  void apply(const Tile& tile, const Stored& d, std::vector<N>& values) {
    if (op_.has(gpupool::operations::epilogue_bias)) add_bias(tile, values);
    if constexpr (std::is_arithmetic_v<N>) {
      activate(tile, values);
      if (op_.by_rows()) add_to_rows(tile, values);
    }
    if (largest_ != nullptr) raise_to_largest(*largest_, values);
    with_type(op_.d.type, [&](auto type) {
      using D = decltype(type);
      tile.each(values, [&](std::int64_t i, std::int64_t j, const N& value) {
        *reinterpret_cast<D*>(d.at(tile.i + i, tile.j + j)) = to_element<D>(N(value * scale_d_));
      });
    });
  }

  /// After the last tile of a part.
  void end(const Tile& tile) const {
    if (op_.by_rows()) store_sums(tile.batch, op_.m, tile.i, row_sums_);
  }

 private:
  void activate(const Tile& tile, std::vector<N>& values) const {
    using namespace gpupool::operations;
    if (op_.has(epilogue_relu_gradient)) return apply_mask(tile, values);
    if (op_.has(epilogue_gelu_gradient)) return apply_slopes(tile, values);
    if (op_.has(epilogue_auxiliary)) {
      if (op_.has_mask()) {
        store_mask(tile, values);
      } else {
        store_arguments(tile, values);
      }
    }
    if (op_.has(epilogue_relu)) {
      for (N& value : values) value = value > N(0) ? value : std::isnan(value) ? value : N(0);
    } else if (op_.has(epilogue_gelu)) {
      for (N& value : values) value = static_cast<N>(gelu(static_cast<double>(value)));
    }
  }

  void store_mask(const Tile& tile, const std::vector<N>& values) const {
    const ReluMask mask = mask_of(op_, tile.batch, memory_);
    // Tiles begin at multiples of 8 rows, so that no two parts write into one byte.
    for (std::int64_t j = 0; j < tile.n; ++j) {
      for (std::int64_t i = 0; i < tile.m; i += 8) {
        unsigned bits = 0;
        for (std::int64_t row = i; row < std::min(i + 8, tile.m); ++row) {
          const N value = values[static_cast<std::size_t>(j * tile.m + row)];
          bits |= (value >= N(0) ? 1U : 0U) << static_cast<unsigned>(row - i);
        }
        mask.at(tile.i + i, tile.j + j) = static_cast<std::uint8_t>(bits);
      }
    }
  }

  void apply_mask(const Tile& tile, std::vector<N>& values) const {
    const ReluMask mask = mask_of(op_, tile.batch, memory_);
    tile.each(values, [&](std::int64_t i, std::int64_t j, N& value) {
      const unsigned eight = mask.at(tile.i + i, tile.j + j);
      if ((eight >> static_cast<unsigned>(i % 8) & 1U) == 0) value = N(0);
    });
  }

  [[nodiscard]] Stored arguments(const Tile& tile) const {
    return stored(op_.auxiliary, gpupool::operations::Transpose::none, op_.m, op_.n, tile.batch, memory_,
                  "the arguments of GELU");
  }

  void store_arguments(const Tile& tile, std::vector<N>& values) const {
    const Stored into = arguments(tile);
    const N scale(scale_at(op_.scale_auxiliary, memory_, "the scale of GELU's arguments"));
    if (op_.largest_auxiliary != 0) {
      raise_to_largest(
          *memory_.at<std::uint32_t>(op_.largest_auxiliary, 1, "the largest of GELU's arguments"), values);
    }
    with_type(op_.auxiliary.type, [&](auto type) {
      using T = decltype(type);
      tile.each(values, [&](std::int64_t i, std::int64_t j, const N& value) {
        *reinterpret_cast<T*>(into.at(tile.i + i, tile.j + j)) = to_element<T>(N(value * scale));
      });
    });
  }

  void apply_slopes(const Tile& tile, std::vector<N>& values) const {
    const Stored from = arguments(tile);
    with_type(op_.auxiliary.type, [&](auto type) {
      using T = decltype(type);
      tile.each(values, [&](std::int64_t i, std::int64_t j, N& value) {
        const auto x = to_number<double>(*reinterpret_cast<const T*>(from.at(tile.i + i, tile.j + j)));
        value = static_cast<N>(static_cast<double>(value) * gelu_slope(x));
      });
    });
  }

  void add_to_rows(const Tile& tile, std::vector<N>& values) {
    tile.each(values, [&](std::int64_t i, std::int64_t, const N& value) {
      row_sums_[static_cast<std::size_t>(i)] += static_cast<double>(value);
    });
  }

  static void raise_to_largest(std::uint32_t& known, const std::vector<N>& values) {
    float largest = 0;
    for (const N& value : values) largest = std::max(largest, static_cast<float>(std::abs(value)));
    raise(known, largest);
  }

  /// The vector of one batch that a bias is read from, or sums are stored into.
  template <class T>
  [[nodiscard]] T* vector_of(std::int64_t batch, std::int64_t length) const {
    const std::uint64_t before =
        static_cast<std::uint64_t>(batch) * static_cast<std::uint64_t>(op_.bias_stride);
    return memory_.at<T>(op_.bias + before * sizeof(T), static_cast<std::uint64_t>(length), "the bias");
  }

  void add_bias(const Tile& tile, std::vector<N>& values) const {
    std::vector<N> bias(static_cast<std::size_t>(tile.m), N(0));
    with_type(op_.bias_type, [&](auto type) {
      using T = decltype(type);
      const T* const all = vector_of<T>(tile.batch, op_.m);
      for (std::int64_t i = 0; i < tile.m; ++i)
        bias[static_cast<std::size_t>(i)] = to_number<N>(all[tile.i + i]);
    });
    tile.each(values,
              [&](std::int64_t i, std::int64_t, N& value) { value += bias[static_cast<std::size_t>(i)]; });
  }

  void store_sums(std::int64_t batch, std::int64_t length, std::int64_t first,
                  const std::vector<double>& sums) const {
    with_type(op_.bias_type, [&](auto type) {
      using T = decltype(type);
      T* into = vector_of<T>(batch, length) + first;
      for (const double sum : sums) *into++ = to_element<T>(sum);
    });
  }

  const gpupool::operations::Gemm& op_;
  const Memory& memory_;
  N scale_d_;
  std::uint32_t* largest_ = nullptr;
  std::vector<double> row_sums_;
};

}  // namespace softgpu::libraries

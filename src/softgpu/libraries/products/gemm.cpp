// Matrix products. A part is a tile of D: it is computed in the type of the sum, then its epilogue stores it.
#include <algorithm>
#include <cmath>
#include <complex>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "libraries/operations/gemm.h"
#include "softgpu/libraries/blas.h"
#include "softgpu/libraries/elements.h"
#include "softgpu/libraries/operations.h"
#include "softgpu/libraries/products/epilogue.h"
#include "softgpu/libraries/products/matrices.h"

namespace softgpu::libraries {
namespace {

using gpupool::operations::bytes_of;
using gpupool::operations::Gemm;
using gpupool::operations::is_complex;
using gpupool::operations::Scalar;
using gpupool::operations::ScaleLayout;
using gpupool::operations::Scaling;
using gpupool::operations::Transpose;

/// The number at an operand's place: in the operation itself or in device memory.
template <class N>
N scalar(const Gemm& op, const Scalar& value, bool on_device, const Memory& memory, const char* what,
         std::int64_t index = 0) {
  N number{};
  const bool known = with_type(op.scalar, [&](auto type) {
    using T = decltype(type);
    T bits;
    if (on_device) {
      bits = memory.at<T>(value.words[0], static_cast<std::uint64_t>(index) + 1, what)[index];
    } else {
      std::memcpy(&bits, value.words, sizeof bits);
    }
    number = to_number<N>(bits);
  });
  if (!known) throw Failure(softgpu::Fault::illegal_instruction, std::string(what) + ": unknown type");
  return number;
}

/// The factors of an operand of fp8 that has more than one.
class BlockFactors {
 public:
  /// Where the operation reads no terms, it does not read their factors either.
  BlockFactors(std::uint64_t address, const ScaleLayout& layout, Element type, const Memory& memory,
               const char* what)
      : address_(address), layout_(layout), one_(layout.how == Scaling::tensor) {
    if (layout.how > Scaling::block128 || (!one_ && !gpupool::operations::is_f8(type)))
      throw Failure(softgpu::Fault::illegal_instruction, std::string(what) + ": there are none of this kind");
    if (!one_ && layout.terms != 0) memory.check(address, layout.count(), layout.bytes(), what);
  }

  /// Multiplies what was read of the rows or columns from `first` on: `outers` of them are `across` numbers
  /// apart, and their terms `along`.
  template <class N>
  void multiply(N* numbers, std::int64_t first, std::int64_t outers, std::int64_t across,
                std::int64_t along) const {
    if (one_) return;
    for (std::int64_t begin = 0; begin < layout_.terms; begin += layout_.width()) {
      const std::int64_t end = std::min(begin + layout_.width(), layout_.terms);
      for (std::int64_t outer = 0; outer < outers; ++outer) {
        const N by(number(layout_.at(first + outer, begin)));
        for (std::int64_t term = begin; term < end; ++term) numbers[outer * across + term * along] *= by;
      }
    }
  }

 private:
  [[nodiscard]] float number(std::int64_t index) const {
    if (!layout_.tiled()) return reinterpret_cast<const float*>(address_)[index];
    const std::uint8_t bits = reinterpret_cast<const std::uint8_t*>(address_)[index];
    // UE4M3 has no sign. UE8M0 is an exponent alone.
    if (layout_.how == Scaling::vec16) return to_number<float>(E4m3{static_cast<std::uint8_t>(bits & 0x7fU)});
    return bits == 255 ? std::numeric_limits<float>::quiet_NaN() : std::ldexp(1.0F, bits - 127);
  }

  std::uint64_t address_;
  ScaleLayout layout_;
  bool one_;
};

/// Rows and columns of op(matrix), as numbers to compute with: where they lie, or copied and converted.
template <class N>
struct Panel {
  const N* data;
  std::int64_t leading;
  Trans trans;
};

template <class N>
Panel<N> panel(const Stored& from, Element type, std::int64_t row, std::int64_t column, std::int64_t rows,
               std::int64_t columns, std::vector<N>& room) {
  // Of nothing only the distance of columns counts: BLAS refuses too small a one.
  if (rows == 0 || columns == 0) return {nullptr, std::max({rows, columns, std::int64_t{1}}), from.trans};
  const std::uint64_t address = from.at(row, column);
  if (from.turned()) std::swap(rows, columns);
  const bool as_it_is = (std::is_same_v<N, float> && type == Element::f32) ||
                        (std::is_same_v<N, double> && type == Element::f64) ||
                        (std::is_same_v<N, std::complex<float>> && type == Element::c32) ||
                        (std::is_same_v<N, std::complex<double>> && type == Element::c64);
  if (as_it_is) return {reinterpret_cast<const N*>(address), from.leading, from.trans};
  room.resize(static_cast<std::size_t>(rows * columns));
  with_type(type, [&](auto element) {
    using T = decltype(element);
    const T* const source = reinterpret_cast<const T*>(address);
    for (std::int64_t c = 0; c < columns; ++c) {
      for (std::int64_t r = 0; r < rows; ++r)
        room[static_cast<std::size_t>(c * rows + r)] = to_number<N>(source[c * from.leading + r]);
    }
  });
  return {room.data(), rows, from.trans};
}

template <class N>
class Product {
 public:
  Product(const Gemm& op, const Memory& memory)
      : op_(op),
        memory_(memory),
        alpha_(op.alpha_per_row ? N(1) : scalar<N>(op, op.alpha, op.scalars_on_device, memory, "alpha")),
        beta_(scalar<N>(op, op.beta, op.scalars_on_device, memory, "beta")),
        // As BLAS has it: op(A) and op(B) are not read where they count for nothing, whatever they hold.
        terms_(alpha_ == N(0) ? 0 : op.k),
        factors_a_(op.scale_a, {op.scaling_a, op.m, terms_}, op.a.type, memory, "the factors of A"),
        factors_b_(op.scale_b, {op.scaling_b, op.n, terms_}, op.b.type, memory, "the factors of B"),
        epilogue_(op, memory) {
    if (terms_ != 0) {
      const auto whole = [](Scaling how, std::uint64_t address) {
        return how == Scaling::tensor ? address : 0;
      };
      alpha_ *= N(scale_at(whole(op.scaling_a, op.scale_a), memory, "the scale of A")) *
                N(scale_at(whole(op.scaling_b, op.scale_b), memory, "the scale of B"));
    }
    beta_ *= N(scale_at(op.scale_c, memory, "the scale of C"));
    plain_ = epilogue_.is_none() && !op.alpha_per_row && op.d.type == op.c.type &&
             bytes_of(op.d.type) == sizeof(N) && is_floating(op.d.type) && !op.d.by_row;
  }

  /// A part: one tile, or all tiles of its rows.
  void run(std::uint64_t part) {
    Tile tile = tile_of(op_, part);
    epilogue_.begin(tile);
    compute(tile);
    while (op_.by_rows() && tile.j + tile.n < op_.n) {
      tile.j += tile.n;
      tile.n = std::min(op_.tile(), op_.n - tile.j);
      compute(tile);
    }
    epilogue_.end(tile);
  }

 private:
  static bool is_floating(Element type) {
    return type == Element::f32 || type == Element::f64 || is_complex(type);
  }

  void compute(const Tile& tile) {
    const Stored a = stored(op_.a, op_.transpose_a, op_.m, terms_, tile.batch, memory_, "A");
    const Stored b = stored(op_.b, op_.transpose_b, terms_, op_.n, tile.batch, memory_, "B");
    const Stored d = stored(op_.d, Transpose::none, op_.m, op_.n, tile.batch, memory_, "D");
    const bool reads_c = beta_ != N(0);
    const Stored c =
        reads_c ? stored(op_.c, Transpose::none, op_.m, op_.n, tile.batch, memory_, "C", true) : d;
    const auto [left, lda, trans_a] = panel(a, op_.a.type, tile.i, 0, tile.m, terms_, room_a_);
    const auto [right, ldb, trans_b] = panel(b, op_.b.type, 0, tile.j, terms_, tile.n, room_b_);
    factors_a_.multiply(room_a_.data(), tile.i, tile.m, a.turned() ? lda : 1, a.turned() ? 1 : lda);
    factors_b_.multiply(room_b_.data(), tile.j, tile.n, b.turned() ? 1 : ldb, b.turned() ? ldb : 1);
    if (plain_ && (!reads_c || (c.address == d.address && c.leading == d.leading))) {
      gemm(trans_a, trans_b, tile.m, tile.n, terms_, alpha_, left, lda, right, ldb, beta_,
           reinterpret_cast<N*>(d.at(tile.i, tile.j)), d.leading);
      return;
    }
    sums_.resize(static_cast<std::size_t>(tile.m * tile.n));
    gemm(trans_a, trans_b, tile.m, tile.n, terms_, N(1), left, lda, right, ldb, N(0), sums_.data(), tile.m);
    add_factors(tile, c, reads_c);
    epilogue_.apply(tile, d, sums_);
  }

  /// The sums get alpha, and beta · C.
  void add_factors(const Tile& tile, const Stored& c, bool reads_c) {
    std::vector<N> alpha(static_cast<std::size_t>(tile.m), alpha_);
    if (op_.alpha_per_row) {
      for (std::int64_t i = 0; i < tile.m; ++i)
        alpha[static_cast<std::size_t>(i)] =
            alpha_ * scalar<N>(op_, op_.alpha, true, memory_, "alpha", tile.i + i);
    }
    tile.each(sums_,
              [&](std::int64_t i, std::int64_t, N& value) { value *= alpha[static_cast<std::size_t>(i)]; });
    if (!reads_c) return;
    with_type(op_.c.type, [&](auto type) {
      using C = decltype(type);
      tile.each(sums_, [&](std::int64_t i, std::int64_t j, N& value) {
        value += beta_ * to_number<N>(*reinterpret_cast<const C*>(c.at(tile.i + i, tile.j + j)));
      });
    });
  }

  const Gemm& op_;
  const Memory& memory_;
  N alpha_, beta_;
  std::int64_t terms_;
  BlockFactors factors_a_, factors_b_;
  GemmEpilogue<N> epilogue_;
  bool plain_;
  std::vector<N> room_a_, room_b_, sums_;
};

template <class N>
void run_in(const Gemm& op, const Parts& parts, const Memory& memory) {
  Product<N> product(op, memory);
  parts.each(op.parts(), [&](std::uint64_t part) { product.run(part); });
}

}  // namespace

void run(const Gemm& op, const Parts& parts, const Memory& memory) {
  if (op.m == 0 || op.n == 0 || op.batch == 0) return;
  const bool complex = is_complex(op.a.type);
  switch (op.sum) {
    case Element::f32:
      return complex ? run_in<std::complex<float>>(op, parts, memory) : run_in<float>(op, parts, memory);
    case Element::f64:
      return complex ? run_in<std::complex<double>>(op, parts, memory) : run_in<double>(op, parts, memory);
    case Element::i32:  // exact in it, and there is a fast product
      return run_in<double>(op, parts, memory);
    default:
      throw Failure(softgpu::Fault::illegal_instruction, "sums of an unknown type");
  }
}

}  // namespace softgpu::libraries

// Products, solutions and what is done element by element, of matrices in any form that BLAS has. A part is a
// tile of what is written.
#include "libraries/operations/dense.h"

#include <algorithm>
#include <complex>
#include <cstdint>
#include <vector>

#include "softgpu/libraries/operations.h"
#include "softgpu/libraries/views.h"

namespace softgpu::libraries {
namespace {

using gpupool::operations::Each;
using gpupool::operations::Entrywise;
using gpupool::operations::InPlace;
using gpupool::operations::Mirror;
using gpupool::operations::Product;
using gpupool::operations::Solve;

template <class N>
class Tiles {
 public:
  Tiles(const Product& op, const Memory& memory)
      : op_(op),
        memory_(memory),
        alpha_(number<N>(op.alpha, memory, "alpha")),
        beta_(number<N>(op.beta, memory, "beta")) {}

  void run(std::uint64_t part) {
    const auto tiles_m = static_cast<std::uint64_t>(op_.tiles_m());
    const auto tiles_n = static_cast<std::uint64_t>(op_.tiles_n());
    const auto batch = static_cast<std::int64_t>(part / tiles_m / tiles_n);
    // Factors are not read where they count for nothing.
    const std::int64_t terms = alpha_ == N(0) ? 0 : op_.k;
    c_ = located(op_.c, op_.m, op_.n, batch, memory_, "C");
    check_apart(c_, op_.m, op_.n, "C");
    check_moves(op_.a, op_.m, terms, "A");
    check_moves(op_.b, terms, op_.n, "B");
    View a = located(op_.a, op_.m, terms, batch, memory_, "A");
    View b = located(op_.b, terms, op_.n, batch, memory_, "B");
    Block block{0, op_.m, 0, op_.n};
    if (op_.in_place != InPlace::right) {
      block.i = static_cast<std::int64_t>(part % tiles_m) * op_.tile();
      block.i_end = std::min(op_.m, block.i + op_.tile());
    }
    if (op_.in_place != InPlace::left) {
      block.j = static_cast<std::int64_t>(part / tiles_m % tiles_n) * op_.tile();
      block.j_end = std::min(op_.n, block.j + op_.tile());
    }
    // The factor that is overwritten is copied first.
    if (op_.in_place == InPlace::right) b = kept(b, {0, terms, block.j, block.j_end});
    if (op_.in_place == InPlace::left) a = kept(a, {block.i, block.i_end, 0, terms});
    for (std::int64_t i = block.i; i < block.i_end; i += op_.tile()) {
      for (std::int64_t j = block.j; j < block.j_end; j += op_.tile())
        tile(a, b, {i, std::min(block.i_end, i + op_.tile()), j, std::min(block.j_end, j + op_.tile())},
             terms);
    }
  }

 private:
  /// Terms that lie in one place would have no end; only a narrow band, as a diagonal, may.
  static void check_moves(const View& view, std::int64_t rows, std::int64_t columns, const char* what) {
    if (view.below <= 1 << 20 && view.above <= 1 << 20) return;
    if (view.packed == Packed::no && ((rows > 1 && view.row == 0) || (columns > 1 && view.column == 0)))
      wrong(std::string(what) + ": all lies in one place");
  }

  /// A view of a copy; its indices are those of the whole.
  View kept(const View& view, const Block& block) {
    kept_.resize(static_cast<std::size_t>(block.rows() * block.columns()));
    read_block(view, block, kept_.data());
    View copy = room_view(kept_.data(), std::max<std::int64_t>(block.rows(), 1), element_of<N>);
    copy.address -= static_cast<std::uint64_t>(offset_of(copy, block.i, block.j)) * sizeof(N);
    return copy;
  }

  void tile(const View& a, const View& b, const Block& block, std::int64_t terms) {
    if (is_outside(c_, block)) return;
    if (op_.mirror == Mirror::none && !op_.real_diagonal && c_.row == 1 && c_.packed == Packed::no) {
      if (const auto place = as_it_lies<N>(c_, block); place && place->trans == Trans::none) {
        add_product(alpha_, a, b, block, terms, beta_, const_cast<N*>(place->data), place->leading);
        return;
      }
    }
    sums_.resize(static_cast<std::size_t>(block.rows() * block.columns()));
    add_product(alpha_, a, b, block, terms, N(0), sums_.data(), block.rows());
    if (op_.mirror != Mirror::none) {
      const bool conjugated = op_.mirror == Mirror::conjugated;
      add_product(conjugated ? conjugate(alpha_) : alpha_, transposed(b, conjugated),
                  transposed(a, conjugated), block, terms, N(1), sums_.data(), block.rows());
    }
    write_block<N>(c_, block, beta_ != N(0), [&](std::int64_t i, std::int64_t j, N there) {
      N value = sums_[static_cast<std::size_t>(i - block.i + (j - block.j) * block.rows())];
      if (beta_ != N(0)) value += times(beta_, there);
      return op_.real_diagonal && i == j ? real_only(value) : value;
    });
  }

  const Product& op_;
  const Memory& memory_;
  N alpha_, beta_;
  View c_;
  std::vector<N> kept_, sums_;
};

/// The first part, and how many columns it has, of columns cut into pieces.
struct Columns {
  std::int64_t first, count, batch;
};

template <class N>
void solve(const Solve& op, const Columns& columns, const Memory& memory) {
  const N alpha = number<N>(op.alpha, memory, "alpha");
  const View a =
      located(op.a, alpha == N(0) ? 0 : op.m, alpha == N(0) ? 0 : op.m, columns.batch, memory, "A");
  const View b = located(op.b, op.m, op.n, columns.batch, memory, "B");
  check_apart(b, op.m, op.n, "B");
  if (a.below != 0 && a.above != 0) wrong("A is no triangle");
  if (a.structure != Structure::zero || b.packed != Packed::no) wrong("A or B has a form that is not solved");
  const Block block{0, op.m, columns.first, columns.first + columns.count};
  std::vector<N> x(static_cast<std::size_t>(op.m * columns.count));
  if (alpha != N(0)) {
    read_block(b, block, x.data());
    if (alpha != N(1)) {
      for (N& value : x) value = times(alpha, value);
    }
    solve_in_place(a, 0, op.m, columns.count, x.data(), op.m);
  }
  write_block<N>(b, block, false, [&](std::int64_t i, std::int64_t j, N) {
    const N value = x[static_cast<std::size_t>(i + (j - columns.first) * op.m)];
    return b.conjugated ? conjugate(value) : value;
  });
}

template <class N>
void entrywise(const Entrywise& op, const Block& block, const Memory& memory) {
  const bool sum = op.each == Each::sum;
  const N alpha = sum ? number<N>(op.alpha, memory, "alpha") : N(1);
  const N beta = sum ? number<N>(op.beta, memory, "beta") : N(1);
  std::vector<N> left, right;
  // What counts for nothing is not read.
  const auto read = [&](const View& view, N factor, std::vector<N>& into, const char* what) {
    into.assign(static_cast<std::size_t>(block.rows() * block.columns()), N(0));
    if (factor == N(0)) return;
    read_block(located(view, op.m, op.n, 0, memory, what), block, into.data());
  };
  read(op.a, alpha, left, "A");
  read(op.b, beta, right, "B");
  const View c = located(op.c, op.m, op.n, 0, memory, "C");
  check_apart(c, op.m, op.n, "C");
  write_block<N>(c, block, false, [&](std::int64_t i, std::int64_t j, N) {
    const auto at = static_cast<std::size_t>(i - block.i + (j - block.j) * block.rows());
    return sum ? times(alpha, left[at]) + times(beta, right[at]) : times(left[at], right[at]);
  });
}

}  // namespace

void run(const Product& op, const Parts& parts, const Memory& memory) {
  if (op.m < 0 || op.n < 0 || op.k < 0 || op.batch < 0) wrong("a negative size");
  if (op.mirror > Mirror::conjugated || op.in_place > InPlace::right) wrong("no such product");
  if (op.m == 0 || op.n == 0 || op.batch == 0) return;
  if (op.mirror != Mirror::none &&
      (op.m != op.n || op.a.packed != Packed::no || op.b.packed != Packed::no ||
       op.a.structure != Structure::zero || op.b.structure != Structure::zero || op.in_place != InPlace::no))
    wrong("no such product has a mirror");
  if ((op.in_place == InPlace::right && op.k != op.m) || (op.in_place == InPlace::left && op.k != op.n))
    wrong("a product of another size is stored in its factor");
  with_number(op.sum, [&](auto type) {
    Tiles<decltype(type)> tiles(op, memory);
    parts.each(op.parts(), [&](std::uint64_t part) { tiles.run(part); });
  });
}

void run(const Solve& op, const Parts& parts, const Memory& memory) {
  if (op.m < 0 || op.n < 0 || op.batch < 0) wrong("a negative size");
  if (op.m == 0 || op.n == 0 || op.batch == 0) return;
  const std::int64_t pieces = gpupool::operations::pieces(op.n, Solve::columns);
  with_number(op.b.type, [&](auto type) {
    parts.each(op.parts(), [&](std::uint64_t part) {
      const std::int64_t first =
          static_cast<std::int64_t>(part % static_cast<std::uint64_t>(pieces)) * Solve::columns;
      solve<decltype(type)>(op,
                            {first, std::min(Solve::columns, op.n - first),
                             static_cast<std::int64_t>(part / static_cast<std::uint64_t>(pieces))},
                            memory);
    });
  });
}

void run(const Entrywise& op, const Parts& parts, const Memory& memory) {
  if (op.m < 0 || op.n < 0) wrong("a negative size");
  if (op.each > Each::product) wrong("no such combination");
  if (op.m == 0 || op.n == 0) return;
  const auto tiles_m = static_cast<std::uint64_t>(gpupool::operations::pieces(op.m, op.tile()));
  with_number(op.c.type, [&](auto type) {
    parts.each(op.parts(), [&](std::uint64_t part) {
      const std::int64_t i = static_cast<std::int64_t>(part % tiles_m) * op.tile();
      const std::int64_t j = static_cast<std::int64_t>(part / tiles_m) * op.tile();
      entrywise<decltype(type)>(op, {i, std::min(op.m, i + op.tile()), j, std::min(op.n, j + op.tile())},
                                memory);
    });
  });
}

}  // namespace softgpu::libraries

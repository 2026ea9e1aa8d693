// What is done with a matrix of a narrow band takes memory, and time, by what is stored of it, not by its
// order.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "libraries/operations/dense.h"
#include "softgpu/libraries/execute.h"
#include "testing/memory_bound.h"

using namespace softgpu::libraries;
using namespace gpupool::operations;

namespace {

constexpr std::int64_t order = 100'000;
constexpr std::size_t bound = std::size_t{48} << 20;

template <class N>
using Numbers = std::vector<N>;

template <class N>
constexpr Element type_of = sizeof(N) == 4 ? Element::f32 : Element::f64;

/// One triangle of a matrix with k diagonals beside the main one, column after column, as BLAS has it.
template <class N>
struct Band {
  std::int64_t k;
  bool upper;
  Numbers<N> stored;

  Band(std::int64_t diagonals, bool is_upper, std::mt19937& random)
      : k(diagonals), upper(is_upper), stored(static_cast<std::size_t>(order * (diagonals + 1))) {
    // No sum of a row's others is as large as its diagonal, so that solutions stay small.
    std::uniform_real_distribution<N> any(N(-0.25), N(0.25));
    for (N& value : stored) value = any(random);
    for (std::int64_t i = 0; i < order; ++i) stored[static_cast<std::size_t>(offset(i, i))] = N(2);
  }
  [[nodiscard]] std::int64_t offset(std::int64_t i, std::int64_t j) const {
    return j * (k + 1) + (upper ? k + i - j : i - j);
  }
  [[nodiscard]] N at(std::int64_t i, std::int64_t j) const {
    return stored[static_cast<std::size_t>(offset(i, j))];
  }
  [[nodiscard]] View view() const {
    View made;
    made.address = reinterpret_cast<std::uintptr_t>(stored.data());
    made.column = k;
    made.offset = upper ? k : 0;
    (upper ? made.above : made.below) = k;
    (upper ? made.below : made.above) = 0;
    made.type = type_of<N>;
    return made;
  }
};

template <class N>
Numbers<N> random_vector(std::mt19937& random) {
  std::uniform_real_distribution<N> any(N(-1), N(1));
  Numbers<N> made(static_cast<std::size_t>(order));
  for (N& value : made) value = any(random);
  return made;
}

template <class N>
View column(const Numbers<N>& of) {
  View made;
  made.address = reinterpret_cast<std::uintptr_t>(of.data());
  made.type = type_of<N>;
  return made;
}

template <class N>
Factor factor(N value) {
  Factor made;
  made.type = type_of<N>;
  std::memcpy(made.value.words, &value, sizeof value);
  return made;
}

/// All parts, in no more memory than the bound.
template <class O>
void execute_within_bound(const O& op) {
  std::vector<std::byte> bytes(sizeof op);
  std::memcpy(bytes.data(), &op, sizeof op);
  const Memory memory([](std::uint64_t, std::size_t) { return true; });
  const testing::MemoryBound kept(bound);
  for (std::uint64_t part = 0;; ++part) {
    const auto end = execute({O::name, bytes, 0, 1, part}, memory);
    REQUIRE_MESSAGE(end.fault == softgpu::Fault::none, end.detail);
    if (!end.more) return;
  }
}

/// OpenBLAS is loaded before the bound.
void warm_up() {
  std::vector<float> one{1};
  Gemm op;
  op.m = op.n = op.k = 1;
  for (auto* const matrix : {&op.a, &op.b, &op.c, &op.d}) {
    matrix->address = reinterpret_cast<std::uintptr_t>(one.data());
    matrix->leading = 1;
  }
  std::vector<std::byte> bytes(sizeof op);
  std::memcpy(bytes.data(), &op, sizeof op);
  const Memory memory([](std::uint64_t, std::size_t) { return true; });
  REQUIRE(execute({Gemm::name, bytes, 0, 1, 0}, memory).fault == softgpu::Fault::none);
}

template <class N>
void check_close(const Numbers<N>& found, const Numbers<N>& wanted) {
  double worst = 0;
  for (std::size_t i = 0; i < found.size(); ++i)
    worst = std::max(worst, std::fabs(static_cast<double>(found[i]) - static_cast<double>(wanted[i])));
  CHECK(worst < (sizeof(N) == 4 ? 1e-5 : 1e-13));
}

/// tbsv.
template <class N>
void solve(std::int64_t k, bool upper) {
  CAPTURE(k);
  CAPTURE(upper);
  std::mt19937 random(7);
  const Band<N> a(k, upper, random);
  Numbers<N> x = random_vector<N>(random), wanted = x;
  for (std::int64_t count = 0; count < order; ++count) {
    const std::int64_t i = upper ? order - 1 - count : count;
    N& value = wanted[static_cast<std::size_t>(i)];
    for (std::int64_t d = 1; d <= std::min(k, count); ++d) {
      const std::int64_t j = upper ? i + d : i - d;
      value -= a.at(i, j) * wanted[static_cast<std::size_t>(j)];
    }
    value /= a.at(i, i);
  }
  Solve op;
  op.a = a.view();
  op.b = column(x);
  op.m = order;
  op.n = 1;
  op.alpha = factor(N(1));
  execute_within_bound(op);
  check_close(x, wanted);
}

/// sbmv.
template <class N>
void multiply(std::int64_t k, bool upper) {
  CAPTURE(k);
  CAPTURE(upper);
  std::mt19937 random(7);
  const Band<N> a(k, upper, random);
  const Numbers<N> x = random_vector<N>(random);
  Numbers<N> y(x.size()), wanted(x.size());
  for (std::int64_t i = 0; i < order; ++i) {
    N& sum = wanted[static_cast<std::size_t>(i)];
    for (std::int64_t j = std::max<std::int64_t>(i - k, 0); j <= std::min(i + k, order - 1); ++j)
      sum += ((i <= j) == upper ? a.at(i, j) : a.at(j, i)) * x[static_cast<std::size_t>(j)];
  }
  Product op;
  op.a = a.view();
  op.a.structure = Structure::symmetric;
  op.b = column(x);
  op.c = column(y);
  op.m = op.k = order;
  op.n = 1;
  op.sum = type_of<N>;
  op.alpha = factor(N(1));
  op.beta = factor(N(0));
  execute_within_bound(op);
  check_close(y, wanted);
}

}  // namespace

TEST_CASE("a narrow triangular band of a large order is solved in the memory of its vector") {
  warm_up();
  for (const bool upper : {false, true}) {
    for (const std::int64_t k : {0, 1, 2, 40}) {
      solve<float>(k, upper);
      solve<double>(k, upper);
    }
  }
}

TEST_CASE("a product of a narrow symmetric band of a large order reads the band alone") {
  warm_up();
  for (const bool upper : {false, true}) {
    for (const std::int64_t k : {0, 1, 2}) multiply<float>(k, upper);
  }
}

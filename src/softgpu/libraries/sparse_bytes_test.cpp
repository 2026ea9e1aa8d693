// Sparse operations that are right but for some of their bytes, or for some of the indices that they find in
// device memory, compute inside their memory or end with a fault.
#include <doctest/doctest.h>

#include <cstring>
#include <random>
#include <vector>

#include "libraries/operations/all.h"
#include "softgpu/libraries/execute.h"

using namespace softgpu::libraries;
using namespace gpupool::operations;

namespace {

constexpr std::int64_t order = 8;

/// Device memory with a sparse matrix of `order` rows in it, one entry in each.
class Arena {
 public:
  explicit Arena(std::mt19937& random) : random_(random), words_(size) {}

  [[nodiscard]] std::uint64_t address(std::size_t word = 0) const {
    return reinterpret_cast<std::uintptr_t>(words_.data() + word);
  }
  [[nodiscard]] Memory memory() const {
    return Memory([this](std::uint64_t at, std::size_t count) {
      return at >= address() && count <= size * 4 && at - address() <= size * 4 - count;
    });
  }

  SparseMatrix matrix() {
    for (std::int32_t i = 0; i <= order; ++i) {
      words_[static_cast<std::size_t>(i)] = i;
      words_[32 + static_cast<std::size_t>(i)] = order - 1 - i;
    }
    if (random_() % 2 == 0) words_[random_() % 40] = static_cast<std::int32_t>(random_());
    SparseMatrix made;
    made.offsets = address();
    made.indices = address(32);
    made.values = address(64);
    made.rows = made.columns = made.entries = order;
    made.format = static_cast<SparseFormat>(1 + random_() % 3);
    return made;
  }
  [[nodiscard]] View dense() const {
    View made;
    made.address = address(1024);
    made.column = order;
    return made;
  }

  void make(SparseProduct& op) {
    op.a = matrix();
    op.b = op.c = dense();
    op.n = order;
    op.transpose = static_cast<Transpose>(random_() % 3);
  }
  void make(SparseSample& op) {
    op.c = matrix();
    op.a = op.b = dense();
    op.k = order;
  }
  void make(SparseSolve& op) {
    op.a = matrix();
    op.b = op.c = dense();
    op.n = order;
    op.transpose = static_cast<Transpose>(random_() % 3);
    op.upper = random_() % 2 == 0;
  }
  void make(SparseToDense& op) {
    op.a = matrix();
    op.b = dense();
  }
  void make(SparseIndices& op) {
    matrix();
    op.offsets = address();
    op.rows = address(128);
    op.columns = address(32);
    op.permutation = address(96);
    op.m = op.entries = order;
    op.what = static_cast<OnIndices>(random_() % 5);
  }

 private:
  static constexpr std::size_t size = 1 << 14;
  std::mt19937& random_;
  std::vector<std::int32_t> words_;
};

std::uint64_t word(std::mt19937& random, const Arena& arena) {
  switch (random() % 5) {
    case 0:
      return static_cast<std::uint64_t>(random()) << 32 | random();
    case 1:
      return static_cast<std::uint64_t>(-static_cast<std::int64_t>(random() % 4));
    case 2:
      return arena.address(random() % 4096 * 2);
    case 3:
      return std::uint64_t{1} << random() % 64;
    default:
      return random() % 9;
  }
}

template <class O>
void try_changes() {
  CAPTURE(O::name);
  std::mt19937 random(11);
  Arena arena(random);
  const Memory memory = arena.memory();
  int computed = 0, refused = 0;
  for (int n = 0; n < 4000; ++n) {
    O op;
    arena.make(op);
    std::byte bytes[sizeof(O)];
    std::memcpy(bytes, &op, sizeof op);
    for (unsigned change = random() % 4; change > 0; --change) {
      const std::uint64_t value = word(random, arena);
      if (random() % 3 == 0) {
        bytes[random() % sizeof(O)] = static_cast<std::byte>(value);
      } else {
        std::memcpy(bytes + random() % (sizeof(O) / 8) * 8, &value, sizeof value);
      }
    }
    const auto end = execute({O::name, bytes, 0, 1, random() % 3}, memory);
    CHECK((end.fault == softgpu::Fault::none) == end.detail.empty());
    (end.fault == softgpu::Fault::none ? computed : refused) += 1;
  }
  CHECK(computed > 500);
  CHECK(refused > 500);
}

}  // namespace

TEST_CASE("a sparse operation with some bytes or indices changed stays inside the device's memory") {
  try_changes<SparseProduct>();
  try_changes<SparseSample>();
  try_changes<SparseSolve>();
  try_changes<SparseToDense>();
  try_changes<SparseIndices>();
}

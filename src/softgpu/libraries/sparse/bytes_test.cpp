// Operations with sparse matrices that are right but for some of their bytes, and whose indices are any
// numbers, compute inside their memory or end with a fault.
#include <doctest/doctest.h>

#include <cstring>
#include <random>
#include <vector>

#include "libraries/operations/all.h"
#include "softgpu/libraries/execute.h"

using namespace softgpu::libraries;
using namespace gpupool::operations;

namespace {

constexpr std::int64_t order = 6, entries = 12;

class Right {
 public:
  explicit Right(std::mt19937& random) : random_(random), words_(8192) {}

  [[nodiscard]] std::uint64_t address(std::size_t word = 0) const {
    return reinterpret_cast<std::uintptr_t>(words_.data() + word);
  }
  [[nodiscard]] Memory memory() const {
    return Memory([this](std::uint64_t at, std::size_t count) {
      const std::size_t bytes = words_.size() * sizeof(std::int32_t);
      return at >= address() && count <= bytes && at - address() <= bytes - count;
    });
  }

  /// Two entries in each row; now and then an index that is none.
  void reset() {
    for (std::int64_t i = 0; i <= order; ++i) words_[static_cast<std::size_t>(i)] = index(2 * i);
    for (std::int64_t k = 0; k < entries; ++k) words_[static_cast<std::size_t>(100 + k)] = index(k % order);
    for (std::int64_t k = 0; k < entries; ++k) words_[static_cast<std::size_t>(200 + k)] = index(k / 2);
  }

  [[nodiscard]] Sparse matrix() const {
    Sparse made;
    made.storage = static_cast<Storage>(random_() % 3);
    made.offsets = address(made.storage == Storage::coordinates ? 200 : 0);
    made.indices = address(100);
    made.values = address(300);
    made.rows = made.columns = order;
    made.entries = entries;
    made.turned = random_() % 2 == 0;
    return made;
  }
  [[nodiscard]] Sparse compressed() const {
    Sparse made = matrix();
    made.storage = Storage::compressed;
    made.offsets = address();
    made.turned = false;
    return made;
  }
  [[nodiscard]] View dense(std::size_t word) const {
    View made;
    made.address = address(word);
    made.column = order;
    return made;
  }

  void make(SparseProduct& op) const {
    op.a = matrix();
    op.b = dense(1000);
    op.c = dense(1100);
    op.n = 3;
  }
  void make(SparseSolve& op) const {
    op.a = matrix();
    op.b = dense(1000);
    op.c = dense(1100);
    op.n = 3;
    op.upper = random_() % 2 == 0;
    op.zero_pivot = address(1200);
  }
  void make(Bands& op) const {
    for (std::size_t i = 0; i < Bands::most_diagonals; ++i) op.diagonals[i] = address(1000 + 100 * i);
    op.b = address(2000);
    op.m = order;
    op.how = static_cast<Banded>(random_() % 4);
    (op.how <= Banded::as_it_is ? op.n : op.batch) = 3;
    op.ldb = op.stride = order;
    op.type = random_() % 2 == 0 ? Element::f32 : Element::c32;
  }
  void make(SparseEntries& op) const {
    op.s = matrix();
    op.a = dense(1000);
    op.b = dense(1100);
    op.k = order;
    op.what = static_cast<Entries>(random_() % 2);
  }
  void make(SparseMaking& op) const {
    op.a = op.b = compressed();
    op.c = compressed();
    op.c.offsets = address(2000);
    op.c.indices = address(2100);
    op.c.values = address(2200);
    op.c.entries = 40;
    op.dense = dense(1000);
    op.counts = address(3000);
    op.what = static_cast<Making>(random_() % 3);
    op.step = static_cast<MakingStep>(random_() % 3);
  }
  void make(SparseArrange& op) const {
    op.rows = address(random_() % 2 == 0 ? 0 : 200);
    op.columns = address(100);
    op.values = address(300);
    op.to = address(2000);
    op.to_columns = address(2100);
    op.to_values = address(2200);
    op.m = op.n = order;
    op.entries = entries;
    op.what = static_cast<Arrange>(random_() % 6);
  }
  void make(SparseVector& op) const {
    op.indices = address(100);
    op.x = address(300);
    op.y = address(1000);
    op.result = address(1100);
    op.size = order;
    op.entries = entries;
    op.what = static_cast<Indexed>(random_() % 5);
  }

 private:
  std::int32_t index(std::int64_t right) const {
    return random_() % 100 == 0 ? static_cast<std::int32_t>(random_()) : static_cast<std::int32_t>(right);
  }

  std::mt19937& random_;
  std::vector<std::int32_t> words_;
};

template <class O>
void try_changes() {
  CAPTURE(O::name);
  std::mt19937 random(7);
  Right right(random);
  const Memory memory = right.memory();
  int computed = 0, refused = 0;
  for (int n = 0; n < 3000; ++n) {
    O op;
    right.reset();
    right.make(op);
    std::byte bytes[sizeof(O)];
    std::memcpy(bytes, &op, sizeof op);
    for (unsigned change = random() % 3; change > 0; --change) {
      const std::uint64_t values[] = {random() % 9, right.address(random() % 4000),
                                      ~std::uint64_t{random() % 4}, std::uint64_t{1} << random() % 64};
      const std::uint64_t value = values[random() % 4];
      if (random() % 3 == 0) {
        bytes[random() % sizeof(O)] = static_cast<std::byte>(value);
      } else {
        std::memcpy(bytes + random() % (sizeof(O) / 8) * 8, &value, sizeof value);
      }
    }
    const auto end = execute({O::name, bytes, 0, 1, random() % 2}, memory);
    CHECK((end.fault == softgpu::Fault::none) == end.detail.empty());
    (end.fault == softgpu::Fault::none ? computed : refused) += 1;
  }
  CHECK(computed > 0);
  CHECK(refused > 0);
}

}  // namespace

TEST_CASE("an operation with sparse matrices of any indices stays inside the device's memory") {
  try_changes<SparseProduct>();
  try_changes<SparseSolve>();
  try_changes<Bands>();
  try_changes<SparseEntries>();
  try_changes<SparseMaking>();
  try_changes<SparseArrange>();
  try_changes<SparseVector>();
}

// Levels 2 and 3 of BLAS beyond plain products: one product, one solution and one element by element are all
// of them, since views (view.h) say what the matrices are.
#pragma once

#include <cstdint>

#include "libraries/operations/gemm.h"
#include "libraries/operations/operation.h"
#include "libraries/operations/scalar.h"
#include "libraries/operations/view.h"

namespace gpupool::operations {

/// Into how many pieces `count` is cut; 0 for sizes that no operation has.
constexpr std::int64_t pieces(std::int64_t count, std::int64_t size) {
  return count <= 0 ? 0 : (count - 1) / size + 1;
}

/// What is added to a product: nothing, the product transposed, or transposed and conjugated.
enum class Mirror : std::uint8_t { none = 0, transposed = 1, conjugated = 2 };

/// Which factor lies where the product is stored.
enum class InPlace : std::uint8_t { no = 0, left = 1, right = 2 };

/// C = alpha · A · B + mirror of it + beta · C, where C is stored; m × n, with k terms.
struct Product {
  static constexpr const char* name = "cublas_product";
  View a, b, c;
  std::int64_t m = 0, n = 0, k = 0, batch = 1;
  Factor alpha, beta;
  Element sum = Element::f32;  // what products are added up in
  Mirror mirror = Mirror::none;
  InPlace in_place = InPlace::no;
  Flag real_diagonal = false;  // C is hermitian
  std::uint8_t reserved[4] = {};

  [[nodiscard]] std::int64_t tile() const { return tile_of(m, n); }
  /// A factor that is overwritten is read whole by whoever writes there.
  [[nodiscard]] std::int64_t tiles_m() const { return in_place == InPlace::right ? 1 : pieces(m, tile()); }
  [[nodiscard]] std::int64_t tiles_n() const { return in_place == InPlace::left ? 1 : pieces(n, tile()); }
  [[nodiscard]] std::uint64_t parts() const { return parts_of({tiles_m(), tiles_n(), batch}); }
};

/// B = alpha · A⁻¹ · B for a triangular A of order m; B has n columns.
struct Solve {
  static constexpr const char* name = "cublas_solve";
  static constexpr std::int64_t columns = 128;  // that one part solves
  View a, b;
  std::int64_t m = 0, n = 0, batch = 1;
  Factor alpha;

  [[nodiscard]] std::uint64_t parts() const { return parts_of({pieces(n, columns), batch}); }
};

enum class Each : std::uint8_t {
  sum = 0,      // C = alpha · A + beta · B
  product = 1,  // C = A · B
};

/// C of A and B element by element, where C is stored; m × n.
struct Entrywise {
  static constexpr const char* name = "cublas_entrywise";
  View a, b, c;
  std::int64_t m = 0, n = 0;
  Factor alpha, beta;
  Each each = Each::sum;
  std::uint8_t reserved[7] = {};

  [[nodiscard]] std::int64_t tile() const { return 256; }
  [[nodiscard]] std::uint64_t parts() const { return parts_of({pieces(m, tile()), pieces(n, tile())}); }
};

}  // namespace gpupool::operations

// Solutions with a sparse triangle by cuSPARSE: analysed and solved at once, since an operation keeps
// nothing.
#include <algorithm>

#include "libraries/operations/sparse.h"
#include "worker/libraries/sparse.h"

namespace gpupool::worker {
namespace {

using operations::Sparse;
using operations::SparseSolve;
using operations::View;

void set_triangle(SparseLibrary& sparse, const SparseLibrary::Matrix& matrix, const SparseSolve& of) {
  constexpr int fill_mode = 0, diagonal_type = 1;  // cusparseSpMatAttribute_t
  // Conjugated and not turned: it is described as the columns of the transposed matrix, which has the other
  // triangle.
  const bool by_columns = matrix.op == SparseLibrary::conjugated && of.a.turned == 0;
  int fill = (of.upper != 0) != by_columns ? 1 : 0, diagonal = of.unit != 0 ? 1 : 0;
  void* const described = matrix.descriptor;
  sparse.describe("SpMatSetAttribute", described, fill_mode, static_cast<void*>(&fill), sizeof fill);
  sparse.describe("SpMatSetAttribute", described, diagonal_type, static_cast<void*>(&diagonal),
                  sizeof diagonal);
}

/// SpSV or SpSM: these arguments come before the plan.
template <class... A>
void solve(SparseLibrary& sparse, const std::string& name, A... arguments) {
  const std::string destroy = name + "_destroyDescr";
  void* const plan = sparse.make(name + "_createDescr", destroy.c_str());
  std::size_t bytes = 0;
  sparse.call(name + "_bufferSize", arguments..., plan, &bytes);
  // The solution still works in it.
  const Workspace buffer = sparse.workspace(bytes);
  sparse.require(buffer);
  sparse.call(name + "_analysis", arguments..., plan, buffer.address());
  sparse.call(name + "_solve", arguments..., plan);
  sparse.end_last();
}

/// Of square blocks, by the older functions, which also say where a pivot is missing.
class BlockSolve {
 public:
  BlockSolve(const Execution& x, SparseLibrary& sparse, const SparseSolve& of)
      : x_(x), sparse_(sparse), of_(of), is_vector_(of.n == 1 && of.b.row == 1 && of.c.row == 1) {}

  void run() {
    const Sparse& a = of_.a;
    const auto letter = letter_of(of_.sum);
    if (!letter || a.type != of_.sum || a.block_rows != a.block_columns || of_.batch != 1 ||
        a.storage != operations::Storage::compressed || a.offset_type != operations::Index::i32 ||
        a.index_type != operations::Index::i32 || (a.conjugated != 0 && a.turned == 0) ||
        of_.b.conjugated != 0 || of_.c.conjugated != 0)
      return sparse_.fail(SparseLibrary::not_supported);
    letter_ = std::string(1, *letter);
    // Without a column it is the analysis alone, of which there are two with the same result.
    const bool vector = of_.n == 0 || is_vector_;
    const int rows = sparse_.narrow(a.rows / a.block_rows), entries = sparse_.narrow(a.entries),
              block = sparse_.narrow(a.block_rows), direction = a.blocks_by_column != 0 ? 1 : 0;
    const int op = a.turned == 0       ? SparseLibrary::plain
                   : a.conjugated == 0 ? SparseLibrary::transposed
                                       : SparseLibrary::conjugated;
    void* const descriptor = sparse_.older(a.base, of_.upper != 0, of_.unit != 0);
    auto *const values = pointer<void>(a.values), *const offsets = pointer<void>(a.offsets),
                *const indices = pointer<void>(a.indices);
    constexpr int levels = 1;  // CUSPARSE_SOLVE_POLICY_USE_LEVEL
    int bytes = 0;
    if (vector) {
      void* const plan = sparse_.make("CreateBsrsv2Info", "DestroyBsrsv2Info");
      sparse_.call(letter_ + "bsrsv2_bufferSize", direction, op, rows, entries, descriptor, values, offsets,
                   indices, block, plan, &bytes);
      const Workspace buffer = sparse_.workspace(static_cast<std::size_t>(std::max(bytes, 0)));
      sparse_.require(buffer);
      sparse_.call(letter_ + "bsrsv2_analysis", direction, op, rows, entries, descriptor, values, offsets,
                   indices, block, plan, levels, buffer.address());
      if (of_.n != 0) {
        factor();
        sparse_.call(letter_ + "bsrsv2_solve", direction, op, rows, entries, place_of(of_.alpha), descriptor,
                     values, offsets, indices, block, plan, pointer<void>(of_.b.address),
                     pointer<void>(of_.c.address), levels, buffer.address());
      }
      return tell_pivot("Xbsrsv2_zeroPivot", plan);
    }
    const bool turned = of_.b.row != 1;
    const auto leading = [&](const View& view) {
      if ((turned ? view.column : view.row) != 1) sparse_.fail(SparseLibrary::not_supported);
      const std::int64_t least = std::max<std::int64_t>(1, turned ? of_.n : a.rows);
      return sparse_.narrow(std::max(turned ? view.row : view.column, of_.n <= 1 ? least : 1));
    };
    const int turn = turned ? SparseLibrary::transposed : SparseLibrary::plain;
    const int columns = sparse_.narrow(of_.n), b_leading = leading(of_.b), c_leading = leading(of_.c);
    void* const plan = sparse_.make("CreateBsrsm2Info", "DestroyBsrsm2Info");
    sparse_.call(letter_ + "bsrsm2_bufferSize", direction, op, turn, rows, columns, entries, descriptor,
                 values, offsets, indices, block, plan, &bytes);
    const Workspace buffer = sparse_.workspace(static_cast<std::size_t>(std::max(bytes, 0)));
    sparse_.require(buffer);
    sparse_.call(letter_ + "bsrsm2_analysis", direction, op, turn, rows, columns, entries, descriptor, values,
                 offsets, indices, block, plan, levels, buffer.address());
    factor();
    sparse_.call(letter_ + "bsrsm2_solve", direction, op, turn, rows, columns, entries, place_of(of_.alpha),
                 descriptor, values, offsets, indices, block, plan, pointer<void>(of_.b.address), b_leading,
                 pointer<void>(of_.c.address), c_leading, levels, buffer.address());
    tell_pivot("Xbsrsm2_zeroPivot", plan);
  }

 private:
  void factor() { sparse_.factors({&of_.alpha}, of_.sum); }

  /// The function waits for what was solved; the number it tells is put where the client looks for it.
  void tell_pivot(const char* ask, void* plan) {
    if (of_.zero_pivot == 0) return;
    int position = -1;
    sparse_.scalars_on_device(false);
    sparse_.ask_pivot(ask, plan, &position);
    if (!sparse_.good()) return;
    sparse_.note(
        x_.libraries.api.cuMemsetD32Async_(of_.zero_pivot, static_cast<unsigned>(position), 1, x_.stream));
  }

  const Execution& x_;
  SparseLibrary& sparse_;
  const SparseSolve& of_;
  const bool is_vector_;
  std::string letter_;
};

}  // namespace

CUresult run(const Execution& x, const SparseSolve& of) {
  SparseLibrary sparse(x);
  if (of.zero_pivot != 0 || of.a.block_rows != 1 || of.a.block_columns != 1) {
    BlockSolve(x, sparse, of).run();
    return sparse.result();
  }
  sparse.factors({&of.alpha}, of.sum);
  const auto computed = static_cast<int>(of.sum);
  const SparseLibrary::Matrix a = sparse.matrix(of.a, of.batch);
  set_triangle(sparse, a, of);
  const std::int64_t rows = of.a.rows;
  if (of.n == 1 && of.batch == 1 && is_sparse_vector(of.b) && is_sparse_vector(of.c)) {
    solve(sparse, "SpSV", a.op, place_of(of.alpha), a.descriptor, sparse.vector(of.b, rows),
          sparse.vector(of.c, rows), computed, SparseLibrary::any_algorithm);
    return sparse.result();
  }
  const auto c = sparse.dense(of.c, rows, of.n, of.batch);
  // Both sides lie in one order: what lies in the other one is given as the transposed matrix.
  const auto b = sparse.dense(of.b, rows, of.n, of.batch, c.order);
  if (c.op != SparseLibrary::plain) sparse.fail(SparseLibrary::not_supported);
  solve(sparse, "SpSM", a.op, b.op, place_of(of.alpha), a.descriptor, b.descriptor, c.descriptor, computed,
        SparseLibrary::any_algorithm);
  return sparse.result();
}

}  // namespace gpupool::worker

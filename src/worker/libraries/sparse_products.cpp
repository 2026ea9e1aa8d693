// Products of sparse and dense matrices by cuSPARSE's generic functions, and entries beside dense ones.
#include "libraries/operations/sparse.h"

#include <algorithm>

#include "worker/libraries/sparse.h"

namespace gpupool::worker {
namespace {

using operations::Entries;
using operations::Index;
using operations::Sparse;
using operations::SparseEntries;
using operations::SparseProduct;
using operations::View;

/// The number of columns that op(A) has: how many terms each sum has.
std::int64_t terms_of(const Sparse& a) {
  return a.turned != 0 ? a.rows : a.columns;
}
std::int64_t rows_of(const Sparse& a) {
  return a.turned != 0 ? a.columns : a.rows;
}

/// Whether the older functions for blocks know it, which every version has.
bool is_of_blocks(const SparseProduct& of) {
  const Sparse& a = of.a;
  return a.storage == operations::Storage::compressed && a.block_rows != 1 &&
         a.block_rows == a.block_columns && a.turned == 0 && a.conjugated == 0 &&
         a.offset_type == Index::i32 && a.index_type == Index::i32 && of.batch == 1 && a.type == of.sum &&
         of.b.type == of.sum && of.c.type == of.sum && of.b.conjugated == 0 && of.c.conjugated == 0 &&
         of.c.row == 1 && (of.b.row == 1 || of.b.column == 1) && letter_of(of.sum).has_value();
}

CUresult multiply_blocks(SparseLibrary& sparse, const SparseProduct& of) {
  const Sparse& a = of.a;
  const std::string name(1, *letter_of(of.sum));
  const int direction = a.blocks_by_column != 0 ? 1 : 0;
  const int rows = sparse.narrow(a.rows / a.block_rows), columns = sparse.narrow(a.columns / a.block_columns);
  const int entries = sparse.narrow(a.entries), block = sparse.narrow(a.block_rows);
  void* const descriptor = sparse.older(a.base);
  auto *const values = pointer<void>(a.values), *const offsets = pointer<void>(a.offsets),
              *const indices = pointer<void>(a.indices), *const b = pointer<void>(of.b.address),
              *const c = pointer<void>(of.c.address);
  if (of.n == 1 && of.b.row == 1) {
    sparse.call(name + "bsrmv", direction, SparseLibrary::plain, rows, columns, entries, place_of(of.alpha),
                descriptor, values, offsets, indices, block, b, place_of(of.beta), c);
    return sparse.result();
  }
  const bool turned = of.b.row != 1;
  const std::int64_t least = std::max<std::int64_t>(1, turned ? of.n : a.columns);
  const int leading = sparse.narrow(of.n <= 1 && !turned ? least : turned ? of.b.row : of.b.column);
  const int result_leading = sparse.narrow(of.n <= 1 ? std::max<std::int64_t>(1, a.rows) : of.c.column);
  sparse.call(name + "bsrmm", direction, SparseLibrary::plain,
              turned ? SparseLibrary::transposed : SparseLibrary::plain, rows, sparse.narrow(of.n), columns,
              entries, place_of(of.alpha), descriptor, values, offsets, indices, block, b, leading,
              place_of(of.beta), c, result_leading);
  return sparse.result();
}

}  // namespace

CUresult run(const Execution& x, const SparseProduct& of) {
  SparseLibrary sparse(x);
  sparse.factors({&of.alpha, &of.beta}, of.sum);
  if (is_of_blocks(of)) return multiply_blocks(sparse, of);
  const auto computed = static_cast<int>(of.sum);
  const SparseLibrary::Matrix a = sparse.matrix(of.a, of.batch);
  if (of.n == 1 && of.batch == 1 && is_sparse_vector(of.b) && is_sparse_vector(of.c) &&
      of.a.storage != operations::Storage::padded) {
    sparse.with_buffer("SpMV_bufferSize", "SpMV", a.op, place_of(of.alpha), a.descriptor,
                       sparse.vector(of.b, terms_of(of.a)), place_of(of.beta),
                       sparse.vector(of.c, rows_of(of.a)), computed, SparseLibrary::any_algorithm);
    return sparse.result();
  }
  const auto b = sparse.dense(of.b, terms_of(of.a), of.n, of.batch);
  const auto c = sparse.dense(of.c, rows_of(of.a), of.n, of.batch);
  if (c.op != SparseLibrary::plain) sparse.fail(SparseLibrary::not_supported);
  sparse.with_buffer("SpMM_bufferSize", "SpMM", a.op, b.op, place_of(of.alpha), a.descriptor, b.descriptor,
                     place_of(of.beta), c.descriptor, computed, SparseLibrary::any_algorithm);
  return sparse.result();
}

CUresult run(const Execution& x, const SparseEntries& of) {
  SparseLibrary sparse(x);
  // A matrix that is stored by columns is the transposed one by rows: S = A · B is Sᵀ = Bᵀ · Aᵀ.
  Sparse stored = of.s;
  View a = of.a, b = of.b;
  if (stored.turned != 0) {
    stored.turned = 0;
    std::swap(a.row, a.column);
    std::swap(b.row, b.column);
    if (of.what == Entries::sampled) std::swap(a, b);
  }
  const SparseLibrary::Matrix s = sparse.matrix(stored, of.batch);
  if (s.op != SparseLibrary::plain) sparse.fail(SparseLibrary::not_supported);
  if (of.what == Entries::spread) {
    // Zeros, where S has no entries, are the function's too.
    const auto into = sparse.dense(a, stored.rows, stored.columns, of.batch);
    if (into.op != SparseLibrary::plain) sparse.fail(SparseLibrary::not_supported);
    sparse.with_buffer("SparseToDense_bufferSize", "SparseToDense", s.descriptor, into.descriptor,
                       SparseLibrary::any_algorithm);
    return sparse.result();
  }
  sparse.factors({&of.alpha, &of.beta}, of.sum);
  const auto left = sparse.dense(a, stored.rows, of.k, of.batch);
  const auto right = sparse.dense(b, of.k, stored.columns, of.batch);
  sparse.with_buffer("SDDMM_bufferSize", "SDDMM", left.op, right.op, place_of(of.alpha), left.descriptor,
                     right.descriptor, place_of(of.beta), s.descriptor, static_cast<int>(of.sum),
                     SparseLibrary::any_algorithm);
  return sparse.result();
}

}  // namespace gpupool::worker

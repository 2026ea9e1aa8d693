// Sparse matrices that are made of others, by cuSPARSE. It counts and fills in one go, and a client asks for
// the count first: so what is made is found out twice, the first time without a place for it.
#include <algorithm>

#include "libraries/operations/sparse.h"
#include "worker/libraries/sparse.h"

namespace gpupool::worker {
namespace {

using operations::Index;
using operations::Making;
using operations::MakingStep;
using operations::SparseMaking;

/// How many entries the library says that it will have.
std::int64_t entries_of(SparseLibrary& sparse, void* matrix) {
  std::int64_t rows = 0, columns = 0, entries = 0;
  sparse.describe("SpMatGetSize", matrix, &rows, &columns, &entries);
  return entries;
}

std::int64_t multiply(SparseLibrary& sparse, const SparseMaking& of) {
  sparse.factors({&of.alpha, &of.beta}, of.sum);
  const auto a = sparse.matrix(of.a), b = sparse.matrix(of.b), c = sparse.matrix(of.c);
  void* const plan = sparse.make("SpGEMM_createDescr", "SpGEMM_destroyDescr");
  const auto step = [&](const char* name, auto... last) {
    sparse.call(name, a.op, b.op, place_of(of.alpha), a.descriptor, b.descriptor, place_of(of.beta),
                c.descriptor, static_cast<int>(of.sum), SparseLibrary::any_algorithm, plan, last...);
  };
  void* const nothing = nullptr;
  std::size_t estimated = 0, computed = 0;
  step("SpGEMM_workEstimation", &estimated, nothing);
  const Workspace first = sparse.workspace(estimated);
  sparse.require(first);
  step("SpGEMM_workEstimation", &estimated, first.address());
  step("SpGEMM_compute", &computed, nothing);
  const Workspace second = sparse.workspace(computed);
  sparse.require(second);
  step("SpGEMM_compute", &computed, second.address());
  if (of.step == MakingStep::fill) step("SpGEMM_copy");
  const std::int64_t entries = entries_of(sparse, c.descriptor);
  sparse.end_last();  // it may know the buffers
  return entries;
}

std::int64_t take_entries(SparseLibrary& sparse, const SparseMaking& of) {
  const auto from = sparse.dense(of.dense, of.c.rows, of.c.columns);
  const auto into = sparse.matrix(of.c);
  if (from.op != SparseLibrary::plain || into.op != SparseLibrary::plain)
    sparse.fail(SparseLibrary::not_supported);
  std::size_t bytes = 0;
  sparse.call("DenseToSparse_bufferSize", from.descriptor, into.descriptor, SparseLibrary::any_algorithm,
              &bytes);
  const Workspace buffer = sparse.workspace(bytes);
  sparse.require(buffer);
  sparse.call("DenseToSparse_analysis", from.descriptor, into.descriptor, SparseLibrary::any_algorithm,
              buffer.address());
  const std::int64_t entries = entries_of(sparse, into.descriptor);
  if (of.step == MakingStep::fill)
    sparse.call("DenseToSparse_convert", from.descriptor, into.descriptor, SparseLibrary::any_algorithm,
                buffer.address());
  return entries;
}

/// csrgeam2: the counts are C's offsets.
void add(SparseLibrary& sparse, const SparseMaking& of) {
  const auto letter = letter_of(of.sum);
  for (const operations::Sparse* const each : {&of.a, &of.b, &of.c}) {
    if (!letter || each->storage != operations::Storage::compressed || each->block_rows != 1 ||
        each->block_columns != 1 || each->turned != 0 || each->offset_type != Index::i32 ||
        each->index_type != Index::i32 || each->conjugated != 0)
      return sparse.fail(SparseLibrary::not_supported);
  }
  const bool fills = of.step == MakingStep::fill;
  const int rows = sparse.narrow(of.c.rows), columns = sparse.narrow(of.c.columns),
            a_entries = sparse.narrow(of.a.entries), b_entries = sparse.narrow(of.b.entries);
  void *const a = sparse.older(of.a.base), *const b = sparse.older(of.b.base),
              *const c = sparse.older(of.c.base);
  void* const offsets = pointer<void>(fills ? of.c.offsets : of.counts);
  const std::string name = std::string(1, *letter) + "csrgeam2";
  // A client that counts says no factors and no values, which only the question for the buffer takes.
  const operations::Scalar none{};
  if (fills) {
    sparse.factors({&of.alpha, &of.beta}, of.sum);
  } else {
    sparse.scalars_on_device(false);
  }
  const void *const alpha = fills ? place_of(of.alpha) : none.words, *const beta = fills ? place_of(of.beta)
                                                                                         : none.words;
  const auto values = [&](std::uint64_t address) { return fills ? pointer<void>(address) : offsets; };
  void *const a_offsets = pointer<void>(of.a.offsets), *const a_indices = pointer<void>(of.a.indices),
              *const b_offsets = pointer<void>(of.b.offsets), *const b_indices = pointer<void>(of.b.indices);
  std::size_t bytes = 0;
  sparse.call(name + "_bufferSizeExt", rows, columns, alpha, a, a_entries, values(of.a.values), a_offsets,
              a_indices, beta, b, b_entries, values(of.b.values), b_offsets, b_indices, c,
              values(of.c.values), offsets, values(of.c.indices), &bytes);
  const Workspace buffer = sparse.workspace(bytes);
  sparse.require(buffer);
  if (fills) {
    sparse.call(name, rows, columns, alpha, a, a_entries, values(of.a.values), a_offsets, a_indices, beta, b,
                b_entries, values(of.b.values), b_offsets, b_indices, c, values(of.c.values), offsets,
                pointer<void>(of.c.indices), buffer.address());
    return;
  }
  int total = 0;
  if (of.total != 0) sparse.scalars_on_device(true);
  sparse.call("Xcsrgeam2Nnz", rows, columns, a, a_entries, a_offsets, a_indices, b, b_entries, b_offsets,
              b_indices, c, offsets, of.total != 0 ? pointer<int>(of.total) : &total, buffer.address());
}

/// The last of the counts is the only one that a client reads.
CUresult tell(const Execution& x, const SparseMaking& of, std::int64_t entries) {
  const auto& api = x.libraries.api;
  const auto number = static_cast<std::uint64_t>(entries + of.count_base);
  const auto size = static_cast<std::uint64_t>(bytes_of(of.count_type));
  const std::uint64_t last = of.counts + static_cast<std::uint64_t>(of.c.rows) * size;
  const CUresult low = api.cuMemsetD32Async_(last, static_cast<unsigned>(number), 1, x.stream);
  if (low != CUDA_SUCCESS || of.count_type == Index::i32) return low;
  return api.cuMemsetD32Async_(last + 4, static_cast<unsigned>(number >> 32U), 1, x.stream);
}

}  // namespace

CUresult run(const Execution& x, const SparseMaking& of) {
  if (of.what > Making::dense || of.step > MakingStep::fill) return CUDA_ERROR_INVALID_VALUE;
  if (of.step == MakingStep::count) return CUDA_SUCCESS;  // by the next step, all at once
  SparseLibrary sparse(x);
  if (of.what == Making::sum) {
    if (of.step == MakingStep::offsets && (of.count_type != Index::i32 || of.count_base != of.c.base))
      sparse.fail(SparseLibrary::not_supported);
    add(sparse, of);
    return sparse.result();
  }
  const std::int64_t entries = of.what == Making::product ? multiply(sparse, of) : take_entries(sparse, of);
  if (!sparse.good() || of.step == MakingStep::fill) return sparse.result();
  return tell(x, of, entries);
}

}  // namespace gpupool::worker

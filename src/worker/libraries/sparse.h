// cuSPARSE, ready for one operation.
#pragma once

#include <string>
#include <vector>

#include "worker/libraries/blas.h"
#include "worker/libraries/execution.h"
#include "worker/libraries/workspace.h"

namespace gpupool::worker {

/// The handle of the context on the operation's stream, and descriptors that end with it. The first call that
/// fails says what came of all.
class SparseLibrary {
 public:
  // Of cusparseStatus_t, cusparseOperation_t, cusparseOrder_t, cusparseFillMode_t and cusparseDiagType_t.
  static constexpr int alloc_failed = 2, not_supported = 10;
  static constexpr int plain = 0, transposed = 1, conjugated = 2;
  static constexpr int by_column = 1, by_row = 2;
  static constexpr int any_algorithm = 0;  // the default of each generic function

  explicit SparseLibrary(const Execution& x);
  ~SparseLibrary();
  SparseLibrary(const SparseLibrary&) = delete;
  SparseLibrary& operator=(const SparseLibrary&) = delete;

  [[nodiscard]] CUresult result() const;
  [[nodiscard]] bool good() const { return status_ == 0; }
  void fail(int status) {
    if (status_ == 0) status_ = status;
  }
  /// What the driver said of something that belongs to the operation.
  void note(CUresult result) {
    if (of_driver_ == CUDA_SUCCESS) of_driver_ = result;
  }
  void require(const Workspace& work) {
    if (!work.there()) fail(alloc_failed);
  }
  [[nodiscard]] Workspace workspace(std::size_t bytes) const { return {x_, good() ? bytes : 0}; }

  /// "cusparse" + `name`; the handle comes before the arguments.
  template <class... A>
  void call(const std::string& name, A... arguments) {
    describe(name, x_.state.cusparse, arguments...);
  }
  /// A call without the handle.
  template <class... A>
  void describe(const std::string& name, A... arguments) {
    if (status_ == 0) status_ = x_.libraries.cusparse.call("cusparse" + name, arguments...);
  }

  /// Asks how large a buffer is (`ask` with these arguments and its size) and calls `execute` with them and
  /// it.
  template <class... A>
  void with_buffer(const std::string& ask, const std::string& execute, A... arguments) {
    std::size_t bytes = 0;
    call(ask, arguments..., &bytes);
    const Workspace buffer = workspace(bytes);
    require(buffer);
    call(execute, arguments..., buffer.address());
  }

  /// Of the older functions: a missing pivot is what is asked for, and no failure.
  void ask_pivot(const char* name, void* plan, int* position) {
    constexpr int zero_pivot = 9;
    call(name, plan, position);
    if (status_ == zero_pivot) status_ = 0;
  }

  /// A new descriptor, which "cusparse" + `destroy` ends.
  template <class... A>
  void* make(const std::string& create, const std::string& destroy, A... arguments) {
    void* made = nullptr;
    describe(create, &made, arguments...);
    if (good()) made_.push_back({destroy, made});
    return made;
  }
  /// Ends the descriptor that was made last, whose buffers end before the others.
  void end_last();

  /// A matrix as a call takes it: its descriptor, and how it is transposed (cusparseOperation_t).
  struct Matrix {
    void* descriptor = nullptr;
    int op = plain;
    int order = by_column;
  };
  /// `order`: in which its numbers must lie; 0: as they do. The other one is that of the transposed matrix.
  Matrix dense(const operations::View& view, std::int64_t rows, std::int64_t columns, std::int64_t batch = 1,
               int order = 0);
  void* vector(const operations::View& view, std::int64_t size);
  Matrix matrix(const operations::Sparse& of, std::int64_t batch = 1);
  /// cusparseMatDescr_t of the older functions.
  void* older(std::uint8_t base, bool upper = false, bool unit = false);

  /// Where factors are is a mode of the handle, so that they are all there.
  void factors(std::initializer_list<const operations::Factor*> factors, operations::Element computed);
  void scalars_on_device(bool on_device) { call("SetPointerMode", on_device ? 1 : 0); }
  /// A size of the older functions.
  int narrow(std::int64_t size) {
    if (size < 0 || size > 0x7fffffff) fail(not_supported);
    return static_cast<int>(size);
  }

 private:
  struct Made {
    std::string destroy;
    void* descriptor;
  };

  const Execution& x_;
  int status_ = 0;
  CUresult of_driver_ = CUDA_SUCCESS;
  std::vector<Made> made_;
};

/// A view that is a vector: one column without gaps.
inline bool is_sparse_vector(const operations::View& view) {
  return view.row == 1 && (view.conjugated == 0 || !operations::is_complex(view.type));
}

}  // namespace gpupool::worker

// cuSOLVER, ready for one operation.
#pragma once

#include <string>
#include <tuple>
#include <vector>

#include "worker/libraries/execution.h"
#include "worker/libraries/workspace.h"

namespace gpupool::worker {

/// The handle of the context on the operation's stream; then calls, of which the first that fails says what
/// came of all.
class Solver {
 public:
  Solver(const Execution& x, std::size_t element_bytes);

  [[nodiscard]] CUresult result() const;

  /// The handle comes before the arguments.
  template <class... A>
  void call(const std::string& name, A... arguments) {
    if (status_ == 0)
      status_ = x_.libraries.cusolver.call("cusolverDn" + name, x_.state.cusolver.handle, arguments...);
  }

  /// Nothing is called any more unless there is this work space.
  void require(const Workspace& work) {
    if (status_ == 0 && !work.there()) status_ = alloc_failed;
  }
  /// What the driver said of something that belongs to the operation.
  void note(CUresult result) {
    if (of_driver_ == CUDA_SUCCESS) of_driver_ = result;
  }

  /// Asks for work space by (`ask`, its size, `behind`) and computes by (`before`, it and its size, `after`):
  /// in elements, or (`wide`) in bytes of device memory and of host memory.
  template <bool wide, class Ask, class Behind, class Before, class After>
  void compute(const std::string& name, const Ask& ask, const Behind& behind, const Before& before,
               const After& after) {
    int elements = 0;
    std::size_t bytes = 0, host_bytes = 0;
    if constexpr (wide) {
      apply(name + "_bufferSize", std::tuple_cat(ask, std::make_tuple(&bytes, &host_bytes), behind));
    } else {
      apply(name + "_bufferSize", std::tuple_cat(ask, std::make_tuple(&elements), behind));
      bytes = static_cast<std::size_t>(elements) * element_bytes_;
    }
    if (status_ != 0) return;
    const Workspace work(x_, bytes);
    require(work);
    // It is of the node's memory, which no share counts.
    if (status_ == 0 && host_bytes > most_host_bytes) status_ = alloc_failed;
    if (status_ != 0) return;
    std::vector<std::byte> on_host(host_bytes);
    if constexpr (wide) {
      void* const host = on_host.data();
      apply(name, std::tuple_cat(before, std::make_tuple(work.address(), bytes, host, host_bytes), after));
    } else {
      apply(name, std::tuple_cat(before, std::make_tuple(work.address(), elements), after));
    }
  }
  /// Where the question takes what the call takes.
  template <bool wide, class Before, class After>
  void compute(const std::string& name, const Before& before, const After& after) {
    compute<wide>(name, before, std::tuple<>{}, before, after);
  }

  /// Settings of Jacobi's method: those that cuSOLVER makes.
  void* of_eigenvalues() { return made(x_.state.cusolver.eigenvalues, "cusolverDnCreateSyevjInfo"); }
  void* of_singular_values() { return made(x_.state.cusolver.singular_values, "cusolverDnCreateGesvdjInfo"); }
  void* params() { return made(x_.state.cusolver.params, "cusolverDnCreateParams"); }

 private:
  static constexpr int alloc_failed = 2;  // of cusolverStatus_t
  static constexpr std::size_t most_host_bytes = std::size_t{1} << 30;

  template <class Arguments>
  void apply(const std::string& name, const Arguments& arguments) {
    std::apply([&](auto... each) { call(name, each...); }, arguments);
  }
  void* made(void*& object, const char* create) {
    if (status_ == 0 && object == nullptr) status_ = x_.libraries.cusolver.call(create, &object);
    return object;
  }

  const Execution& x_;
  std::size_t element_bytes_;
  int status_ = 0;
  CUresult of_driver_ = CUDA_SUCCESS;
};

}  // namespace gpupool::worker

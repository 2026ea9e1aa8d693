// cuDNN, ready for one operation.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <string>
#include <vector>

#include "worker/libraries/execution.h"
#include "worker/libraries/workspace.h"

namespace gpupool::worker {

/// cudnnStatus_t as a result of the driver.
CUresult result_of_cudnn(int status);

/// The handle of the context on the operation's stream, and descriptors that end with it. The first call that
/// fails says what came of all.
class Dnn {
 public:
  explicit Dnn(const Execution& x);
  /// For calls that may fail without the operation. `ready` has prepared the handle, and does not hear of it.
  Dnn(const Execution& x, const Dnn& ready) : x_(x), status_(ready.status_) {}
  ~Dnn();
  Dnn(const Dnn&) = delete;
  Dnn& operator=(const Dnn&) = delete;

  [[nodiscard]] CUresult result() const { return result_of_cudnn(status_); }
  [[nodiscard]] bool good() const { return status_ == 0; }
  [[nodiscard]] int status() const { return status_; }
  void fail(int status) {
    if (status_ == 0) status_ = status;
  }
  static constexpr int not_supported = 3000, no_memory = 4004;
  /// Whether the same call fails in the same way each time, and before it gives the device anything: what the
  /// program did, and what the library does not do or does not have.
  [[nodiscard]] static bool lasts(int status) {
    return status / 1000 == 2 || status / 1000 == 3 || status == Library::missing;
  }

  /// The handle comes before the arguments.
  template <class... A>
  void call(const char* name, A... arguments) {
    describe(name, x_.state.cudnn, arguments...);
  }
  /// The handle comes behind the descriptor.
  template <class... A>
  void call_with(const char* name, void* descriptor, A... arguments) {
    describe(name, descriptor, x_.state.cudnn, arguments...);
  }
  /// A call without the handle.
  template <class... A>
  void describe(const char* name, A... arguments) {
    if (status_ == 0) status_ = x_.libraries.cudnn.call(name, arguments...);
  }

  /// A new descriptor of a kind, such as "Convolution".
  void* make(const std::string& kind);
  /// The descriptor of a tensor, of which so many dimensions count (`dims_of`).
  void* tensor(const operations::Tensor& tensor, int dims);
  /// A descriptor of this activation; one of cuDNN's modes, or the status is not_supported.
  void* activation(const operations::Activated& activated);

 private:
  struct Made {
    std::string kind;
    void* descriptor;
  };

  const Execution& x_;
  int status_ = 0;
  std::vector<Made> made_;
};

/// A tensor that was given five dimensions has as many as it needs: the first ones of space, if all that take
/// part have length 1 there, are left out. So many dimensions are left of all these.
int dims_of(std::initializer_list<const operations::Tensor*> tensors);

inline bool same_sizes(const operations::Tensor& one, const operations::Tensor& other) {
  return one.dims == other.dims && std::equal(one.sizes, one.sizes + operations::max_dims, other.sizes);
}

/// A factor of an operation on tensors of a type, as the library takes it.
class DnnScalar {
 public:
  DnnScalar(double value, operations::Element type)
      : wide_(value), narrow_(static_cast<float>(value)), is_wide_(type == operations::Element::f64) {}
  [[nodiscard]] const void* place() const {
    return is_wide_ ? static_cast<const void*>(&wide_) : static_cast<const void*>(&narrow_);
  }

 private:
  double wide_;
  float narrow_;
  bool is_wide_;
};

/// cudnnDataType_t; -1: cuDNN has none.
int data_type_of(operations::Element type);

inline void* place_of(const operations::Tensor& tensor) {
  return pointer<void>(tensor.address);
}

}  // namespace gpupool::worker

// NVIDIA's math libraries in the worker: they execute what clients post as operations.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "worker/driver/driver.h"
#include "worker/libraries/library.h"

namespace gpupool::worker {

struct LibraryState;

/// Where an operation goes.
struct OperationPlace {
  CUcontext context;       ///< the current one
  CUstream stream;         ///< of this context
  bool captured = false;   ///< the stream is being captured: nothing is executed yet
  bool capturing = false;  ///< some stream of the session is: nobody may wait for the context
};

/// Used by one thread at a time, like the session whose operations it executes.
class MathLibraries {
 public:
  /// `folders`: where the libraries are, separated by colons; empty: where the system's loader looks.
  MathLibraries(const DriverApi& api, const std::string& folders);
  ~MathLibraries();
  MathLibraries(const MathLibraries&) = delete;
  MathLibraries& operator=(const MathLibraries&) = delete;

  /// Whether launches of a kernel of that name are operations.
  [[nodiscard]] static bool is_operation(std::string_view kernel);

  /// Gives an operation to its library. `parameters`: the kernel's, from a client: any bytes.
  /// CUDA_ERROR_NOT_SUPPORTED: the library is not there, or does not support it; why() says more.
  CUresult execute(std::string_view kernel, std::span<const std::byte> parameters,
                   const OperationPlace& place);

  /// Why the last operation failed: one sentence.
  [[nodiscard]] const std::string& why() const { return told_.why; }

  /// Says why, unless it is known already.
  void explain(const std::string& sentence) {
    if (told_.why.empty()) told_.why = sentence;
  }

  /// Before a context is destroyed: what the libraries hold in it ends.
  void forget(CUcontext context);

 private:
  std::vector<std::string> folders_;
  LibraryTold told_;

 public:
  Preparation preparation;
  const DriverApi& api;
  Library cublas, cublaslt, cudnn, cufft, curand, cusolver, cusparse;

 private:
  template <class O>
  bool executed(std::string_view kernel, std::span<const std::byte> parameters, LibraryState& state,
                const OperationPlace& place, CUresult& result);

  std::map<CUcontext, std::unique_ptr<LibraryState>> contexts_;
};

}  // namespace gpupool::worker

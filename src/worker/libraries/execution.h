// One operation on its way to a library, and what the libraries hold in a context.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "libraries/operations/all.h"
#include "worker/libraries/kernels/own_kernels.h"
#include "worker/libraries/math_libraries.h"

namespace gpupool::worker {

/// Where cuDNN has the weights of a recurrent network, which clients have elsewhere.
struct RnnWeights {
  struct Piece {
    std::uint64_t ours, theirs, bytes;
  };
  std::size_t bytes = 0;
  bool in_place = false;  // both are the same
  std::vector<Piece> pieces;
};

/// A plan of a graph of cuDNN that is kept with its descriptors, and what it needs.
struct DnnPlan {
  std::vector<void*> descriptors;  // in the order in which they were made
  void* plan = nullptr;            // null: no engine does it, as the status says
  int status = 0;
  std::size_t workspace = 0;
  std::vector<std::int64_t> ids;  // of tensors in memory
};

void end_plan(Library& cudnn, const DnnPlan& plan);

/// Handles and plans in one context, made when they are needed.
struct LibraryState {
  void* cublas = nullptr;
  void* cublaslt = nullptr;
  void* cudnn = nullptr;
  void* cusparse = nullptr;
  /// cublasLtMatmulAlgo_t by the operation without its addresses and factors.
  std::map<std::string, std::array<std::uint64_t, 8>> algorithms;
  /// cudnnConvolution…Algo_t by the same.
  std::map<std::string, int> convolutions;
  /// By the operation without its addresses and numbers.
  std::map<std::string, DnnPlan> plans;
  /// By the shape of a network.
  std::map<std::string, RnnWeights> networks;
  /// cufftHandle by stream and by what it was made for: a plan has one work area.
  std::map<std::pair<CUstream, std::string>, int> transforms;
  /// cuRAND's generator, and where it is in which sequence. Its state lies on the device, in the order of a
  /// stream.
  struct Generator {
    void* handle = nullptr;
    bool placed = false;
    operations::Random next;  // what would go on with it
  };
  std::map<CUstream, Generator> random;
  /// cuSOLVER's handle, and settings as it makes them.
  struct {
    void *handle = nullptr, *params = nullptr, *eigenvalues = nullptr, *singular_values = nullptr;
  } cusolver;
  OwnKernels kernels;
};

struct Execution {
  MathLibraries& libraries;
  LibraryState& state;
  CUstream stream;
};

// By cuBLAS and cuBLASLt.
CUresult run(const Execution& x, const operations::Gemm& operation);
CUresult run(const Execution& x, const operations::Product& operation);
CUresult run(const Execution& x, const operations::Solve& operation);
CUresult run(const Execution& x, const operations::Entrywise& operation);
CUresult run(const Execution& x, const operations::Vectors& operation);
CUresult run(const Execution& x, const operations::Factors& operation);
// By cuDNN.
CUresult run(const Execution& x, const operations::Attention& operation);
CUresult run(const Execution& x, const operations::Convolution& operation);
CUresult run(const Execution& x, const operations::CtcLoss& operation);
CUresult run(const Execution& x, const operations::BatchNormalization& operation);
CUresult run(const Execution& x, const operations::Pooling& operation);
CUresult run(const Execution& x, const operations::Softmax& operation);
CUresult run(const Execution& x, const operations::Pointwise& operation);
CUresult run(const Execution& x, const operations::Reduction& operation);
CUresult run(const Execution& x, const operations::ResponseNormalization& operation);
CUresult run(const Execution& x, const operations::Rnn& operation);
// By cuSOLVER.
CUresult run(const Execution& x, const operations::Decomposition& operation);
// By cuSPARSE.
CUresult run(const Execution& x, const operations::Bands& operation);
CUresult run(const Execution& x, const operations::SparseArrange& operation);
CUresult run(const Execution& x, const operations::SparseEntries& operation);
CUresult run(const Execution& x, const operations::SparseMaking& operation);
CUresult run(const Execution& x, const operations::SparseProduct& operation);
CUresult run(const Execution& x, const operations::SparseSolve& operation);
CUresult run(const Execution& x, const operations::SparseVector& operation);
// By our own kernels.
CUresult run(const Execution& x, const operations::Dropout& operation);
// By cuFFT and cuRAND.
CUresult run(const Execution& x, const operations::Fft& operation);
CUresult run(const Execution& x, const operations::Random& operation);

/// Equal for operations that differ in nothing but what `change` takes away: the key of what a library found
/// out for one of them.
template <class O, class Change>
std::string key_of(O operation, Change change) {
  change(operation);
  return {reinterpret_cast<const char*>(&operation), sizeof operation};
}

template <class T>
T* pointer(std::uint64_t address) {
  return reinterpret_cast<T*>(address);
}

}  // namespace gpupool::worker

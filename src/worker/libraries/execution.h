// One operation on its way to a library, and what the libraries hold in a context.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <tuple>
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

/// What a library has made and is kept for more operations of one kind (`note_use`, `make_room`).
struct KeptPlan {
  std::uint64_t used = 0;  // when it was wanted last, by LibraryState::clock
  bool pinned = false;     // a graph that was captured executes it
};

/// A plan of a graph of cuDNN with the configuration of its engine, and what it needs. The other descriptors
/// that it was made of have ended.
struct DnnPlan : KeptPlan {
  void *plan = nullptr, *configuration = nullptr;
  int status = 0;  // not 0: no engine does it, and this is what was said
  std::size_t workspace = 0;
  std::vector<std::int64_t> ids;  // of tensors in memory
};

void end_plan(Library& cudnn, const DnnPlan& plan);

/// A plan of cuFFT. Each execution gives it a work area, so that it is for all streams.
struct Transform : KeptPlan {
  int plan = 0;
  std::size_t work = 0;  // bytes
};

/// Memory that captured operations work in. Their graph has its address, and so has every copy of the graph:
/// no other graph may use it until all of these have ended, because they may run at the same time.
struct GraphMemory {
  CUdeviceptr address = 0;
  std::size_t bytes = 0;
  std::uint64_t capture = 0;                 // its graph's, by the driver's number
  CUstream stream = nullptr;                 // whose operations use it one after another
  bool taken = false;                        // by an operation that is being captured
  std::shared_ptr<std::atomic<bool>> ended;  // true: so have the graphs. Null: nobody will tell
};

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
  /// By the shape of a transform.
  std::map<std::string, Transform> transforms;
  /// cuRAND's generator, and where it is in which sequence. Its state lies on the device, in the order of a
  /// stream.
  struct Generator {
    void* handle = nullptr;
    bool placed = false;
    operations::Random next;  // what would go on with it
  };
  /// By stream and kind. Captured operations (true) have others: a graph moves their state whenever it runs.
  std::map<std::tuple<CUstream, operations::RandomGenerator, bool>, Generator> random;
  /// cuSOLVER's handle, and settings as it makes them.
  struct {
    void *handle = nullptr, *params = nullptr, *eigenvalues = nullptr, *singular_values = nullptr;
  } cusolver;
  OwnKernels kernels;
  std::list<GraphMemory> of_graphs;
  /// The driver's pool of the device, once it was told to keep memory.
  CUmemoryPool pool = nullptr;
  bool pool_asked = false;
  std::uint64_t clock = 0;  // counts uses of all that is kept
};

struct Execution {
  MathLibraries& libraries;
  LibraryState& state;
  CUstream stream;
  bool captured = false;   // the stream is being captured: nothing is executed yet
  bool capturing = false;  // some stream of the session is: nobody may wait for the context
};

/// Before something that is kept is used.
inline void note_use(const Execution& x, KeptPlan& kept) {
  kept.used = ++x.state.clock;
  kept.pinned = kept.pinned || x.captured;
}

/// Before one more is kept: of `most`, those go that were not wanted for the longest time. They may be at
/// work, so the context is waited for; that would end a capture, and more are kept until it is over.
template <class All, class End>
void make_room(const Execution& x, All& all, std::size_t most, const End& end) {
  constexpr std::size_t at_once = 64;
  if (all.size() < most || x.capturing) return;
  std::vector<typename All::iterator> old;
  for (auto each = all.begin(); each != all.end(); ++each) {
    if (!each->second.pinned) old.push_back(each);
  }
  if (old.empty() || x.libraries.api.cuCtxSynchronize_() != CUDA_SUCCESS) return;
  std::sort(old.begin(), old.end(),
            [](const auto& one, const auto& other) { return one->second.used < other->second.used; });
  for (std::size_t i = 0; i < std::min(at_once, old.size()); ++i) {
    end(old[i]->second);
    all.erase(old[i]);
  }
}

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
CUresult run(const Execution& x, const operations::SpatialTransformer& operation);
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

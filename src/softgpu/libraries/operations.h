// One function for each operation. Each does one part, some milliseconds of work.
#pragma once

#include <cstdint>

#include "libraries/operations/all.h"
#include "softgpu/libraries/memory.h"

namespace softgpu::libraries {

/// Which part of an operation is to be done.
struct Parts {
  std::uint64_t part = 0;

  /// Calls f with the part, where there is one of that number among `parts`.
  template <class F>
  void each(std::uint64_t parts, F f) const {
    if (part < parts) f(part);
  }
};

void run(const gpupool::operations::Fft& operation, const Parts& parts, const Memory& memory);
void run(const gpupool::operations::Gemm& operation, const Parts& parts, const Memory& memory);
void run(const gpupool::operations::Convolution& operation, const Parts& parts, const Memory& memory);
void run(const gpupool::operations::Pointwise& operation, const Parts& parts, const Memory& memory);
void run(const gpupool::operations::Reduction& operation, const Parts& parts, const Memory& memory);
void run(const gpupool::operations::BatchNormalization& operation, const Parts& parts, const Memory& memory);
void run(const gpupool::operations::Softmax& operation, const Parts& parts, const Memory& memory);
void run(const gpupool::operations::ResponseNormalization& operation, const Parts& parts,
         const Memory& memory);
void run(const gpupool::operations::Rnn& operation, const Parts& parts, const Memory& memory);
void run(const gpupool::operations::CtcLoss& operation, const Parts& parts, const Memory& memory);
void run(const gpupool::operations::Dropout& operation, const Parts& parts, const Memory& memory);
void run(const gpupool::operations::Attention& operation, const Parts& parts, const Memory& memory);
void run(const gpupool::operations::Pooling& operation, const Parts& parts, const Memory& memory);
void run(const gpupool::operations::SpatialTransformer& operation, const Parts& parts, const Memory& memory);
void run(const gpupool::operations::Vectors& operation, const Parts& parts, const Memory& memory);
void run(const gpupool::operations::Product& operation, const Parts& parts, const Memory& memory);
void run(const gpupool::operations::Solve& operation, const Parts& parts, const Memory& memory);
void run(const gpupool::operations::Entrywise& operation, const Parts& parts, const Memory& memory);
void run(const gpupool::operations::Factors& operation, const Parts& parts, const Memory& memory);
void run(const gpupool::operations::Decomposition& operation, const Parts& parts, const Memory& memory);
void run(const gpupool::operations::SparseProduct& operation, const Parts& parts, const Memory& memory);
void run(const gpupool::operations::SparseSolve& operation, const Parts& parts, const Memory& memory);
void run(const gpupool::operations::SparseEntries& operation, const Parts& parts, const Memory& memory);
void run(const gpupool::operations::SparseMaking& operation, const Parts& parts, const Memory& memory);
void run(const gpupool::operations::SparseArrange& operation, const Parts& parts, const Memory& memory);
void run(const gpupool::operations::Bands& operation, const Parts& parts, const Memory& memory);
void run(const gpupool::operations::SparseVector& operation, const Parts& parts, const Memory& memory);
void run(const gpupool::operations::Random& operation, const Parts& parts, const Memory& memory);

}  // namespace softgpu::libraries

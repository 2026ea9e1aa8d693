// What the libraries hold in one context.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>

#include "libraries/operations/gemm.h"
#include "worker/libraries/cublas_api.h"
#include "worker/libraries/math_libraries.h"

namespace gpupool::worker {

struct MathLibraries::InContext {
  void* cublas = nullptr;  // handles, made when they are needed
  void* cublaslt = nullptr;
  /// cublasLtMatmulAlgo_t by the operation without its addresses and factors.
  std::map<std::string, std::array<std::uint64_t, 8>> algorithms;
};

/// One product on its way to a library.
struct GemmCall {
  MathLibraries& libraries;
  MathLibraries::InContext& in;
  CUstream stream;

  CUresult by_cublas(const operations::Gemm& operation);
  CUresult by_cublaslt(const operations::Gemm& operation);
};

}  // namespace gpupool::worker

#include "worker/libraries/math_libraries.h"

#include <dlfcn.h>

#include <cstring>

#include "libraries/operations/all.h"
#include "worker/libraries/cublas_api.h"
#include "worker/libraries/in_context.h"

namespace gpupool::worker {
namespace {

using operations::All;

template <class... O>
bool any_is(All<O...>, std::string_view kernel) {
  return ((kernel == O::name) || ...);
}

CUresult run(GemmCall call, const operations::Gemm& operation) {
  const bool plain = operation.epilogue == operations::epilogue_none && !operation.alpha_per_row &&
                     operation.scale_a == 0 && operation.scale_b == 0 && operation.scale_c == 0 &&
                     operation.scale_d == 0 && operation.c.address == operation.d.address &&
                     operation.c.leading == operation.d.leading && operation.c.stride == operation.d.stride &&
                     operation.c.type == operation.d.type && operation.c.pointers == operation.d.pointers &&
                     !operation.a.by_row && !operation.b.by_row && !operation.c.by_row && !operation.d.by_row;
  return plain ? call.by_cublas(operation) : call.by_cublaslt(operation);
}

/// Operations that are computed by software GPUs alone so far.
template <class O>
CUresult run(GemmCall, const O&) {
  return CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace

MathLibraries::MathLibraries(const std::string& folders) {
  for (std::size_t begin = 0; begin < folders.size();) {
    const std::size_t end = std::min(folders.find(':', begin), folders.size());
    if (end != begin) folders_.push_back(folders.substr(begin, end - begin));
    begin = end + 1;
  }
}

MathLibraries::~MathLibraries() = default;

bool MathLibraries::is_operation(std::string_view kernel) {
  return any_is(operations::all_operations, kernel);
}

void* MathLibraries::open(const char* file) {
  std::vector<std::string> names;
  for (const char* const major : {"13", "12"}) {
    const std::string name = std::string(file) + ".so." + major;
    for (const std::string& folder : folders_) names.push_back(folder + "/" + name);
    if (folders_.empty()) names.push_back(name);
  }
  for (const std::string& name : names) {
    if (void* const library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
  }
  why_ = std::string("this node does not have NVIDIA's ") + file + ": " + dlerror();
  return nullptr;
}

MathLibraries::InContext& MathLibraries::in_context(CUcontext context) {
  auto& found = contexts_[context];
  if (found == nullptr) found = std::make_unique<InContext>();
  return *found;
}

template <class O>
bool MathLibraries::executed(std::string_view kernel, std::span<const std::byte> parameters, InContext& in,
                             CUstream stream, CUresult& result) {
  if (kernel != O::name) return false;
  if (parameters.size() != sizeof(O)) {
    why_ = "the client's math libraries are of another version";
    result = CUDA_ERROR_NOT_SUPPORTED;
    return true;
  }
  O operation;
  std::memcpy(static_cast<void*>(&operation), parameters.data(), sizeof(O));
  result = run({*this, in, stream}, operation);
  if (result == CUDA_ERROR_NOT_SUPPORTED && why_.empty()) {
    why_ = "the library on this node, or this node, does not support the operation";
  }
  return true;
}

CUresult MathLibraries::execute(std::string_view kernel, std::span<const std::byte> parameters,
                                CUcontext context, CUstream stream) {
  why_.clear();
  CUresult result = CUDA_ERROR_NOT_SUPPORTED;
  InContext& in = in_context(context);
  const auto by_any = [&]<class... O>(All<O...>) {
    return (executed<O>(kernel, parameters, in, stream, result) || ...);
  };
  if (!by_any(operations::all_operations)) why_ = "no operation is called " + std::string(kernel);
  return result;
}

void MathLibraries::forget(CUcontext context) {
  const auto found = contexts_.find(context);
  if (found == contexts_.end()) return;
  if (found->second->cublas != nullptr) static_cast<void>(cublas_->cublasDestroy_v2(found->second->cublas));
  if (found->second->cublaslt != nullptr)
    static_cast<void>(cublaslt_->cublasLtDestroy(found->second->cublaslt));
  contexts_.erase(found);
}

}  // namespace gpupool::worker

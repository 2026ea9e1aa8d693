#include "worker/libraries/math_libraries.h"

#include <cstring>

#include "worker/libraries/execution.h"

namespace gpupool::worker {
namespace {

using operations::All;

template <class... O>
bool any_is(All<O...>, std::string_view kernel) {
  return ((kernel == O::name) || ...);
}

std::vector<std::string> folders_of(const std::string& folders) {
  std::vector<std::string> found;
  for (std::size_t begin = 0; begin < folders.size();) {
    const std::size_t end = std::min(folders.find(':', begin), folders.size());
    if (end != begin) found.push_back(folders.substr(begin, end - begin));
    begin = end + 1;
  }
  return found;
}

using Majors = std::vector<std::string_view>;

// The majors of a library that CUDA 13 and CUDA 12 have in two versions, the best first. A driver of CUDA 12
// does not start CUDA 13's.
Majors majors(const DriverApi& driver, std::string_view of_13, std::string_view of_12) {
  constexpr int cuda_13 = 13000;
  int version = 0;
  const bool old = driver.cuDriverGetVersion_(&version) == CUDA_SUCCESS && version < cuda_13;
  return old ? Majors{of_12} : Majors{of_13, of_12};
}

}  // namespace

MathLibraries::MathLibraries(const DriverApi& driver, const std::string& folders)
    : folders_(folders_of(folders)),
      api(driver),
      cublas(folders_, told_, preparation, "libcublas", majors(driver, "13", "12")),
      cublaslt(folders_, told_, preparation, "libcublasLt", majors(driver, "13", "12")),
      cudnn(folders_, told_, preparation, "libcudnn", {"9"}),
      cufft(folders_, told_, preparation, "libcufft", majors(driver, "12", "11")),
      curand(folders_, told_, preparation, "libcurand", {"10"}),
      cusolver(folders_, told_, preparation, "libcusolver", majors(driver, "12", "11")),
      cusparse(folders_, told_, preparation, "libcusparse", {"12"}) {}

MathLibraries::~MathLibraries() = default;

bool MathLibraries::is_operation(std::string_view kernel) {
  return any_is(operations::all_operations, kernel);
}

template <class O>
bool MathLibraries::executed(std::string_view kernel, std::span<const std::byte> parameters,
                             LibraryState& state, const OperationPlace& place, CUresult& result) {
  if (kernel != O::name) return false;
  if (parameters.size() != sizeof(O)) {
    told_.why = "the client's math libraries are of another version";
    result = CUDA_ERROR_NOT_SUPPORTED;
    return true;
  }
  O operation;
  std::memcpy(static_cast<void*>(&operation), parameters.data(), sizeof(O));
  if constexpr (requires { operation.sound(); }) {
    if (!operation.sound()) {
      told_.why = "its parameters do not fit each other";
      result = CUDA_ERROR_INVALID_VALUE;
      return true;
    }
  }
  result = run(Execution{*this, state, place.stream, place.captured, place.capturing}, operation);
  if (result != CUDA_SUCCESS && told_.why.empty()) {
    told_.why = result == CUDA_ERROR_NOT_SUPPORTED
                    ? "the library on this node, or this node, does not support the operation"
                    : "the operation failed";
    if (!told_.failed.empty()) told_.why += " (" + told_.failed + ")";
  }
  return true;
}

CUresult MathLibraries::execute(std::string_view kernel, std::span<const std::byte> parameters,
                                const OperationPlace& place) {
  told_ = {};
  CUresult result = CUDA_ERROR_NOT_SUPPORTED;
  auto& state = contexts_[place.context];
  if (state == nullptr) state = std::make_unique<LibraryState>();
  const auto by_any = [&]<class... O>(All<O...>) {
    return (executed<O>(kernel, parameters, *state, place, result) || ...);
  };
  if (!by_any(operations::all_operations)) told_.why = "no operation is called " + std::string(kernel);
  return result;
}

void MathLibraries::forget(CUcontext context) {
  const auto found = contexts_.find(context);
  if (found == contexts_.end()) return;
  const LibraryState& state = *found->second;
  static_cast<void>(api.cuCtxSynchronize_());  // what ends here may be at work
  if (state.cublas != nullptr) cublas.call("cublasDestroy_v2", state.cublas);
  if (state.cublaslt != nullptr) cublaslt.call("cublasLtDestroy", state.cublaslt);
  for (const auto& [key, plan] : state.plans) end_plan(cudnn, plan);
  if (state.cudnn != nullptr) cudnn.call("cudnnDestroy", state.cudnn);
  if (state.cusparse != nullptr) cusparse.call("cusparseDestroy", state.cusparse);
  for (const auto& [key, transform] : state.transforms) cufft.call("cufftDestroy", transform.plan);
  for (const auto& [key, generator] : state.random) {
    if (generator.handle != nullptr) curand.call("curandDestroyGenerator", generator.handle);
  }
  for (const auto& [object, destroy] : {std::pair{state.cusolver.params, "cusolverDnDestroyParams"},
                                        {state.cusolver.eigenvalues, "cusolverDnDestroySyevjInfo"},
                                        {state.cusolver.singular_values, "cusolverDnDestroyGesvdjInfo"},
                                        {state.cusolver.handle, "cusolverDnDestroy"}}) {
    if (object != nullptr) cusolver.call(destroy, object);
  }
  for (const GraphMemory& memory : state.of_graphs) static_cast<void>(api.cuMemFree_v2_(memory.address));
  if (state.pool != nullptr) static_cast<void>(api.cuMemPoolTrimTo_(state.pool, 0));
  contexts_.erase(found);
}

}  // namespace gpupool::worker

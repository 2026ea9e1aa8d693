#include "worker/libraries/kernels/own_kernels.h"

namespace gpupool::worker {
namespace {

/// Loading is nothing that a stream could capture, and a capture does not mind it.
class LoadsWhileCapturing {
 public:
  explicit LoadsWhileCapturing(const DriverApi& api) : api_(api) { exchange(); }
  ~LoadsWhileCapturing() { exchange(); }
  LoadsWhileCapturing(const LoadsWhileCapturing&) = delete;
  LoadsWhileCapturing& operator=(const LoadsWhileCapturing&) = delete;

 private:
  void exchange() { static_cast<void>(api_.cuThreadExchangeStreamCaptureMode_(&mode_)); }
  const DriverApi& api_;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

}  // namespace

CUresult OwnKernels::find(const DriverApi& api, const std::string& text, const char* name,
                          CUfunction& kernel) {
  if (const auto known = kernels_.find(std::string_view(name)); known != kernels_.end()) {
    kernel = known->second;
    return CUDA_SUCCESS;
  }
  const LoadsWhileCapturing allowed(api);
  CUmodule& image = images_[&text];
  if (image == nullptr) {
    if (const CUresult bad = api.cuModuleLoadDataEx_(&image, text.c_str(), 0, nullptr, nullptr);
        bad != CUDA_SUCCESS) {
      image = nullptr;
      return bad;
    }
  }
  const CUresult result = api.cuModuleGetFunction_(&kernel, image, name);
  if (result == CUDA_SUCCESS) kernels_.emplace(name, kernel);
  return result;
}

CUresult OwnKernels::launch_with(const DriverApi& api, CUstream stream, const std::string& text,
                                 const char* name, std::uint64_t threads, void* parameter) {
  if (threads == 0) return CUDA_SUCCESS;
  constexpr std::uint64_t most_blocks = 0x7fffffff;
  const std::uint64_t blocks = (threads - 1) / block + 1;
  if (blocks > most_blocks) return CUDA_ERROR_INVALID_VALUE;
  CUfunction kernel = nullptr;
  if (const CUresult bad = find(api, text, name, kernel); bad != CUDA_SUCCESS) return bad;
  void* parameters[] = {parameter};
  return api.cuLaunchKernel_(kernel, static_cast<unsigned>(blocks), 1, 1, block, 1, 1, 0, stream, parameters,
                             nullptr);
}

}  // namespace gpupool::worker

// Transforms.
#include "libraries/cufft/plan.h"
#include "libraries/shared/launch.h"

using namespace gpupool::cufft;

namespace {

int execute(const Plan& plan, const void* input, void* output, int direction) {
  if (input == nullptr || output == nullptr) return invalid_value;
  if (plan.shape->type.kind == FftKind::complex && direction != -1 && direction != 1) return invalid_value;
  const std::uint64_t work = plan.given != 0 ? plan.given : plan.own.address();
  for (const Fft& operation : operations_of(*plan.shape, reinterpret_cast<std::uintptr_t>(input),
                                            reinterpret_cast<std::uintptr_t>(output), work, direction)) {
    if (const Status bad = status_of(gpupool::libraries::launch(operation, plan.stream)); bad != success)
      return bad;
  }
  return success;
}

/// `type`: what the function is for; absent: whatever the plan is.
int run(int handle, const void* input, void* output, int direction, const std::optional<Type>& type) {
  return guarded([&]() -> int {
    const auto plan = find(handle);
    if (plan == nullptr || !plan->shape) return invalid_plan;
    if (type && !(plan->shape->type == *type)) return invalid_type;
    return execute(*plan, input, output, direction);
  });
}

}  // namespace

GPUPOOL_LIBRARY_EXPORT int cufftXtExec(int handle, void* input, void* output, int direction) {
  return run(handle, input, output, direction, std::nullopt);
}

#define GPUPOOL_FFT_COMPLEX(name, precision)                                                       \
  GPUPOOL_LIBRARY_EXPORT int name(int handle, void* input, void* output, int direction) {          \
    return run(handle, input, output, direction, Type{FftKind::complex, FftPrecision::precision}); \
  }
#define GPUPOOL_FFT_REAL(name, kind, precision)                                         \
  GPUPOOL_LIBRARY_EXPORT int name(int handle, void* input, void* output) {              \
    return run(handle, input, output, 0, Type{FftKind::kind, FftPrecision::precision}); \
  }
GPUPOOL_FFT_COMPLEX(cufftExecC2C, single_)
GPUPOOL_FFT_COMPLEX(cufftExecZ2Z, double_)
GPUPOOL_FFT_REAL(cufftExecR2C, real_to_complex, single_)
GPUPOOL_FFT_REAL(cufftExecD2Z, real_to_complex, double_)
GPUPOOL_FFT_REAL(cufftExecC2R, complex_to_real, single_)
GPUPOOL_FFT_REAL(cufftExecZ2D, complex_to_real, double_)

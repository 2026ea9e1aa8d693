// What is set of a plan, and what the library says of itself.
#include "libraries/cufft/plan.h"
#include "libraries/shared/version.h"

using namespace gpupool::cufft;

namespace {

/// The last one of CUDA 12, the first one of CUDA 13.
constexpr gpupool::libraries::Version version =
    GPUPOOL_CUDA_MAJOR == 12 ? gpupool::libraries::Version{11, 4, 1} : gpupool::libraries::Version{12, 0, 0};

template <class F>
int with_plan(int handle, F f) {
  return guarded([&]() -> int {
    const auto plan = find(handle);
    return plan == nullptr ? invalid_plan : static_cast<int>(f(*plan));
  });
}

/// Both say how plans are compiled: nothing is, here.
bool is_property(int property) {
  return property == 1 || property == 2;
}

}  // namespace

GPUPOOL_LIBRARY_EXPORT int cufftSetStream(int handle, CUstream stream) {
  return with_plan(handle, [&](Plan& plan) {
    plan.stream = stream;
    return success;
  });
}
GPUPOOL_LIBRARY_EXPORT int cufftSetAutoAllocation(int handle, int allocate) {
  return with_plan(handle, [&](Plan& plan) {
    plan.allocates = allocate != 0;
    return success;
  });
}
GPUPOOL_LIBRARY_EXPORT int cufftSetWorkArea(int handle, void* area) {
  return with_plan(handle, [&](Plan& plan) {
    plan.given = reinterpret_cast<std::uintptr_t>(area);
    return success;
  });
}
GPUPOOL_LIBRARY_EXPORT int cufftXtSetWorkAreaPolicy(int handle, int policy, std::size_t* size) {
  return with_plan(handle, [&](Plan& plan) {
    if (policy < 0 || policy > 2) return invalid_value;
    if (size != nullptr) *size = plan.shape ? work_bytes(*plan.shape) : 0;
    return success;
  });
}
GPUPOOL_LIBRARY_EXPORT int cufftSetPlanPropertyInt64(int handle, int property, long long value) {
  return with_plan(handle, [&](Plan& plan) {
    if (!is_property(property)) return invalid_value;
    plan.properties[property] = value;
    return success;
  });
}
GPUPOOL_LIBRARY_EXPORT int cufftGetPlanPropertyInt64(int handle, int property, long long* value) {
  return with_plan(handle, [&](Plan& plan) {
    if (!is_property(property) || value == nullptr) return invalid_value;
    const auto found = plan.properties.find(property);
    *value = found != plan.properties.end() ? found->second : 0;
    return success;
  });
}
GPUPOOL_LIBRARY_EXPORT int cufftResetPlanProperty(int handle, int property) {
  return with_plan(handle, [&](Plan& plan) {
    if (!is_property(property)) return invalid_value;
    plan.properties.erase(property);
    return success;
  });
}

GPUPOOL_LIBRARY_EXPORT int cufftGetVersion(int* value) {
  return gpupool::libraries::read_version(version, value) ? success : invalid_value;
}
GPUPOOL_LIBRARY_EXPORT int cufftGetProperty(int property, int* value) {
  return gpupool::libraries::read_property(version, property, value) ? success : invalid_value;
}

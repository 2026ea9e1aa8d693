// Handles and settings: made, ended, set and asked. No message.
#include "libraries/cusolver/handle.h"

#include "libraries/shared/launch.h"

using namespace gpupool::cusolver;

namespace {

/// Calls f with the object, unless it is none.
template <class T, class F>
int with(void* object, Status none, F f) {
  return guarded([&]() -> int {
    T* const found = find<T>(object);
    return found == nullptr ? none : static_cast<int>(f(*found));
  });
}

template <class T>
int make(void** object) {
  return guarded([&] {
    if (object == nullptr) return invalid_value;
    *object = new T;
    return success;
  });
}

template <class T>
int end(void* object, Status none) {
  return with<T>(object, none, [](T& found) {
    found.alive = 0;
    delete &found;
    return success;
  });
}

template <class T>
int read(void* handle, T* into, T Handle::* field) {
  return with<Handle>(handle, not_initialized, [&](const Handle& found) {
    if (into == nullptr) return invalid_value;
    *into = found.*field;
    return success;
  });
}

template <class T>
int write(void* handle, T value, T Handle::* field, bool valid = true) {
  return with<Handle>(handle, not_initialized, [&](Handle& found) {
    if (!valid) return invalid_value;
    found.*field = value;
    return success;
  });
}

template <class T>
int write_jacobi(void* jacobi, T value, T Jacobi::* field, bool valid) {
  return with<Jacobi>(jacobi, invalid_value, [&](Jacobi& found) {
    if (!valid) return invalid_value;
    found.*field = value;
    return success;
  });
}

}  // namespace

GPUPOOL_LIBRARY_EXPORT int cusolverDnCreate(void** handle) {
  return guarded([&] {
    if (handle == nullptr) return invalid_value;
    *handle = nullptr;
    if (const Status bad = status_of(gpupool::libraries::prepare()); bad != success) return bad;
    *handle = new Handle;
    return success;
  });
}
GPUPOOL_LIBRARY_EXPORT int cusolverDnDestroy(void* handle) {
  return end<Handle>(handle, not_initialized);
}
GPUPOOL_LIBRARY_EXPORT int cusolverDnSetStream(void* handle, CUstream stream) {
  return write(handle, stream, &Handle::stream);
}
GPUPOOL_LIBRARY_EXPORT int cusolverDnGetStream(void* handle, CUstream* stream) {
  return read(handle, stream, &Handle::stream);
}
GPUPOOL_LIBRARY_EXPORT int cusolverDnSetDeterministicMode(void* handle, int mode) {
  return write(handle, mode, &Handle::deterministic_mode, mode == 1 || mode == 2);
}
GPUPOOL_LIBRARY_EXPORT int cusolverDnGetDeterministicMode(void* handle, int* mode) {
  return read(handle, mode, &Handle::deterministic_mode);
}
GPUPOOL_LIBRARY_EXPORT int cusolverDnSetMathMode(void* handle, int mode) {
  return write(handle, mode, &Handle::math_mode, mode == 1 || mode == 2);
}
GPUPOOL_LIBRARY_EXPORT int cusolverDnGetMathMode(void* handle, int* mode) {
  return read(handle, mode, &Handle::math_mode);
}

GPUPOOL_LIBRARY_EXPORT int cusolverDnCreateParams(void** params) {
  return make<Params>(params);
}
GPUPOOL_LIBRARY_EXPORT int cusolverDnDestroyParams(void* params) {
  return end<Params>(params, invalid_value);
}
GPUPOOL_LIBRARY_EXPORT int cusolverDnSetAdvOptions(void* params, int function, int algorithm) {
  return with<Params>(params, invalid_value, [&](Params& found) {
    constexpr int most = 2;  // CUSOLVER_ALG_2
    if (function < 0 || function >= Params::functions || algorithm < 0 || algorithm > most)
      return invalid_value;
    found.algorithms[function] = algorithm;
    return success;
  });
}

GPUPOOL_LIBRARY_EXPORT int cusolverDnCreateSyevjInfo(void** jacobi) {
  return make<Jacobi>(jacobi);
}
GPUPOOL_LIBRARY_EXPORT int cusolverDnDestroySyevjInfo(void* jacobi) {
  return end<Jacobi>(jacobi, invalid_value);
}
GPUPOOL_LIBRARY_EXPORT int cusolverDnXsyevjSetTolerance(void* jacobi, double tolerance) {
  return write_jacobi(jacobi, tolerance, &Jacobi::tolerance, true);
}
GPUPOOL_LIBRARY_EXPORT int cusolverDnXsyevjSetMaxSweeps(void* jacobi, int sweeps) {
  return write_jacobi(jacobi, sweeps, &Jacobi::max_sweeps, sweeps >= 0);
}
GPUPOOL_LIBRARY_EXPORT int cusolverDnXsyevjSetSortEig(void* jacobi, int sorted) {
  return write_jacobi(jacobi, sorted, &Jacobi::sorted, sorted == 0 || sorted == 1);
}
GPUPOOL_LIBRARY_EXPORT int cusolverDnCreateGesvdjInfo(void** jacobi) {
  return make<Jacobi>(jacobi);
}
GPUPOOL_LIBRARY_EXPORT int cusolverDnDestroyGesvdjInfo(void* jacobi) {
  return end<Jacobi>(jacobi, invalid_value);
}
GPUPOOL_LIBRARY_EXPORT int cusolverDnXgesvdjSetTolerance(void* jacobi, double tolerance) {
  return write_jacobi(jacobi, tolerance, &Jacobi::tolerance, true);
}
GPUPOOL_LIBRARY_EXPORT int cusolverDnXgesvdjSetMaxSweeps(void* jacobi, int sweeps) {
  return write_jacobi(jacobi, sweeps, &Jacobi::max_sweeps, sweeps >= 0);
}
GPUPOOL_LIBRARY_EXPORT int cusolverDnXgesvdjSetSortEig(void* jacobi, int sorted) {
  return write_jacobi(jacobi, sorted, &Jacobi::sorted, sorted == 0 || sorted == 1);
}

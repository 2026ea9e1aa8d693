// Handles, and the settings of matrices of the older functions: made, ended, set and asked. No message.
#include "libraries/cusparse/handle.h"

#include "libraries/cusparse/descriptors.h"
#include "libraries/shared/launch.h"

using namespace gpupool::cusparse;

namespace {

int set(void* descriptor, int MatDescr::* field, int value, int most) {
  MatDescr* const found = known<MatDescr>(descriptor);
  if (found == nullptr || value < 0 || value > most) return invalid_value;
  found->*field = value;
  return success;
}
int get(const void* descriptor, int MatDescr::* field) {
  const MatDescr* const found = known<MatDescr>(descriptor);
  return found == nullptr ? 0 : found->*field;
}

}  // namespace

GPUPOOL_LIBRARY_EXPORT int cusparseCreate(void** handle) {
  return guarded([&]() -> int {
    if (handle == nullptr) return invalid_value;
    *handle = nullptr;
    if (const Status bad = status_of(gpupool::libraries::prepare()); bad != success) return bad;
    *handle = new Handle;
    return success;
  });
}
GPUPOOL_LIBRARY_EXPORT int cusparseDestroy(void* handle) {
  return with_handle(handle, [](Handle& found) {
    found.alive = 0;
    delete &found;
    return success;
  });
}
GPUPOOL_LIBRARY_EXPORT int cusparseSetStream(void* handle, CUstream stream) {
  return with_handle(handle, [&](Handle& found) {
    found.stream = stream;
    return success;
  });
}
GPUPOOL_LIBRARY_EXPORT int cusparseGetStream(void* handle, CUstream* stream) {
  return with_handle(handle, [&](Handle& found) {
    if (stream == nullptr) return invalid_value;
    *stream = found.stream;
    return success;
  });
}
GPUPOOL_LIBRARY_EXPORT int cusparseSetPointerMode(void* handle, int mode) {
  return with_handle(handle, [&](Handle& found) {
    if (mode != host && mode != device) return invalid_value;
    found.pointer_mode = mode;
    return success;
  });
}
GPUPOOL_LIBRARY_EXPORT int cusparseGetPointerMode(void* handle, int* mode) {
  return with_handle(handle, [&](Handle& found) {
    if (mode == nullptr) return invalid_value;
    *mode = found.pointer_mode;
    return success;
  });
}

GPUPOOL_LIBRARY_EXPORT int cusparseCreateMatDescr(void** descriptor) {
  return create<MatDescr>(descriptor);
}
GPUPOOL_LIBRARY_EXPORT int cusparseDestroyMatDescr(void* descriptor) {
  return destroy<MatDescr>(descriptor);
}
GPUPOOL_LIBRARY_EXPORT int cusparseSetMatType(void* descriptor, int value) {
  return set(descriptor, &MatDescr::type, value, 3);
}
GPUPOOL_LIBRARY_EXPORT int cusparseGetMatType(const void* descriptor) {
  return get(descriptor, &MatDescr::type);
}
GPUPOOL_LIBRARY_EXPORT int cusparseSetMatFillMode(void* descriptor, int value) {
  return set(descriptor, &MatDescr::fill, value, 1);
}
GPUPOOL_LIBRARY_EXPORT int cusparseGetMatFillMode(const void* descriptor) {
  return get(descriptor, &MatDescr::fill);
}
GPUPOOL_LIBRARY_EXPORT int cusparseSetMatDiagType(void* descriptor, int value) {
  return set(descriptor, &MatDescr::diagonal, value, 1);
}
GPUPOOL_LIBRARY_EXPORT int cusparseGetMatDiagType(const void* descriptor) {
  return get(descriptor, &MatDescr::diagonal);
}
GPUPOOL_LIBRARY_EXPORT int cusparseSetMatIndexBase(void* descriptor, int value) {
  return set(descriptor, &MatDescr::base, value, 1);
}
GPUPOOL_LIBRARY_EXPORT int cusparseGetMatIndexBase(const void* descriptor) {
  return get(descriptor, &MatDescr::base);
}

// Handles and the descriptors that they have no part in: made, ended, set and asked. No message.
#include "libraries/cusparse/objects.h"
#include "libraries/shared/launch.h"

using namespace gpupool::cusparse;

namespace {

template <class F>
int with_handle(void* handle, F f) {
  return with<Handle>(handle, f, not_initialized);
}

template <class T>
int read(void* handle, T* into, T Handle::* field) {
  return with_handle(handle, [&](Handle& found) {
    if (into == nullptr) return invalid_value;
    *into = found.*field;
    return success;
  });
}

/// A field of a description that is one of `values` numbers.
int set(void* description, int value, int values, int Described::* field) {
  return with<Described>(description, [&](Described& found) {
    if (value < 0 || value >= values) return invalid_value;
    found.*field = value;
    return success;
  });
}

int get(const void* description, int Described::* field) {
  const Described* const found = find<Described>(description);
  return found == nullptr ? 0 : found->*field;
}

}  // namespace

GPUPOOL_LIBRARY_EXPORT int cusparseCreate(void** handle) {
  return guarded([&] {
    if (handle == nullptr) return invalid_value;
    *handle = nullptr;
    if (const Status bad = status_of(gpupool::libraries::prepare()); bad != success) return bad;
    *handle = new Handle;
    return success;
  });
}
GPUPOOL_LIBRARY_EXPORT int cusparseDestroy(void* handle) {
  return destroy<Handle>(handle, not_initialized);
}
GPUPOOL_LIBRARY_EXPORT int cusparseSetStream(void* handle, CUstream stream) {
  return with_handle(handle, [&](Handle& found) {
    found.stream = stream;
    return success;
  });
}
GPUPOOL_LIBRARY_EXPORT int cusparseGetStream(void* handle, CUstream* stream) {
  return read(handle, stream, &Handle::stream);
}
GPUPOOL_LIBRARY_EXPORT int cusparseSetPointerMode(void* handle, int mode) {
  return with_handle(handle, [&](Handle& found) {
    if (mode != host && mode != device) return invalid_value;
    found.pointer_mode = mode;
    return success;
  });
}
GPUPOOL_LIBRARY_EXPORT int cusparseGetPointerMode(void* handle, int* mode) {
  return read(handle, mode, &Handle::pointer_mode);
}

GPUPOOL_LIBRARY_EXPORT int cusparseCreateMatDescr(void** description) {
  return guarded([&] {
    if (description == nullptr) return invalid_value;
    *description = new Described;
    return success;
  });
}
GPUPOOL_LIBRARY_EXPORT int cusparseDestroyMatDescr(void* description) {
  return destroy<Described>(description);
}
GPUPOOL_LIBRARY_EXPORT int cusparseSetMatType(void* description, int type) {
  return set(description, type, 4, &Described::type);
}
GPUPOOL_LIBRARY_EXPORT int cusparseGetMatType(const void* description) {
  return get(description, &Described::type);
}
GPUPOOL_LIBRARY_EXPORT int cusparseSetMatFillMode(void* description, int fill) {
  return set(description, fill, 2, &Described::fill);
}
GPUPOOL_LIBRARY_EXPORT int cusparseGetMatFillMode(const void* description) {
  return get(description, &Described::fill);
}
GPUPOOL_LIBRARY_EXPORT int cusparseSetMatDiagType(void* description, int diagonal) {
  return set(description, diagonal, 2, &Described::diagonal);
}
GPUPOOL_LIBRARY_EXPORT int cusparseGetMatDiagType(const void* description) {
  return get(description, &Described::diagonal);
}
GPUPOOL_LIBRARY_EXPORT int cusparseSetMatIndexBase(void* description, int base) {
  return set(description, base, 2, &Described::base);
}
GPUPOOL_LIBRARY_EXPORT int cusparseGetMatIndexBase(const void* description) {
  return get(description, &Described::base);
}

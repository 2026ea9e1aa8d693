// Descriptors: made, ended, set and read. No message.
#include "libraries/cublaslt/descriptors.h"

#include <cstdlib>
#include <cstring>
#include <new>

#include "libraries/cublas/status.h"

using namespace gpupool::cublas;
using namespace gpupool::cublaslt;

namespace {

template <class D>
const Attribute* find(int id) {
  for (const Attribute& attribute : attributes_of(D{})) {
    if (attribute.id == id) return &attribute;
  }
  return nullptr;
}

template <class D>
int set(void* descriptor, int id, const void* value, std::size_t bytes) {
  const Attribute* const attribute = find<D>(id);
  if (descriptor == nullptr || value == nullptr || attribute == nullptr || bytes != attribute->bytes) {
    return invalid_value;
  }
  std::memcpy(static_cast<std::byte*>(descriptor) + attribute->offset, value, bytes);
  return success;
}

/// `written` may be null unless `bytes` is 0: then it hears how many there are.
template <class D>
int get(const void* descriptor, int id, void* value, std::size_t bytes, std::size_t* written) {
  const Attribute* const attribute = find<D>(id);
  if (descriptor == nullptr || attribute == nullptr || (bytes == 0 && written == nullptr))
    return invalid_value;
  if (written != nullptr) *written = attribute->bytes;
  if (bytes == 0) return success;
  if (value == nullptr || bytes != attribute->bytes) return invalid_value;
  std::memcpy(value, static_cast<const std::byte*>(descriptor) + attribute->offset, bytes);
  return success;
}

template <class D>
int begin(void* storage, std::size_t bytes, const D& value) {
  if (storage == nullptr || bytes < sizeof(D)) return storage == nullptr ? invalid_value : alloc_failed;
  std::memset(storage, 0, bytes);
  new (storage) D(value);
  return success;
}

template <class D>
int make(void** into, const D& value, std::size_t bytes) {
  if (into == nullptr) return invalid_value;
  *into = std::calloc(1, bytes);
  return *into == nullptr ? static_cast<int>(alloc_failed) : begin(*into, bytes, value);
}

int end(void* descriptor) {
  std::free(descriptor);
  return success;
}

MatrixLayout layout(int type, std::uint64_t rows, std::uint64_t columns, std::int64_t leading) {
  MatrixLayout made;
  made.type = type;
  made.rows = rows;
  made.columns = columns;
  made.leading = leading;
  return made;
}

MatmulDesc product(int compute, int scale) {
  MatmulDesc made;
  made.compute = compute;
  made.scale = scale;
  return made;
}

// Of the opaque structures in cublasLt.h.
constexpr std::size_t layout_bytes = 64, product_bytes = 256, preference_bytes = 64;

}  // namespace

GPUPOOL_LIBRARY_EXPORT int cublasLtMatrixLayoutCreate(void** made, int type, std::uint64_t rows,
                                                      std::uint64_t columns, std::int64_t leading) {
  return make(made, layout(type, rows, columns, leading), layout_bytes);
}
GPUPOOL_LIBRARY_EXPORT int cublasLtMatrixLayoutInit_internal(void* storage, std::size_t bytes, int type,
                                                             std::uint64_t rows, std::uint64_t columns,
                                                             std::int64_t leading) {
  return begin(storage, bytes, layout(type, rows, columns, leading));
}
GPUPOOL_LIBRARY_EXPORT int cublasLtMatrixLayoutDestroy(void* descriptor) {
  return end(descriptor);
}
GPUPOOL_LIBRARY_EXPORT int cublasLtMatrixLayoutSetAttribute(void* descriptor, int id, const void* value,
                                                            std::size_t bytes) {
  return set<MatrixLayout>(descriptor, id, value, bytes);
}
GPUPOOL_LIBRARY_EXPORT int cublasLtMatrixLayoutGetAttribute(const void* descriptor, int id, void* value,
                                                            std::size_t bytes, std::size_t* written) {
  return get<MatrixLayout>(descriptor, id, value, bytes, written);
}

GPUPOOL_LIBRARY_EXPORT int cublasLtMatmulDescCreate(void** made, int compute, int scale) {
  return make(made, product(compute, scale), product_bytes);
}
GPUPOOL_LIBRARY_EXPORT int cublasLtMatmulDescInit_internal(void* storage, std::size_t bytes, int compute,
                                                           int scale) {
  return begin(storage, bytes, product(compute, scale));
}
GPUPOOL_LIBRARY_EXPORT int cublasLtMatmulDescDestroy(void* descriptor) {
  return end(descriptor);
}
GPUPOOL_LIBRARY_EXPORT int cublasLtMatmulDescSetAttribute(void* descriptor, int id, const void* value,
                                                          std::size_t bytes) {
  return set<MatmulDesc>(descriptor, id, value, bytes);
}
GPUPOOL_LIBRARY_EXPORT int cublasLtMatmulDescGetAttribute(const void* descriptor, int id, void* value,
                                                          std::size_t bytes, std::size_t* written) {
  return get<MatmulDesc>(descriptor, id, value, bytes, written);
}

GPUPOOL_LIBRARY_EXPORT int cublasLtMatmulPreferenceCreate(void** made) {
  return make(made, Preference{}, preference_bytes);
}
GPUPOOL_LIBRARY_EXPORT int cublasLtMatmulPreferenceInit_internal(void* storage, std::size_t bytes) {
  return begin(storage, bytes, Preference{});
}
GPUPOOL_LIBRARY_EXPORT int cublasLtMatmulPreferenceDestroy(void* descriptor) {
  return end(descriptor);
}
GPUPOOL_LIBRARY_EXPORT int cublasLtMatmulPreferenceSetAttribute(void* descriptor, int id, const void* value,
                                                                std::size_t bytes) {
  return set<Preference>(descriptor, id, value, bytes);
}
GPUPOOL_LIBRARY_EXPORT int cublasLtMatmulPreferenceGetAttribute(const void* descriptor, int id, void* value,
                                                                std::size_t bytes, std::size_t* written) {
  return get<Preference>(descriptor, id, value, bytes, written);
}

GPUPOOL_LIBRARY_EXPORT int cublasLtMatmulAlgoConfigSetAttribute(void* algorithm, int id, const void* value,
                                                                std::size_t bytes) {
  return set<Algorithm>(algorithm, id, value, bytes);
}
GPUPOOL_LIBRARY_EXPORT int cublasLtMatmulAlgoConfigGetAttribute(const void* algorithm, int id, void* value,
                                                                std::size_t bytes, std::size_t* written) {
  return get<Algorithm>(algorithm, id, value, bytes, written);
}

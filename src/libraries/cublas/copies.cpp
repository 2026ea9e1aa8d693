// Copies between host and device memory that know elements: the driver's copies of rectangles.
#include <algorithm>
#include <cstdint>

#include "libraries/cublas/status.h"
#include "libraries/shared/driver.h"

using namespace gpupool::cublas;

namespace {

/// `rows` bytes of each column; columns lie so many bytes apart.
struct Rectangle {
  std::int64_t rows, columns;
  const void* from;
  std::int64_t from_pitch;
  void* to;
  std::int64_t to_pitch;
};

int copy(const Rectangle& of, bool to_device, bool waits, CUstream stream) {
  return guarded([&]() -> int {
    if (of.rows == 0 || of.columns == 0) return success;
    const gpupool::libraries::Driver* driver = nullptr;
    if (const CUresult bad = gpupool::libraries::enter(driver); bad != CUDA_SUCCESS) return status_of(bad);
    CUDA_MEMCPY2D copy{};
    copy.srcMemoryType = to_device ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
    copy.dstMemoryType = to_device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
    copy.srcHost = of.from;
    copy.srcDevice = reinterpret_cast<CUdeviceptr>(of.from);
    copy.dstHost = of.to;
    copy.dstDevice = reinterpret_cast<CUdeviceptr>(of.to);
    copy.srcPitch = static_cast<std::size_t>(of.from_pitch);
    copy.dstPitch = static_cast<std::size_t>(of.to_pitch);
    copy.WidthInBytes = static_cast<std::size_t>(of.rows);
    copy.Height = static_cast<std::size_t>(of.columns);
    CUresult result = driver->cuMemcpy2DAsync_v2(&copy, stream);
    if (result == CUDA_SUCCESS && waits) result = driver->cuStreamSynchronize(stream);
    return result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_SUPPORTED ? status_of(result) : mapping_error;
  });
}

int copy_vector(std::int64_t n, std::int64_t bytes, const void* x, std::int64_t incx, void* y,
                std::int64_t incy, bool to_device, bool waits, CUstream stream) {
  if (n < 0 || bytes <= 0 || incx <= 0 || incy <= 0) return invalid_value;
  if (incx == 1 && incy == 1)  // one column
    return copy({n * bytes, n == 0 ? 0 : 1, x, n * bytes, y, n * bytes}, to_device, waits, stream);
  return copy({bytes, n, x, incx * bytes, y, incy * bytes}, to_device, waits, stream);
}

int copy_matrix(std::int64_t rows, std::int64_t columns, std::int64_t bytes, const void* a, std::int64_t lda,
                void* b, std::int64_t ldb, bool to_device, bool waits, CUstream stream) {
  if (rows < 0 || columns < 0 || bytes <= 0 || lda < std::max<std::int64_t>(1, rows) ||
      ldb < std::max<std::int64_t>(1, rows))
    return invalid_value;
  return copy({rows * bytes, columns, a, lda * bytes, b, ldb * bytes}, to_device, waits, stream);
}

}  // namespace

#define GPUPOOL_COPIES(name, suffix, Int, to_device)                                                       \
  GPUPOOL_LIBRARY_EXPORT int cublas##name##Vector##suffix(Int n, Int bytes, const void* x, Int incx,       \
                                                          void* y, Int incy) {                             \
    return copy_vector(n, bytes, x, incx, y, incy, to_device, true, nullptr);                              \
  }                                                                                                        \
  GPUPOOL_LIBRARY_EXPORT int cublas##name##VectorAsync##suffix(Int n, Int bytes, const void* x, Int incx,  \
                                                               void* y, Int incy, CUstream stream) {       \
    return copy_vector(n, bytes, x, incx, y, incy, to_device, false, stream);                              \
  }                                                                                                        \
  GPUPOOL_LIBRARY_EXPORT int cublas##name##Matrix##suffix(Int rows, Int columns, Int bytes, const void* a, \
                                                          Int lda, void* b, Int ldb) {                     \
    return copy_matrix(rows, columns, bytes, a, lda, b, ldb, to_device, true, nullptr);                    \
  }                                                                                                        \
  GPUPOOL_LIBRARY_EXPORT int cublas##name##MatrixAsync##suffix(                                            \
      Int rows, Int columns, Int bytes, const void* a, Int lda, void* b, Int ldb, CUstream stream) {       \
    return copy_matrix(rows, columns, bytes, a, lda, b, ldb, to_device, false, stream);                    \
  }
GPUPOOL_COPIES(Set, , int, true)
GPUPOOL_COPIES(Set, _64, std::int64_t, true)
GPUPOOL_COPIES(Get, , int, false)
GPUPOOL_COPIES(Get, _64, std::int64_t, false)

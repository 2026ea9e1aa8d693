// Plans: made, asked for the work area that they need, and ended.
#include <optional>

#include "libraries/cufft/plan.h"
#include "libraries/shared/launch.h"

using namespace gpupool::cufft;

namespace {

/// The arguments of the functions that describe a transform.
template <class Int>
struct Call {
  std::optional<Type> type;
  int rank;
  const Int *n, *inembed;
  Int istride, idist;
  const Int* onembed;
  Int ostride, odist, batch;

  [[nodiscard]] Status read(Shape& shape) const {
    if (!type) return invalid_type;
    const Status status =
        read_shape<Int>(shape, *type, rank, n, inembed, istride, idist, onembed, ostride, odist, batch);
    if (status == success) divide(shape);
    return status;
  }
};

template <class Int>
int make(int handle, const Call<Int>& call, std::size_t* size) {
  return guarded([&]() -> int {
    const auto plan = find(handle);
    if (plan == nullptr || plan->shape) return invalid_plan;  // it is made once
    Shape shape;
    if (const Status bad = call.read(shape); bad != success) return bad;
    if (size == nullptr) return invalid_value;
    if (const Status bad = status_of(gpupool::libraries::prepare()); bad != success) return bad;
    *size = work_bytes(shape);
    if (plan->allocates && *size != 0) {
      if (const Status bad = status_of(plan->own.allocate(*size)); bad != success) return bad;
    }
    plan->shape = shape;
    return success;
  });
}

template <class Int>
int make_new(int* handle, const Call<Int>& call) {
  return guarded([&]() -> int {
    if (handle == nullptr) return invalid_value;
    const int made = create();
    std::size_t size = 0;
    const int bad = make(made, call, &size);
    if (bad != success) {
      destroy(made);
      return bad;
    }
    *handle = made;
    return success;
  });
}

template <class Int>
int size_of(const Call<Int>& call, std::size_t* size) {
  return guarded([&]() -> int {
    Shape shape;
    if (const Status bad = call.read(shape); bad != success) return bad;
    if (size == nullptr) return invalid_value;
    *size = work_bytes(shape);
    return success;
  });
}

template <class Int>
int size_of(int handle, const Call<Int>& call, std::size_t* size) {
  return find(handle) == nullptr ? invalid_plan : size_of(call, size);
}

/// Without an advanced layout.
Call<int> simple(int type, int rank, const int* n, int batch) {
  return {type_of(type), rank, n, nullptr, 1, 0, nullptr, 1, 0, batch};
}

}  // namespace

GPUPOOL_LIBRARY_EXPORT int cufftCreate(int* handle) {
  return guarded([&]() -> int {
    if (handle == nullptr) return invalid_value;
    *handle = create();
    return success;
  });
}

GPUPOOL_LIBRARY_EXPORT int cufftDestroy(int handle) {
  return guarded([&]() -> int { return destroy(handle) ? success : invalid_plan; });
}

// The same arguments make a plan of a handle, or a new one, or ask for the size of its work area.
#define GPUPOOL_FFT_DESCRIBED(suffix, parameters, ...)                                     \
  GPUPOOL_LIBRARY_EXPORT int cufftMakePlan##suffix(int handle, GPUPOOL_FFT_ALL parameters, \
                                                   std::size_t* size) {                    \
    return make(handle, __VA_ARGS__, size);                                                \
  }                                                                                        \
  GPUPOOL_LIBRARY_EXPORT int cufftGetSize##suffix(int handle, GPUPOOL_FFT_ALL parameters,  \
                                                  std::size_t* size) {                     \
    return size_of(handle, __VA_ARGS__, size);                                             \
  }
#define GPUPOOL_FFT_NEW(suffix, parameters, ...)                                                    \
  GPUPOOL_FFT_DESCRIBED(suffix, parameters, __VA_ARGS__)                                            \
  GPUPOOL_LIBRARY_EXPORT int cufftPlan##suffix(int* handle, GPUPOOL_FFT_ALL parameters) {           \
    return make_new(handle, __VA_ARGS__);                                                           \
  }                                                                                                 \
  GPUPOOL_LIBRARY_EXPORT int cufftEstimate##suffix(GPUPOOL_FFT_ALL parameters, std::size_t* size) { \
    return size_of(__VA_ARGS__, size);                                                              \
  }
#define GPUPOOL_FFT_ALL(...) __VA_ARGS__

namespace {

struct Lengths {
  int n[3];
};

}  // namespace

GPUPOOL_FFT_NEW(1d, (int nx, int type, int batch), simple(type, 1, Lengths{{nx, 0, 0}}.n, batch))
GPUPOOL_FFT_NEW(2d, (int nx, int ny, int type), simple(type, 2, Lengths{{nx, ny, 0}}.n, 1))
GPUPOOL_FFT_NEW(3d, (int nx, int ny, int nz, int type), simple(type, 3, Lengths{{nx, ny, nz}}.n, 1))
GPUPOOL_FFT_NEW(Many,
                (int rank, const int* n, const int* inembed, int istride, int idist, const int* onembed,
                 int ostride, int odist, int type, int batch),
                Call<int>{type_of(type), rank, n, inembed, istride, idist, onembed, ostride, odist, batch})
GPUPOOL_FFT_DESCRIBED(Many64,
                      (int rank, const long long* n, const long long* inembed, long long istride,
                       long long idist, const long long* onembed, long long ostride, long long odist,
                       int type, long long batch),
                      Call<long long>{type_of(type), rank, n, inembed, istride, idist, onembed, ostride,
                                      odist, batch})

GPUPOOL_LIBRARY_EXPORT int cufftXtMakePlanMany(int handle, int rank, const long long* n,
                                               const long long* inembed, long long istride, long long idist,
                                               int input, const long long* onembed, long long ostride,
                                               long long odist, int output, long long batch,
                                               std::size_t* size, int execution) {
  return make(handle,
              Call<long long>{type_of(input, output, execution), rank, n, inembed, istride, idist, onembed,
                              ostride, odist, batch},
              size);
}
GPUPOOL_LIBRARY_EXPORT int cufftXtGetSizeMany(int handle, int rank, const long long* n,
                                              const long long* inembed, long long istride, long long idist,
                                              int input, const long long* onembed, long long ostride,
                                              long long odist, int output, long long batch, std::size_t* size,
                                              int execution) {
  return size_of(handle,
                 Call<long long>{type_of(input, output, execution), rank, n, inembed, istride, idist, onembed,
                                 ostride, odist, batch},
                 size);
}
GPUPOOL_LIBRARY_EXPORT int cufftGetSize(int handle, std::size_t* size) {
  return guarded([&]() -> int {
    const auto plan = find(handle);
    if (plan == nullptr || !plan->shape) return invalid_plan;
    if (size == nullptr) return invalid_value;
    *size = work_bytes(*plan->shape);
    return success;
  });
}

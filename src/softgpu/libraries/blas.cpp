#include "softgpu/libraries/blas.h"

#include <dlfcn.h>
#include <link.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

namespace softgpu::libraries {
namespace {

constexpr int column_major = 102;  // CblasColMajor

/// The copy that NumPy has loaded already is as good as a second one.
std::string loaded_openblas() {
  std::string found;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* into) {
        if (info->dlpi_name == nullptr || std::strstr(info->dlpi_name, "openblas64_") == nullptr) return 0;
        *static_cast<std::string*>(into) = info->dlpi_name;
        return 1;
      },
      &found);
  return found;
}

/// An OpenBLAS with 64-bit integers, as NumPy's wheels and scipy-openblas64 bring it: every function is
/// called scipy_NAME64_, or scipy_NAME_64_ where it is Fortran's.
void* find_openblas() {
  std::vector<std::string> candidates;
  if (const char* const wish = std::getenv("GPUPOOL_SOFTGPU_BLAS"); wish != nullptr && *wish != '\0') {
    if (std::strcmp(wish, "none") == 0) return nullptr;
    candidates.emplace_back(wish);
  }
  if (std::string loaded = loaded_openblas(); !loaded.empty()) candidates.push_back(std::move(loaded));
  candidates.emplace_back("libscipy_openblas64_.so");
  for (const std::string& name : candidates) {
    // How many threads it uses is one number for the whole process: that of a copy that others use is theirs.
    const bool ours = dlopen(name.c_str(), RTLD_NOW | RTLD_NOLOAD) == nullptr;
    void* const library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr || dlsym(library, "scipy_cblas_sgemm64_") == nullptr) continue;
    if (auto* const set =
            reinterpret_cast<void (*)(int)>(dlsym(library, "scipy_openblas_set_num_threads64_"));
        ours && set != nullptr) {
      set(1);
    }
    return library;
  }
  return nullptr;
}

void* openblas() {
  static void* const found = find_openblas();
  return found;
}

template <class T>
T conjugate(T value) {
  if constexpr (std::is_arithmetic_v<T>) {
    return value;
  } else {
    return std::conj(value);
  }
}

template <class T>
T element(Trans trans, const T* matrix, std::int64_t leading, std::int64_t row, std::int64_t column) {
  const bool turned = trans == Trans::transpose || trans == Trans::conjugate_transpose;
  const T value = turned ? matrix[column + row * leading] : matrix[row + column * leading];
  return trans == Trans::conjugate || trans == Trans::conjugate_transpose ? conjugate(value) : value;
}

template <class T>
void plain_gemm(Trans a, Trans b, std::int64_t m, std::int64_t n, std::int64_t k, T alpha, const T* A,
                std::int64_t lda, const T* B, std::int64_t ldb, T beta, T* C, std::int64_t ldc) {
  for (std::int64_t j = 0; j < n; ++j) {
    T* const column = C + j * ldc;
    for (std::int64_t i = 0; i < m; ++i) column[i] = beta == T(0) ? T(0) : beta * column[i];
    for (std::int64_t l = 0; l < k; ++l) {
      const T factor = alpha * element(b, B, ldb, l, j);
      for (std::int64_t i = 0; i < m; ++i) column[i] += factor * element(a, A, lda, i, l);
    }
  }
}

/// The letter of a type in names of BLAS.
template <class T>
constexpr char letter = '?';
template <>
constexpr char letter<float> = 's';
template <>
constexpr char letter<double> = 'd';
template <>
constexpr char letter<std::complex<float>> = 'c';
template <>
constexpr char letter<std::complex<double>> = 'z';

/// Scalars of complex functions are passed by address.
template <class T>
using Passed = std::conditional_t<std::is_arithmetic_v<T>, T, const void*>;
template <class T>
Passed<T> passed(const T& value) {
  if constexpr (std::is_arithmetic_v<T>) {
    return value;
  } else {
    return &value;
  }
}

}  // namespace

void* blas_function(const char* name) {
  void* const library = openblas();
  if (library == nullptr) return nullptr;
  for (const char* const suffix : {"64_", "_64_"}) {
    if (void* const found = dlsym(library, (std::string("scipy_") + name + suffix).c_str())) return found;
  }
  return nullptr;
}

namespace {

/// Of a type, by its name without letter, such as "gemm".
template <class T>
void* function_of(const char* name) {
  return blas_function((std::string("cblas_") + letter<T> + name).c_str());
}

}  // namespace

template <class T>
void gemm(Trans a, Trans b, std::int64_t m, std::int64_t n, std::int64_t k, T alpha, const T* A,
          std::int64_t lda, const T* B, std::int64_t ldb, T beta, T* C, std::int64_t ldc) {
  using Function = void (*)(int, int, int, std::int64_t, std::int64_t, std::int64_t, Passed<T>, const void*,
                            std::int64_t, const void*, std::int64_t, Passed<T>, void*, std::int64_t);
  using OfVector = void (*)(int, int, std::int64_t, std::int64_t, Passed<T>, const void*, std::int64_t,
                            const void*, std::int64_t, Passed<T>, void*, std::int64_t);
  static const auto function = reinterpret_cast<Function>(function_of<T>("gemm"));
  static const auto of_vector = reinterpret_cast<OfVector>(function_of<T>("gemv"));
  if (function == nullptr) return plain_gemm(a, b, m, n, k, alpha, A, lda, B, ldb, beta, C, ldc);
  // One column is read from memory as fast as it can be, which a product's copies are not.
  if (n == 1 && k > 0 && of_vector != nullptr && a != Trans::conjugate &&
      (b == Trans::none || b == Trans::transpose)) {
    const bool turned = a != Trans::none;
    of_vector(column_major, static_cast<int>(a), turned ? k : m, turned ? m : k, passed(alpha), A, lda, B,
              b == Trans::none ? 1 : ldb, passed(beta), C, 1);
    return;
  }
  function(column_major, static_cast<int>(a), static_cast<int>(b), m, n, k, passed(alpha), A, lda, B, ldb,
           passed(beta), C, ldc);
}

template void gemm(Trans, Trans, std::int64_t, std::int64_t, std::int64_t, float, const float*, std::int64_t,
                   const float*, std::int64_t, float, float*, std::int64_t);
template void gemm(Trans, Trans, std::int64_t, std::int64_t, std::int64_t, double, const double*,
                   std::int64_t, const double*, std::int64_t, double, double*, std::int64_t);
template void gemm(Trans, Trans, std::int64_t, std::int64_t, std::int64_t, std::complex<float>,
                   const std::complex<float>*, std::int64_t, const std::complex<float>*, std::int64_t,
                   std::complex<float>, std::complex<float>*, std::int64_t);
template void gemm(Trans, Trans, std::int64_t, std::int64_t, std::int64_t, std::complex<double>,
                   const std::complex<double>*, std::int64_t, const std::complex<double>*, std::int64_t,
                   std::complex<double>, std::complex<double>*, std::int64_t);

}  // namespace softgpu::libraries

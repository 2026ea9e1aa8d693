// What handles and descriptors are: state of this process, never a message.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "libraries/cusparse/status.h"
#include "libraries/operations/sparse.h"

namespace gpupool::cusparse {

using operations::Element;

/// cusparsePointerMode_t: where alpha and beta lie.
enum PointerMode : int { host = 0, device = 1 };

struct Handle {
  static constexpr std::uint32_t mark = 0x73706873;
  std::uint32_t alive = mark;
  CUstream stream = nullptr;
  int pointer_mode = host;
};

/// cusparseSpMatDescr_t.
struct Sparse {
  static constexpr std::uint32_t mark = 0x73706d74;
  std::uint32_t alive = mark;
  operations::SparseMatrix matrix;
  int batch = 1;
  int upper = 0, unit = 0;  // the attributes: cusparseFillMode_t, cusparseDiagType_t
};

/// cusparseDnMatDescr_t.
struct Dense {
  static constexpr std::uint32_t mark = 0x73706d64;
  std::uint32_t alive = mark;
  void* values = nullptr;
  std::int64_t rows = 0, columns = 0, leading = 0, stride = 0;
  Element type = Element::f32;
  int order = 0;  // cusparseOrder_t
  int batch = 1;
};

/// cusparseDnVecDescr_t.
struct DenseVector {
  static constexpr std::uint32_t mark = 0x73707664;
  std::uint32_t alive = mark;
  void* values = nullptr;
  std::int64_t size = 0;
  Element type = Element::f32;
};

/// cusparseMatDescr_t, of the functions by type.
struct Described {
  static constexpr std::uint32_t mark = 0x73706473;
  std::uint32_t alive = mark;
  int type = 0, fill = 0, diagonal = 0, base = 0;
};

/// cusparseSpSVDescr_t and cusparseSpSMDescr_t: an analysis leaves nothing behind here.
struct Analysis {
  static constexpr std::uint32_t mark = 0x73706e61;
  std::uint32_t alive = mark;
};

/// The object, or null for none of its kind, or one that was destroyed.
template <class T>
T* find(const void* pointer) {
  auto* const found = static_cast<T*>(const_cast<void*>(pointer));
  return found != nullptr && found->alive == T::mark ? found : nullptr;
}

/// Calls f with the object; without one, `none` is the answer.
template <class T, class F>
int with(const void* pointer, F f, Status none = invalid_value) {
  return guarded([&]() -> int {
    T* const found = find<T>(pointer);
    return found == nullptr ? none : f(*found);
  });
}

template <class T>
int destroy(const void* pointer, Status none = invalid_value) {
  return with<T>(
      pointer,
      [](T& found) {
        found.alive = 0;
        delete &found;
        return success;
      },
      none);
}

/// Of a function that gives out several things: there is a place for each.
template <class... T>
bool all_there(T*... places) {
  return (... && (places != nullptr));
}

/// A cudaDataType that matrices can have here.
inline bool is_carried(int type) {
  for (const Element known :
       {Element::f32, Element::f64, Element::f16, Element::bf16, Element::c32, Element::c64}) {
    if (type == static_cast<int>(known)) return true;
  }
  return false;
}

inline bool is_base(int base) {
  return base == 0 || base == 1;
}

inline std::uint64_t address(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer);
}

/// Also by another name: functions that differ in a const, which no caller sees.
#define GPUPOOL_CUSPARSE_ALSO(other, name) \
  extern "C" __attribute__((visibility("default"), alias(#name))) decltype(name) other

}  // namespace gpupool::cusparse

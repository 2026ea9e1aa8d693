// Descriptors: what a program says about its vectors and matrices. State of this process, never a message.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <utility>

#include "libraries/cusparse/handle.h"
#include "libraries/operations/sparse.h"

/// The form of a function for what is not written: the same function.
#define GPUPOOL_SPARSE_CONST(name, same) \
  extern "C" decltype(same) name __attribute__((visibility("default"), alias(#same)))

namespace gpupool::cusparse {

using operations::Index;
using operations::Sparse;
using operations::Storage;
using operations::View;

/// The numbers of cusparseFormat_t, cusparseOrder_t and cusparseOperation_t.
enum Format : int { csr = 1, csc = 2, coo = 3, blocked_ell = 5, bsr = 6 };
enum Order : int { by_column = 1, by_row = 2 };
enum Transposition : int { plain = 0, transposed = 1, conjugated = 2 };

/// Each begins with a mark, so that a handle of another kind, or one that was destroyed, is noticed.
template <std::uint32_t own>
struct Marked {
  static constexpr std::uint32_t mark = own;
  std::uint32_t alive = mark;
};

struct SpVec : Marked<0x53705665> {
  std::int64_t size = 0, entries = 0;
  void *indices = nullptr, *values = nullptr;
  Index index_type = Index::i32;
  Element type = Element::f32;
  std::uint8_t base = 0;
};

struct DnVec : Marked<0x446e5665> {
  std::int64_t size = 0;
  void* values = nullptr;
  Element type = Element::f32;
};

struct DnMat : Marked<0x446e4d61> {
  std::int64_t rows = 0, columns = 0, leading = 0, stride = 0;
  void* values = nullptr;
  Element type = Element::f32;
  int order = by_column;
  int batch = 1;
};

struct SpMat : Marked<0x53704d61> {
  Sparse stored;  // CSC is `turned`
  int format = csr;
  int batch = 1;
  int fill = 0;      // cusparseFillMode_t
  int diagonal = 0;  // cusparseDiagType_t
  std::int64_t padded_columns = 0;

  [[nodiscard]] std::int64_t rows() const { return stored.turned ? stored.columns : stored.rows; }
  [[nodiscard]] std::int64_t columns() const { return stored.turned ? stored.rows : stored.columns; }
};

/// cusparseMatDescr_t.
struct MatDescr : Marked<0x4d617444> {
  int type = 0, fill = 0, diagonal = 0, base = 0;
};

template <class T>
T* known(const void* descriptor) {
  auto* const found = static_cast<T*>(const_cast<void*>(descriptor));
  return found != nullptr && found->alive == T::mark ? found : nullptr;
}

template <class T>
int create(void** descriptor) {
  return guarded([&]() -> int {
    if (descriptor == nullptr) return invalid_value;
    *descriptor = new T;
    return success;
  });
}

template <class T>
int destroy(const void* descriptor) {
  // As NVIDIA's: there is nothing to end where there is nothing.
  if (descriptor == nullptr) return success;
  T* const found = known<T>(descriptor);
  if (found == nullptr) return invalid_value;
  found->alive = 0;
  delete found;
  return success;
}

inline bool is_type(int type) {
  return type >= 0 && type < 256 && operations::bytes_of(static_cast<Element>(type)) != 0;
}
inline bool is_index(int type) {
  return type == static_cast<int>(Index::i32) || type == static_cast<int>(Index::i64);
}
inline bool is_base(int base) {
  return base == 0 || base == 1;
}
inline bool is_transposition(int op) {
  return op >= plain && op <= conjugated;
}

/// What values are computed in: of the types that cuSPARSE takes, whole numbers are not carried.
inline Status check_types(int compute, std::initializer_list<Element> types) {
  const auto sum = static_cast<Element>(compute);
  if (compute < 0 || compute > 5 || compute == 2 || compute == 3) return not_supported;
  for (const Element type : types) {
    const bool narrow = type == Element::f16 || type == Element::bf16;
    if (type != sum && !(narrow && sum == Element::f32)) return not_supported;
  }
  return success;
}

inline Sparse matrix_of(const SpMat& matrix, int op) {
  Sparse made = matrix.stored;
  made.turned = (matrix.stored.turned != 0) != (op != plain);
  made.conjugated = op == conjugated;
  return made;
}

inline View view_of(const DnMat& matrix, int op = plain) {
  View view;
  view.address = address(matrix.values);
  view.row = matrix.order == by_row ? matrix.leading : 1;
  view.column = matrix.order == by_row ? 1 : matrix.leading;
  view.stride = matrix.batch == 1 ? 0 : matrix.stride;
  view.type = matrix.type;
  view.conjugated = op == conjugated;
  if (op != plain) std::swap(view.row, view.column);
  return view;
}
inline View view_of(const DnVec& vector) {
  View view;
  view.address = address(vector.values);
  view.column = std::max<std::int64_t>(1, vector.size);
  view.type = vector.type;
  return view;
}

}  // namespace gpupool::cusparse

// What the functions that compute have in common: the arguments that they check, and the operands made of
// them.
#pragma once

#include "libraries/cusparse/objects.h"
#include "libraries/operations/sparse.h"
#include "libraries/shared/launch.h"

namespace gpupool::cusparse {

using operations::Transpose;
using operations::View;

/// cusparseOperation_t.
inline bool is_operation(int operation) {
  return operation >= 0 && operation <= 2;
}

/// op(matrix) as an operand.
View view_of(const Dense& matrix, int operation = 0);
View view_of(const DenseVector& vector);

/// Its rows or columns once op is applied.
inline std::int64_t rows_of(const Dense& matrix, int operation = 0) {
  return operation == 0 ? matrix.rows : matrix.columns;
}
inline std::int64_t columns_of(const Dense& matrix, int operation = 0) {
  return operation == 0 ? matrix.columns : matrix.rows;
}
inline std::int64_t rows_of(const Sparse& matrix, int operation = 0) {
  return operation == 0 ? matrix.matrix.rows : matrix.matrix.columns;
}
inline std::int64_t columns_of(const Sparse& matrix, int operation = 0) {
  return operation == 0 ? matrix.matrix.columns : matrix.matrix.rows;
}

/// alpha or beta as the call was given it.
operations::Factor factor_of(const Handle& handle, const void* value, Element type);

/// Whether sums of type `compute` can be made of factors of these types, for a result of the third.
bool can_compute(int compute, Element first, Element second, Element result);

template <operations::Operation O>
int post(const Handle& handle, const O& operation) {
  if (operation.parts() == 0) return success;
  return status_of(libraries::launch(operation, handle.stream));
}

/// The operations need no room beside their operands.
inline int no_room(int checked, std::size_t* bytes) {
  if (checked != success) return checked;
  if (bytes == nullptr) return invalid_value;
  *bytes = 0;
  return success;
}

}  // namespace gpupool::cusparse

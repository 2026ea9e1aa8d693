#include "libraries/cusparse/calls.h"

#include <algorithm>

namespace gpupool::cusparse {

View view_of(const Dense& matrix, int operation) {
  View view;
  view.address = address(matrix.values);
  view.type = matrix.type;
  view.stride = matrix.stride;
  // Columns that lie together are as far apart as rows would be.
  const std::int64_t leading = std::max<std::int64_t>(matrix.leading, 1);
  const bool turned = (matrix.order == 2) != (operation != 0);
  view.row = turned ? leading : 1;
  view.column = turned ? 1 : leading;
  view.conjugated = operation == 2;
  return view;
}

View view_of(const DenseVector& vector) {
  View view;
  view.address = address(vector.values);
  view.type = vector.type;
  view.column = 1;
  return view;
}

operations::Factor factor_of(const Handle& handle, const void* value, Element type) {
  operations::Factor made;
  made.type = type;
  made.on_device = handle.pointer_mode == device;
  if (made.on_device) {
    made.value.words[0] = address(value);
  } else {
    __builtin_memcpy(made.value.words, value, operations::bytes_of(type));
  }
  return made;
}

bool can_compute(int compute, Element first, Element second, Element result) {
  const auto sum = static_cast<Element>(compute);
  switch (sum) {
    case Element::f32:
      if (first == Element::f16 || first == Element::bf16)
        return second == first && (result == first || result == sum);
      return first == sum && second == sum && result == sum;
    case Element::f64:
      return first == sum && second == sum && result == sum;
    case Element::c32:  // a real sparse matrix, too
      return (first == sum || first == Element::f32) && second == sum && result == sum;
    case Element::c64:
      return (first == sum || first == Element::f64) && second == sum && result == sum;
    default:
      return false;
  }
}

}  // namespace gpupool::cusparse

// Reductions. One part adds up all elements of each of its results, in an order that is always the same.
#include "libraries/operations/reduction.h"

#include <cmath>
#include <string>
#include <vector>

#include "softgpu/libraries/loops.h"
#include "softgpu/libraries/operations.h"
#include "softgpu/libraries/sums.h"
#include "softgpu/libraries/tensors.h"

namespace softgpu::libraries {
namespace {

using gpupool::operations::Reduce;
using gpupool::operations::Reduction;

double start_of(Reduce operation) {
  switch (operation) {
    case Reduce::multiply:
    case Reduce::multiply_without_zeros:
      return 1;
    case Reduce::minimum:
      return HUGE_VAL;
    case Reduce::maximum:
      return -HUGE_VAL;
    default:
      return 0;
  }
}

/// One result, and where the minimum or maximum was.
struct Reduced {
  double value;
  std::int64_t index = 0;
};

void reduce_row(Reduce operation, const double* row, std::int64_t count, std::int64_t index, Reduced& into) {
  const auto each = [&](auto f) {
    for (std::int64_t i = 0; i < count; ++i) f(row[i], index + i);
  };
  switch (operation) {
    case Reduce::add:
    case Reduce::average:
      into.value += sum_of(row, count, [](double x) { return x; });
      return;
    case Reduce::sum_of_sizes:
      into.value += sum_of(row, count, [](double x) { return std::fabs(x); });
      return;
    case Reduce::euclidean:
      into.value += sum_of(row, count, [](double x) { return x * x; });
      return;
    case Reduce::multiply:
      return each([&](double x, std::int64_t) { into.value *= x; });
    case Reduce::multiply_without_zeros:
      return each([&](double x, std::int64_t) { into.value *= x == 0 ? 1 : x; });
    case Reduce::minimum:
      return each([&](double x, std::int64_t at) {
        if (x < into.value || (x != x && into.value == into.value)) into = {x, at};
      });
    case Reduce::maximum:
      return each([&](double x, std::int64_t at) {
        if (x > into.value || (x != x && into.value == into.value)) into = {x, at};
      });
    case Reduce::maximum_size:
      return each([&](double x, std::int64_t at) {
        const double size = std::fabs(x);
        if (size > into.value || (size != size && into.value == into.value)) into = {size, at};
      });
  }
}

}  // namespace

void run(const Reduction& op, const Parts& parts, const Memory& memory) {
  check_tensor(op.source, memory, "what is reduced");
  check_written(op.target, memory, "the result");
  if (op.operation > Reduce::multiply_without_zeros)
    throw Failure(softgpu::Fault::illegal_instruction, "there is no such reduction");
  bool fits = op.source.dims == op.target.dims;
  for (int i = 0; fits && i < op.target.dims; ++i)
    fits = op.target.sizes[i] == op.source.sizes[i] || op.target.sizes[i] == 1;
  if (!fits) throw Failure(softgpu::Fault::illegal_instruction, "a reduction to another shape");

  enum : std::size_t { target, source, operands };
  Loops<operands> kept;
  Loops<1> reduced;
  for (int i = 0; i < op.target.dims; ++i) {
    if (op.target.sizes[i] == 1) {
      reduced.add(op.source.sizes[i], {op.source.strides[i]});
    } else {
      kept.add(op.target.sizes[i], {op.target.strides[i], op.source.strides[i]});
    }
  }
  // Indices count elements in the order of the axes.
  if (op.indices == 0) {
    reduced.arrange(0);
  } else {
    reduced.merge();
    memory.check(op.indices, static_cast<std::uint64_t>(op.target.elements()), sizeof(std::uint32_t),
                 "the indices");
  }
  const std::int64_t of_each = reduced.elements(), block = op.block(), results = kept.elements();
  constexpr std::int64_t most = 4096;
  std::vector<double> row(static_cast<std::size_t>(most));
  parts.each(op.parts(), [&](std::uint64_t part) {
    const std::int64_t from = static_cast<std::int64_t>(part) * block;
    for (std::int64_t result = from; result < std::min(from + block, results); ++result) {
      const auto at = kept.at(result);
      Reduced value{start_of(op.operation)};
      for (std::int64_t first = 0; first < of_each; first += most) {
        reduced.each(first, std::min(first + most, of_each),
                     [&](const auto& offsets, const auto& strides, std::int64_t count, std::int64_t index) {
                       read_row(op.source, at[source] + offsets[0], strides[0], count, row.data());
                       reduce_row(op.operation, row.data(), count, index, value);
                     });
      }
      double made = value.value;
      if (op.operation == Reduce::average) made /= static_cast<double>(of_each);
      if (op.operation == Reduce::euclidean) made = std::sqrt(made);
      made *= op.alpha;
      if (op.beta != 0) {
        double before = 0;
        read_row(op.target, at[target], 1, 1, &before);
        made += op.beta * before;
      }
      write_row(op.target, at[target], 1, 1, &made);
      if (op.indices != 0)
        reinterpret_cast<std::uint32_t*>(op.indices)[result] = static_cast<std::uint32_t>(value.index);
    }
  });
}

}  // namespace softgpu::libraries

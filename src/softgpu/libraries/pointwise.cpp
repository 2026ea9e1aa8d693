// Element-wise operations. A part is a block of the target's elements, in the order of its memory.
#include "libraries/operations/pointwise.h"

#include <cmath>
#include <string>
#include <vector>

#include "softgpu/libraries/gradients.h"
#include "softgpu/libraries/loops.h"
#include "softgpu/libraries/operations.h"
#include "softgpu/libraries/tensors.h"

namespace softgpu::libraries {
namespace {

using gpupool::operations::Combine;
using gpupool::operations::Pointwise;

void check_operand(const Tensor& operand, const Tensor& target, bool needed, const Memory& memory,
                   const char* what) {
  if (operand.address == 0) {
    if (needed) throw Failure(softgpu::Fault::illegal_instruction, std::string(what) + " is missing");
    return;
  }
  check_tensor(operand, memory, what);
  bool fits = operand.dims == target.dims;
  for (int i = 0; fits && i < target.dims; ++i)
    fits = operand.sizes[i] == target.sizes[i] || operand.sizes[i] == 1;
  if (!fits) throw Failure(softgpu::Fault::illegal_instruction, std::string(what) + ": another shape");
}

template <class N>
void combine_rows(const Pointwise& op, std::int64_t count, N* a, const N* b, const N* c) {
  const auto each = [&](auto f) {
    for (std::int64_t i = 0; i < count; ++i) a[i] = f(a[i], b[i]);
  };
  switch (op.combine) {
    case Combine::first:
      return;
    case Combine::add:
      return each([](N x, N y) { return x + y; });
    case Combine::subtract:
      return each([](N x, N y) { return x - y; });
    case Combine::multiply:
      return each([](N x, N y) { return x * y; });
    case Combine::divide:
      return each([](N x, N y) { return x / y; });
    case Combine::minimum:  // what is no number stays so
      return each([](N x, N y) { return x < y || x != x ? x : y; });
    case Combine::maximum:
      return each([](N x, N y) { return x > y || x != x ? x : y; });
    case Combine::square_root:
      return each([](N x, N) { return std::sqrt(x); });
    case Combine::complement:
      return each([](N x, N) { return N(1) - x; });
    case Combine::gradient:
      return activation_gradient(op.activation, count, a, b, c);
  }
  throw Failure(softgpu::Fault::illegal_instruction, "there is no such element-wise operation");
}

template <class N>
void compute_pointwise(const Pointwise& op, const Parts& parts) {
  enum : std::size_t { target, a, b, c, operands };
  const Tensor* const tensors[operands] = {&op.target, &op.a, &op.b, &op.c};
  Loops<operands> loops;
  for (int i = 0; i < op.target.dims; ++i) {
    loops.add(op.target.sizes[i], {op.target.strides[i], repeated_stride(op.a, i), repeated_stride(op.b, i),
                                   repeated_stride(op.c, i)});
  }
  loops.arrange(target);
  static thread_local std::vector<N> rows[operands];  // kept for the thread's next part
  for (auto& row : rows) row.resize(static_cast<std::size_t>(Pointwise::block));
  const auto alpha = static_cast<N>(op.alpha), beta = static_cast<N>(op.beta);
  const auto fetch = [&](std::size_t operand, const auto& offsets, const auto& strides, std::int64_t count,
                         double factor) {
    N* const row = rows[operand].data();
    if (tensors[operand]->address == 0) {
      std::fill_n(row, count, static_cast<N>(factor));
      return;
    }
    read_row(*tensors[operand], offsets[operand], strides[operand], count, row);
    if (factor == 1) return;
    for (std::int64_t i = 0; i < count; ++i) row[i] *= static_cast<N>(factor);
  };
  const std::int64_t all = loops.elements();
  parts.each(op.parts(), [&](std::uint64_t part) {
    const std::int64_t from = static_cast<std::int64_t>(part) * Pointwise::block;
    loops.each(from, std::min(from + Pointwise::block, all),
               [&](const auto& offsets, const auto& strides, std::int64_t count, std::int64_t) {
                 fetch(a, offsets, strides, count, op.alpha_a);
                 fetch(b, offsets, strides, count, op.alpha_b);
                 if (op.combine == Combine::gradient) fetch(c, offsets, strides, count, 1);
                 N* const values = rows[a].data();
                 combine_rows<N>(op, count, values, rows[b].data(), rows[c].data());
                 if (op.combine != Combine::gradient) activate(op.activation, count, values);
                 for (std::int64_t i = 0; i < count; ++i) values[i] *= alpha;
                 if (beta != N(0)) {
                   fetch(target, offsets, strides, count, op.beta);
                   for (std::int64_t i = 0; i < count; ++i)
                     values[i] += rows[target][static_cast<std::size_t>(i)];
                 }
                 write_row(op.target, offsets[target], strides[target], count, values);
               });
  });
}

}  // namespace

void run(const Pointwise& op, const Parts& parts, const Memory& memory) {
  check_written(op.target, memory, "the result");
  const bool gradient = op.combine == Combine::gradient;
  const bool two = gradient || (op.combine != Combine::first && op.combine != Combine::square_root &&
                                op.combine != Combine::complement);
  check_operand(op.a, op.target, op.combine != Combine::first, memory, "the first operand");
  check_operand(op.b, op.target, two, memory, "the second operand");
  check_operand(op.c, op.target, gradient, memory, "the third operand");
  const auto wide = [](const Tensor& tensor) {
    return tensor.address != 0 && (tensor.type == Element::f64 || tensor.type == Element::i32);
  };
  if (wide(op.target) || wide(op.a) || wide(op.b)) return compute_pointwise<double>(op, parts);
  return compute_pointwise<float>(op, parts);
}

}  // namespace softgpu::libraries

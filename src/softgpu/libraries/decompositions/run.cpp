// Decompositions of dense matrices: one matrix of a batch is one part, solutions are also cut by columns.
#include "softgpu/libraries/decompositions/task.h"

#include "softgpu/libraries/operations.h"

namespace softgpu::libraries {
namespace {

template <class N>
std::int64_t done(const Task<N>& task) {
  if (task.op.what <= Decomposing::exchange || task.op.what >= Decomposing::system) return solve_linear(task);
  if (task.op.what <= Decomposing::bidiagonal_make_q) return make_orthogonal(task);
  return find_spectrum(task);
}

}  // namespace

void run(const Decomposition& op, const Parts& parts, const Memory& memory) {
  const bool fits = op.what <= gpupool::operations::last_decomposing && op.transpose <= 2 &&
                    op.problem >= 1 && op.problem <= 3 && op.left <= Wanted::in_place &&
                    op.right_ones <= Wanted::in_place;
  if (!fits) wrong("no such decomposition");
  with_number(op.type, [&](auto type) {
    parts.each(op.parts(), [&](std::uint64_t part) {
      const auto pieces = static_cast<std::uint64_t>(op.pieces_of_each());
      const Task<decltype(type)> task{op, static_cast<std::int64_t>(part / pieces),
                                      static_cast<std::int64_t>(part % pieces), memory};
      task.write_info(done(task));
    });
  });
}

}  // namespace softgpu::libraries

// Pseudo-random numbers: any of them can be computed without the ones before it.
#include "libraries/operations/random.h"

#include <algorithm>

#include "softgpu/libraries/operations.h"

namespace softgpu::libraries {

using gpupool::operations::Distribution;
using gpupool::operations::Random;

void run(const Random& op, const Parts& parts, const Memory& memory) {
  if (op.distribution > Distribution::log_normal ||
      (op.doubles != 0 && op.distribution == Distribution::bits))
    throw Failure(softgpu::Fault::illegal_instruction, "no such distribution");
  memory.check(op.output, op.count, op.bytes_of_number(), "the output");
  parts.each(op.parts(), [&](std::uint64_t part) {
    const std::uint64_t first = part * Random::numbers_of_a_part;
    const std::uint64_t end = std::min(first + Random::numbers_of_a_part, op.count);
    generate(op, first, end, reinterpret_cast<void*>(op.output));
  });
}

}  // namespace softgpu::libraries

// Random numbers: any of them can be computed without the ones before it.
#include "libraries/operations/random_numbers.h"

#include <algorithm>

#include "softgpu/libraries/operations.h"

namespace softgpu::libraries {

using gpupool::operations::Distribution;
using gpupool::operations::Random;
using gpupool::operations::RandomGenerator;

void run(const Random& op, const Parts& parts, const Memory& memory) {
  if (op.generator > RandomGenerator::sobol64)
    throw Failure(softgpu::Fault::illegal_instruction, "no such generator");
  const bool wide = op.generator == RandomGenerator::sobol64;
  if (op.distribution > Distribution::log_normal ||
      (op.distribution == Distribution::bits && (op.doubles != 0) != wide))
    throw Failure(softgpu::Fault::illegal_instruction, "no such distribution");
  if (op.pairs() && op.count % 2 != 0)
    throw Failure(softgpu::Fault::illegal_instruction, "normal numbers come in pairs");
  memory.check(op.output, op.count, op.bytes_of_number(), "the output");
  parts.each(op.parts(), [&](std::uint64_t part) {
    const std::uint64_t first = part * op.numbers_of_a_part();
    const std::uint64_t end = std::min(first + op.numbers_of_a_part(), op.count);
    generate(op, first, end, reinterpret_cast<void*>(op.output));
  });
}

}  // namespace softgpu::libraries

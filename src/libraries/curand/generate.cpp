// Numbers: one operation, or computed here where they are for host memory.
#include "libraries/curand/generator.h"
#include "libraries/operations/random_numbers.h"
#include "libraries/shared/launch.h"

using namespace gpupool::curand;

namespace {

using gpupool::operations::Distribution;
using gpupool::operations::Random;
using gpupool::operations::RandomGenerator;

int fill(void* generator, Distribution distribution, bool doubles, void* output, std::size_t count,
         double mean = 0, double deviation = 1) {
  return guarded([&]() -> int {
    Generator* const found = find(generator);
    if (found == nullptr) return not_initialized;
    Random operation;
    operation.output = reinterpret_cast<std::uintptr_t>(output);
    operation.count = count;
    operation.seed = found->seed;
    operation.generator = found->kind;
    operation.position = found->position;
    operation.begun_rows = found->begun_rows;
    operation.mean = mean;
    operation.deviation = deviation;
    operation.distribution = distribution;
    operation.doubles = doubles ? 1 : 0;
    if (operation.pairs() && count % 2 != 0) return length_not_multiple;
    if (count == 0) return success;
    if (found->on_host) {
      if (output == nullptr) return launch_failure;
      gpupool::operations::generate(operation, 0, count, output);
    } else if (const Status bad = status_of(gpupool::libraries::launch(operation, found->stream));
               bad != success) {
      return bad;
    }
    gpupool::operations::advance(operation);
    found->position = operation.position;
    found->begun_rows = operation.begun_rows;
    return success;
  });
}

/// Words are as wide as the generator's.
int fill_with_bits(void* generator, bool wide, void* output, std::size_t count) {
  const Generator* const found = find(generator);
  if (found == nullptr) return not_initialized;
  if (wide != (found->kind == RandomGenerator::sobol64)) return type_error;
  return fill(generator, Distribution::bits, wide, output, count);
}

}  // namespace

GPUPOOL_LIBRARY_EXPORT int curandGenerate(void* generator, unsigned* output, std::size_t count) {
  return fill_with_bits(generator, false, output, count);
}
GPUPOOL_LIBRARY_EXPORT int curandGenerateLongLong(void* generator, unsigned long long* output,
                                                  std::size_t count) {
  return fill_with_bits(generator, true, output, count);
}
GPUPOOL_LIBRARY_EXPORT int curandGenerateUniform(void* generator, float* output, std::size_t count) {
  return fill(generator, Distribution::uniform, false, output, count);
}
GPUPOOL_LIBRARY_EXPORT int curandGenerateUniformDouble(void* generator, double* output, std::size_t count) {
  return fill(generator, Distribution::uniform, true, output, count);
}
GPUPOOL_LIBRARY_EXPORT int curandGenerateNormal(void* generator, float* output, std::size_t count, float mean,
                                                float deviation) {
  return fill(generator, Distribution::normal, false, output, count, mean, deviation);
}
GPUPOOL_LIBRARY_EXPORT int curandGenerateNormalDouble(void* generator, double* output, std::size_t count,
                                                      double mean, double deviation) {
  return fill(generator, Distribution::normal, true, output, count, mean, deviation);
}
GPUPOOL_LIBRARY_EXPORT int curandGenerateLogNormal(void* generator, float* output, std::size_t count,
                                                   float mean, float deviation) {
  return fill(generator, Distribution::log_normal, false, output, count, mean, deviation);
}
GPUPOOL_LIBRARY_EXPORT int curandGenerateLogNormalDouble(void* generator, double* output, std::size_t count,
                                                         double mean, double deviation) {
  return fill(generator, Distribution::log_normal, true, output, count, mean, deviation);
}

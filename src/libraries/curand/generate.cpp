// Numbers: one operation, or computed here where they are for host memory.
#include "libraries/curand/generator.h"
#include "libraries/operations/random_numbers.h"
#include "libraries/shared/launch.h"

using namespace gpupool::curand;

namespace {

using gpupool::operations::Distribution;
using gpupool::operations::Random;

int fill(void* generator, Distribution distribution, bool doubles, void* output, std::size_t count,
         double mean = 0, double deviation = 1) {
  return guarded([&]() -> int {
    Generator* const found = find(generator);
    if (found == nullptr) return not_initialized;
    // Normal numbers come in pairs.
    if (distribution >= Distribution::normal && count % 2 != 0) return length_not_multiple;
    if (count == 0) return success;
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
    if (found->on_host) {
      if (output == nullptr) return launch_failure;
      gpupool::operations::generate(operation, 0, count, output);
    } else if (const Status bad = status_of(gpupool::libraries::launch(operation, found->stream));
               bad != success) {
      return bad;
    }
    gpupool::operations::RandomCourse(operation).advance(operation);
    found->position = operation.position;
    found->begun_rows = operation.begun_rows;
    return success;
  });
}

}  // namespace

GPUPOOL_LIBRARY_EXPORT int curandGenerate(void* generator, unsigned* output, std::size_t count) {
  return fill(generator, Distribution::bits, false, output, count);
}
/// Of 64-bit quasi-random generators alone.
GPUPOOL_LIBRARY_EXPORT int curandGenerateLongLong(void* generator, unsigned long long*, std::size_t) {
  return find(generator) == nullptr ? not_initialized : type_error;
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

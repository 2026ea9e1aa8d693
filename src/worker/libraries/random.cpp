// Random numbers by cuRAND: a generator for each stream, set to where each operation's numbers begin.
#include "libraries/operations/random_course.h"

#include "worker/libraries/execution.h"

namespace gpupool::worker {
namespace {

using operations::Distribution;
using operations::Random;
using operations::RandomGenerator;

/// curandStatus_t as a result of the driver.
CUresult result_of_curand(int status) {
  switch (status) {
    case 0:
      return CUDA_SUCCESS;
    case 102:  // ALLOCATION_FAILED
      return CUDA_ERROR_OUT_OF_MEMORY;
    case 104:  // OUT_OF_RANGE, LENGTH_NOT_MULTIPLE
    case 105:
      return CUDA_ERROR_INVALID_VALUE;
    case 101:  // NOT_INITIALIZED, INITIALIZATION_FAILED: it did not start; ARCH_MISMATCH
    case 203:
    case 204:
    case Library::missing:
      return CUDA_ERROR_NOT_SUPPORTED;
    default:
      return CUDA_ERROR_LAUNCH_FAILED;
  }
}

int generate(Library& library, void* generator, const Random& of) {
  const auto count = static_cast<std::size_t>(of.count);
  const bool doubles = of.doubles != 0;
  auto* const narrow = pointer<float>(of.output);
  auto* const wide = pointer<double>(of.output);
  const auto mean = static_cast<float>(of.mean), deviation = static_cast<float>(of.deviation);
  switch (of.distribution) {
    case Distribution::bits:
      if (doubles)
        return library.call("curandGenerateLongLong", generator, pointer<unsigned long long>(of.output),
                            count);
      return library.call("curandGenerate", generator, pointer<unsigned>(of.output), count);
    case Distribution::uniform:
      return doubles ? library.call("curandGenerateUniformDouble", generator, wide, count)
                     : library.call("curandGenerateUniform", generator, narrow, count);
    case Distribution::normal:
      return doubles
                 ? library.call("curandGenerateNormalDouble", generator, wide, count, of.mean, of.deviation)
                 : library.call("curandGenerateNormal", generator, narrow, count, mean, deviation);
    case Distribution::log_normal:
      return doubles ? library.call("curandGenerateLogNormalDouble", generator, wide, count, of.mean,
                                    of.deviation)
                     : library.call("curandGenerateLogNormal", generator, narrow, count, mean, deviation);
  }
  return 104;  // no such distribution
}

/// curandRngType_t.
int type_of(RandomGenerator kind) {
  switch (kind) {
    case RandomGenerator::philox:
      break;
    case RandomGenerator::xorwow:
      return 101;
    case RandomGenerator::mrg32k3a:
    case RandomGenerator::mrg32k3a_legacy:
      return 121;
    case RandomGenerator::sobol32:
      return 201;
    case RandomGenerator::sobol64:
      return 203;
  }
  return 161;
}

/// In cuRAND's count all subsequences that had their turn are ahead by one row. If they are by more, the
/// others leave some out, so that no word is used twice.
unsigned long long offset_of(const Random& of) {
  const std::uint64_t more = of.begun_rows > 1 ? of.begun_rows - 1 : 0;
  return of.position + more * operations::RandomCourse(of).turns_of_cycle();
}

/// Sets a generator to where the operation's numbers begin.
int place(Library& library, void* generator, const Random& of) {
  constexpr int legacy = 103;  // CURAND_ORDERING_PSEUDO_LEGACY. The other generators have one order.
  int status = 0;
  if (is_sobol(of.generator))
    return library.call("curandSetGeneratorOffset", generator, static_cast<unsigned long long>(of.position));
  if (of.generator == RandomGenerator::mrg32k3a_legacy)
    status = library.call("curandSetGeneratorOrdering", generator, legacy);
  if (status == 0)
    status = library.call("curandSetPseudoRandomGeneratorSeed", generator,
                          static_cast<unsigned long long>(of.seed));
  if (status == 0) status = library.call("curandSetGeneratorOffset", generator, offset_of(of));
  return status;
}

bool goes_on(const Random& last, const Random& next) {
  return last.seed == next.seed && last.position == next.position && last.begun_rows == next.begun_rows;
}

}  // namespace

CUresult run(const Execution& x, const Random& of) {
  Library& library = x.libraries.curand;
  auto& own = x.state.random[{x.stream, of.generator, x.captured}];
  int status = 0;
  if (own.handle == nullptr) {
    const Preparation::Scope preparing(x.libraries.preparation);
    status = library.call("curandCreateGenerator", &own.handle, type_of(of.generator));
  }
  if (status == 0) status = library.call("curandSetStream", own.handle, x.stream);
  // Numbers that follow the last ones need nothing: setting makes the library prepare its generator anew.
  if (status == 0 && !(own.placed && goes_on(own.next, of))) {
    own.placed = false;
    status = place(library, own.handle, of);
  }
  if (status == 0) status = generate(library, own.handle, of);
  // What is captured has only been written down: the generator is placed whenever the graph runs.
  own.placed = status == 0 && !x.captured;
  own.next = of;
  operations::advance(own.next);
  return result_of_curand(status);
}

}  // namespace gpupool::worker

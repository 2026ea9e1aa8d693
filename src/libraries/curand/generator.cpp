// Generators: made, ended and set. No message.
#include "libraries/curand/generator.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "libraries/shared/launch.h"
#include "libraries/shared/refusal.h"
#include "libraries/shared/version.h"

using namespace gpupool::curand;

namespace {

constexpr gpupool::libraries::Version version{10, 4, 0};

using gpupool::operations::RandomGenerator;

/// A curandRngType that is carried.
struct Known {
  int type;
  RandomGenerator kind;
};
constexpr Known known[] = {
    {100, RandomGenerator::xorwow},  // the default one
    {101, RandomGenerator::xorwow},  {121, RandomGenerator::mrg32k3a}, {161, RandomGenerator::philox},
    {200, RandomGenerator::sobol32},  // the default one of quasi-random points
    {201, RandomGenerator::sobol32}, {203, RandomGenerator::sobol64},
};
struct Unknown {
  int type;
  const char *name, *reason;
};
constexpr const char* scrambled = "how its words are scrambled is not documented";
constexpr Unknown unknown[] = {
    {141, "MTGP32", "its parameters are a table that is not carried"},
    {142, "MT19937", "in which order its numbers lie is not documented"},
    {202, "scrambled SOBOL32", scrambled},
    {204, "scrambled SOBOL64", scrambled},
};

int create(void** generator, int type, bool on_host) {
  return guarded([&]() -> int {
    if (generator == nullptr) return out_of_range;
    for (const Unknown& other : unknown) {
      if (other.type != type) continue;
      const std::string text = std::string("is not carried: ") + other.reason +
                               "; CURAND_RNG_PSEUDO_DEFAULT, …_MRG32K3A and …_PHILOX4_32_10, and "
                               "CURAND_RNG_QUASI_SOBOL32 and …_SOBOL64 are carried";
      gpupool::libraries::say_once(other.name, text.c_str());
    }
    const auto* const carried = std::ranges::find(known, type, &Known::type);
    if (carried == std::end(known)) return type_error;
    if (!on_host) {
      if (const Status bad = status_of(gpupool::libraries::prepare()); bad != success) return bad;
    }
    auto* const made = new Generator;
    made->on_host = on_host;
    made->kind = carried->kind;
    *generator = made;
    return success;
  });
}

template <class F>
int with_generator(void* generator, F f) {
  Generator* const found = find(generator);
  return found == nullptr ? not_initialized : static_cast<int>(f(*found));
}

}  // namespace

GPUPOOL_LIBRARY_EXPORT int curandCreateGenerator(void** generator, int type) {
  return create(generator, type, false);
}
GPUPOOL_LIBRARY_EXPORT int curandCreateGeneratorHost(void** generator, int type) {
  return create(generator, type, true);
}
GPUPOOL_LIBRARY_EXPORT int curandDestroyGenerator(void* generator) {
  return with_generator(generator, [](Generator& found) {
    found.alive = 0;
    delete &found;
    return success;
  });
}
GPUPOOL_LIBRARY_EXPORT int curandSetStream(void* generator, CUstream stream) {
  return with_generator(generator, [&](Generator& found) {
    found.stream = stream;
    return success;
  });
}
GPUPOOL_LIBRARY_EXPORT int curandSetPseudoRandomGeneratorSeed(void* generator, unsigned long long seed) {
  return with_generator(generator, [&](Generator& found) {
    if (is_sobol(found.kind)) return type_error;
    found.seed = seed;
    found.restart();
    return success;
  });
}
GPUPOOL_LIBRARY_EXPORT int curandSetGeneratorOffset(void* generator, unsigned long long offset) {
  return with_generator(generator, [&](Generator& found) {
    found.offset = offset;
    found.restart();
    return success;
  });
}
/// The best order and the default one are those of NVIDIA's host generators: the order of old, but for
/// MRG32k3a. Subsequences that are seeded one by one begin with states that are documented nowhere.
GPUPOOL_LIBRARY_EXPORT int curandSetGeneratorOrdering(void* generator, int ordering) {
  return with_generator(generator, [&](Generator& found) {
    constexpr int best = 100, by_default = 101, legacy = 103, dynamic = 104, of_points = 201;
    if (is_sobol(found.kind)) return ordering == of_points ? success : out_of_range;
    if (ordering != best && ordering != by_default && ordering != legacy &&
        (ordering != dynamic || found.on_host))
      return out_of_range;
    if (is_mrg32k3a(found.kind))
      found.kind = ordering == legacy ? RandomGenerator::mrg32k3a_legacy : RandomGenerator::mrg32k3a;
    found.restart();
    return success;
  });
}
/// The next point stays the same.
GPUPOOL_LIBRARY_EXPORT int curandSetQuasiRandomGeneratorDimensions(void* generator, unsigned dimensions) {
  return with_generator(generator, [&](Generator& found) {
    if (!is_sobol(found.kind)) return type_error;
    if (dimensions == 1) return success;
    if (dimensions != 0) {
      gpupool::libraries::say_once(
          "curandSetQuasiRandomGeneratorDimensions",
          "points of several dimensions are not carried: their direction numbers are "
          "a table that cannot be computed");
    }
    return out_of_range;
  });
}
/// A state is a position: there is nothing to be prepared.
GPUPOOL_LIBRARY_EXPORT int curandGenerateSeeds(void* generator) {
  return with_generator(generator, [](Generator&) { return success; });
}

GPUPOOL_LIBRARY_EXPORT int curandGetVersion(int* value) {
  return gpupool::libraries::read_version(version, value) ? success : out_of_range;
}
GPUPOOL_LIBRARY_EXPORT int curandGetProperty(int property, int* value) {
  return gpupool::libraries::read_property(version, property, value) ? success : out_of_range;
}

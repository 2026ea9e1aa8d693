// ncclResult_t, and what failed, as an exception that the calls turn into it (nccl.h).
#pragma once

#include <cuda.h>

#include <stdexcept>
#include <string>

#include "libraries/shared/export.h"

namespace gpupool::nccl {

enum Result : int {
  success = 0,
  unhandled_cuda_error = 1,
  system_error = 2,
  internal_error = 3,
  invalid_argument = 4,
  invalid_usage = 5,
  remote_error = 6,
  in_progress = 7,
  results = 9,
};

struct Failure : std::runtime_error {
  Failure(Result why, const std::string& text) : std::runtime_error(text), result(why) {}
  Result result;
};

inline void require(bool holds, const char* text, Result otherwise = invalid_argument) {
  if (!holds) throw Failure(otherwise, text);
}

inline void require_driver(CUresult result, const char* what) {
  if (result != CUDA_SUCCESS)
    throw Failure(unhandled_cuda_error,
                  std::string(what) + ": the driver returned " + std::to_string(static_cast<int>(result)));
}

/// What ncclGetLastError says; of this thread.
void remember_error(const char* text) noexcept;
const char* last_error() noexcept;

/// The result of `body`, which throws Failure or returns nothing.
template <class Body>
int guarded(Body&& body) noexcept {
  return libraries::guarded<int>(system_error, internal_error, [&]() -> int {
    try {
      body();
      return success;
    } catch (const Failure& failure) {
      remember_error(failure.what());
      return failure.result;
    }
  });
}

}  // namespace gpupool::nccl

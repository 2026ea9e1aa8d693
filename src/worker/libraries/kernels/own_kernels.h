// Kernels of our own in one context of a driver.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "worker/driver/driver.h"

namespace gpupool::worker {

/// Used by one thread at a time. The images end with the context: nobody unloads them before.
class OwnKernels {
 public:
  /// Launches kernel `name` with one parameter, a struct, in the current context; `text` is the PTX that has
  /// it, and is loaded when it is needed, also while streams are being captured.
  template <class Parameter>
  CUresult launch(const DriverApi& api, CUstream stream, const std::string& text, const char* name,
                  std::uint64_t threads, const Parameter& parameter) {
    Parameter copy = parameter;
    return launch_with(api, stream, text, name, threads, &copy);
  }

  /// Threads of a block of each kernel.
  static constexpr unsigned block = 256;

 private:
  CUresult launch_with(const DriverApi& api, CUstream stream, const std::string& text, const char* name,
                       std::uint64_t threads, void* parameter);
  CUresult find(const DriverApi& api, const std::string& text, const char* name, CUfunction& kernel);

  std::map<const std::string*, CUmodule> images_;  // by their text, of which there is one
  std::map<std::string, CUfunction, std::less<>> kernels_;
};

}  // namespace gpupool::worker

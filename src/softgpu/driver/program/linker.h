// cuLink*: collects PTX and makes one image of it.
#pragma once

#include <string>
#include <vector>

#include "softgpu/driver/base/cuda_api.h"
#include "softgpu/driver/program/image_source.h"
#include "softgpu/driver/program/jit_options.h"

namespace softgpu::driver {

class Linker {
 public:
  Linker(int capability, const JitOptions& options) : capability_(capability), options_(options) {}

  // Throws Error(NO_BINARY_FOR_GPU) for machine code without PTX. Archives of CUDA's device runtime add
  // nothing: the engine has those functions itself.
  void add(CUjitInputType type, const std::string& bytes, const std::string& name);
  // The linked image; lives as long as this object. Throws Error(INVALID_PTX), with the reason in the error
  // log.
  const std::string& complete();

 private:
  void take(CUjitInputType type, const std::string& bytes, const std::string& name);

  const int capability_;
  const JitOptions options_;
  ImageSource source_;
  std::string image_;
};

}  // namespace softgpu::driver

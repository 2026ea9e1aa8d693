#include "softgpu/driver/program/linker.h"

#include "softgpu/driver/base/error.h"
#include "softgpu/driver/program/loader.h"

namespace softgpu::driver {
namespace {

// libcudadevrt.a, by what it defines: programs pass it under any path or name.
bool is_device_runtime(const std::string& bytes, const std::string& name) {
  return name.find("cudadevrt") != std::string::npos ||
         bytes.find("cudaCGGetIntrinsicHandle") != std::string::npos;
}

}  // namespace

void Linker::add(CUjitInputType type, const std::string& bytes, const std::string& name) {
  telling(options_, [&] { take(type, bytes, name); });
}

void Linker::take(CUjitInputType type, const std::string& bytes, const std::string& name) {
  switch (type) {
    case CU_JIT_INPUT_PTX:
    case CU_JIT_INPUT_CUBIN:  // what cuLinkComplete gave may come back as "cubin"
    case CU_JIT_INPUT_FATBINARY:
      for (std::string& text : read_image(bytes.data(), bytes.size(), capability_).texts) {
        source_.texts.push_back(std::move(text));
      }
      return;
    case CU_JIT_INPUT_OBJECT:
    case CU_JIT_INPUT_LIBRARY: {
      if (is_device_runtime(bytes, name)) return;
      auto found = embedded_ptx(bytes, capability_);
      if (found.empty()) {
        fail(CUDA_ERROR_NO_BINARY_FOR_GPU, name + " holds no PTX for this device");
      }
      for (std::string& text : found) source_.texts.push_back(std::move(text));
      return;
    }
    default:
      fail(CUDA_ERROR_JIT_COMPILER_NOT_FOUND, name + ": this kind of input needs NVIDIA's compiler");
  }
}

const std::string& Linker::complete() {
  require(!source_.texts.empty());
  source_.max_registers = options_.max_registers();
  source_.fuses_products = options_.fuses_products();
  telling(options_, [&] { compile_program(source_, capability_, options_); });
  image_ = pack_sources(source_);
  return image_;
}

}  // namespace softgpu::driver

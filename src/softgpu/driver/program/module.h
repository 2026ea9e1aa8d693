// Modules: a program placed in one context; functions: its kernels, with the attributes a program may set.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "softgpu/driver/base/cuda_api.h"
#include "softgpu/driver/described/occupancy.h"
#include "softgpu/driver/program/loader.h"

namespace softgpu::driver {

class Context;
class Module;

class Function {
 public:
  Function(Module& module, std::size_t index) : module_(module), index_(index) {}

  Module& module() const { return module_; }
  std::size_t index() const { return index_; }
  const softgpu::KernelInfo& info() const;
  // Per thread: the engine's estimate, within the limit the program asked for.
  int registers() const;
  KernelNeeds needs() const;
  // Dynamic shared memory a launch may ask for: 48 KiB less the static part, or what the program opted in to.
  std::size_t dynamic_shared_limit() const;

  // Throw Error(INVALID_VALUE) for an attribute that does not exist, or cannot be set to that value.
  int attribute(CUfunction_attribute attribute) const;
  void set_attribute(CUfunction_attribute attribute, int value);

 private:
  Module& module_;
  const std::size_t index_;
  std::atomic<int> dynamic_shared_optin_{-1};
  std::atomic<int> carveout_{-1};
  std::atomic<int> non_portable_cluster_{0};
  std::atomic<int> cluster_policy_{0};
};

class Module : public std::enable_shared_from_this<Module> {
 public:
  // Places the program's variables in the context's device memory. Throws Error(OUT_OF_MEMORY).
  static std::shared_ptr<Module> create(std::shared_ptr<Context> context, LoadedProgram program);
  ~Module();

  Context& context() const { return *context_; }
  const LoadedProgram& program() const { return program_; }
  const softgpu::Image& image() const { return *image_; }
  const std::vector<std::shared_ptr<Function>>& functions() const { return functions_; }
  std::shared_ptr<Function> function(std::string_view name) const;  // null if there is none
  std::optional<softgpu::GlobalAddress> global(std::string_view name) const { return image_->global(name); }

 private:
  Module(std::shared_ptr<Context> context, LoadedProgram program);

  const std::shared_ptr<Context> context_;
  const LoadedProgram program_;
  std::unique_ptr<softgpu::Image> image_;
  std::vector<std::shared_ptr<Function>> functions_;
};

}  // namespace softgpu::driver

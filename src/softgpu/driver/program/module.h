// Modules: a program placed in one context; functions: its kernels, with the attributes a program may set.
#pragma once

#include <atomic>
#include <limits>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "softgpu/driver/base/cuda_api.h"
#include "softgpu/driver/described/occupancy.h"
#include "softgpu/driver/program/loader.h"

namespace softgpu::driver {

class Context;
class Device;
class Module;

// Who has set an attribute: what was set for the function holds against what was set for the library's
// kernel.
enum class SetFor { function, kernel };

// Throws Error(INVALID_VALUE) for an attribute that does not exist, or cannot be set to that value.
void require_settable(CUfunction_attribute attribute, int value, const softgpu::KernelInfo& kernel,
                      const Device& device);

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
  int attribute(CUfunction_attribute attribute, SetFor whom = SetFor::function) const;
  void set_attribute(CUfunction_attribute attribute, int value, SetFor whom = SetFor::function);

 private:
  static constexpr int not_set = std::numeric_limits<int>::min();
  struct Setting {
    std::atomic<int> of_function{not_set}, of_kernel{not_set};
    int value(SetFor whom, int otherwise) const;
    void set(SetFor whom, int value) { (whom == SetFor::function ? of_function : of_kernel) = value; }
  };
  std::size_t dynamic_shared_limit(SetFor whom) const;

  Module& module_;
  const std::size_t index_;
  Setting dynamic_shared_optin_, carveout_, non_portable_cluster_, cluster_policy_;
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

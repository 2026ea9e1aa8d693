// Libraries: programs that no context owns. Each context that uses one gets a module made from it on first
// use.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "softgpu/driver/base/cuda_api.h"
#include "softgpu/driver/program/module.h"

namespace softgpu::driver {

class Library;

// A kernel of a library; becomes a function in the context that launches it.
class Kernel {
 public:
  Kernel(Library& library, std::size_t index) : library_(library), index_(index) {}

  Library& library() const { return library_; }
  const softgpu::KernelInfo& info() const;
  std::shared_ptr<Function> function_in(const std::shared_ptr<Context>& context) const;

  // Applies to all devices' functions made from now on and so far.
  void set_attribute(CUfunction_attribute attribute, int value, const std::shared_ptr<Context>& context);

 private:
  friend class Library;
  Library& library_;
  const std::size_t index_;
  mutable gpupool::Mutex mutex_;
  std::map<int, int> attributes_ GUARDED_BY(mutex_);  // set by the program, applied to every new function
};

class Library {
 public:
  explicit Library(LoadedProgram program);
  ~Library();
  static std::shared_ptr<Library> create(LoadedProgram program);

  const LoadedProgram& program() const { return program_; }
  const std::vector<std::shared_ptr<Kernel>>& kernels() const { return kernels_; }
  std::shared_ptr<Kernel> kernel(std::string_view name) const;  // null if there is none
  std::shared_ptr<Module> module_in(const std::shared_ptr<Context>& context);
  // The modules made so far, which end with the library.
  std::vector<std::shared_ptr<Module>> take_modules();
  // The context ends: its module goes.
  void forget(const Context& context);

 private:
  const LoadedProgram program_;
  std::vector<std::shared_ptr<Kernel>> kernels_;
  gpupool::Mutex mutex_;
  std::map<const Context*, std::shared_ptr<Module>> modules_ GUARDED_BY(mutex_);
};

}  // namespace softgpu::driver

#include "softgpu/driver/program/library.h"

#include "base/mutex.h"
#include "softgpu/driver/base/registry.h"
#include "softgpu/driver/stream/context.h"

namespace softgpu::driver {

const softgpu::KernelInfo& Kernel::info() const {
  return library_.program().program->kernels()[index_];
}

std::shared_ptr<Function> Kernel::function_in(const std::shared_ptr<Context>& context) const {
  return library_.module_in(context)->functions()[index_];
}

void Kernel::set_attribute(CUfunction_attribute attribute, int value,
                           const std::shared_ptr<Context>& context) {
  function_in(context)->set_attribute(attribute, value);  // validates
  const gpupool::MutexLock lock(mutex_);
  attributes_[attribute] = value;
}

Library::Library(LoadedProgram program) : program_(std::move(program)) {}

Library::~Library() = default;

std::shared_ptr<Library> Library::create(LoadedProgram program) {
  auto library = std::make_shared<Library>(std::move(program));
  for (std::size_t index = 0; index < library->program_.program->kernels().size(); ++index) {
    library->kernels_.push_back(std::make_shared<Kernel>(*library, index));
    registry<Kernel>().add<CUkernel>(library->kernels_.back());
  }
  return library;
}

std::shared_ptr<Kernel> Library::kernel(std::string_view name) const {
  const auto index = program_.program->find_kernel(name);
  return index ? kernels_[*index] : nullptr;
}

std::shared_ptr<Module> Library::module_in(const std::shared_ptr<Context>& context) {
  const gpupool::MutexLock lock(mutex_);
  std::shared_ptr<Module>& module = modules_[context.get()];
  if (!module) {
    module = Module::create(context, program_);
    registry<Module>().add<CUmodule>(module);
    for (const auto& kernel : kernels_) {
      const gpupool::MutexLock kernel_lock(kernel->mutex_);
      for (const auto& [attribute, value] : kernel->attributes_) {
        module->functions()[kernel->index_]->set_attribute(static_cast<CUfunction_attribute>(attribute),
                                                           value);
      }
    }
  }
  return module;
}

std::vector<std::shared_ptr<Module>> Library::take_modules() {
  const gpupool::MutexLock lock(mutex_);
  std::vector<std::shared_ptr<Module>> taken;
  for (auto& [context, module] : modules_) taken.push_back(std::move(module));
  modules_.clear();
  return taken;
}

void Library::forget(const Context& context) {
  std::shared_ptr<Module> gone;  // ends outside the lock
  const gpupool::MutexLock lock(mutex_);
  if (const auto found = modules_.find(&context); found != modules_.end()) {
    gone = std::move(found->second);
    modules_.erase(found);
  }
}

}  // namespace softgpu::driver

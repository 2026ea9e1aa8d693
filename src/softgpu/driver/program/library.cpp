#include "softgpu/driver/program/library.h"

#include <set>
#include <variant>

#include "softgpu/driver/base/error.h"
#include "softgpu/driver/base/registry.h"
#include "softgpu/driver/program/packed_program.h"
#include "softgpu/driver/stream/context.h"

namespace softgpu::driver {

const LoadedProgram& LibraryPart::program() {
  compiled_.run([&] {
    if (compile_) program_ = compile_();
  });
  return program_;
}

std::shared_ptr<Module> LibraryPart::module_in(const std::shared_ptr<Context>& context,
                                               const std::function<void(Module&)>& prepare) {
  const LoadedProgram& compiled = program();
  const gpupool::MutexLock lock(mutex_);
  std::shared_ptr<Module>& module = modules_[context.get()];
  if (!module) {
    auto made = Module::create(context, compiled);
    registry<Module>().add<CUmodule>(made);
    prepare(*made);
    module = std::move(made);
  }
  return module;
}

void LibraryPart::for_each_module(const std::function<void(Module&)>& use) {
  const gpupool::MutexLock lock(mutex_);
  for (const auto& [context, module] : modules_) {
    if (module) use(*module);
  }
}

void LibraryPart::take_modules(std::vector<std::shared_ptr<Module>>& into) {
  const gpupool::MutexLock lock(mutex_);
  for (auto& [context, module] : modules_) {
    if (module) into.push_back(std::move(module));
  }
  modules_.clear();
}

void LibraryPart::forget(const Context& context) {
  std::shared_ptr<Module> gone;  // ends outside the lock
  const gpupool::MutexLock lock(mutex_);
  if (const auto found = modules_.find(&context); found != modules_.end()) {
    gone = std::move(found->second);
    modules_.erase(found);
  }
}

std::size_t Kernel::index() const {
  find_.run([&] {
    const auto found = part_.program().program->find_kernel(name_);
    require(found.has_value(), CUDA_ERROR_NO_BINARY_FOR_GPU);
    index_ = *found;
  });
  return index_;
}

const softgpu::KernelInfo& Kernel::info() const {
  const std::size_t found = index();
  return part_.program().program->kernels()[found];
}

std::shared_ptr<Function> Kernel::function_in(const std::shared_ptr<Context>& context) const {
  const std::size_t found = index();
  return library_.module_of(part_, context)->functions()[found];
}

void Kernel::set_attribute(CUfunction_attribute attribute, int value, const Device& device) {
  require_settable(attribute, value, info(), device);
  {
    const gpupool::MutexLock lock(mutex_);
    attributes_[device.ordinal()][attribute] = value;
  }
  // Not under the lock, which a module that is being made takes while the part's is held.
  part_.for_each_module([&](const Module& module) {
    if (&module.context().device() == &device)
      module.functions()[index()]->set_attribute(attribute, value, SetFor::kernel);
  });
}

std::optional<int> Kernel::set_value(CUfunction_attribute attribute, int ordinal) const {
  const gpupool::MutexLock lock(mutex_);
  const auto device = attributes_.find(ordinal);
  if (device == attributes_.end()) return std::nullopt;
  const auto found = device->second.find(attribute);
  return found == device->second.end() ? std::nullopt : std::optional(found->second);
}

void Kernel::apply_attributes(Module& module) const {
  const gpupool::MutexLock lock(mutex_);
  const auto device = attributes_.find(module.context().device().ordinal());
  if (device == attributes_.end()) return;
  const auto function = module.function(name_);
  for (const auto& [attribute, value] : device->second) {
    function->set_attribute(static_cast<CUfunction_attribute>(attribute), value, SetFor::kernel);
  }
}

std::shared_ptr<Library> Library::load(const void* image, std::optional<std::size_t> size, int capability,
                                       const JitOptions& options) {
  auto library = std::make_shared<Library>();
  telling(options, [&] {
    auto read = read_or_find(image, size, capability);
    if (const auto* const source = std::get_if<ImageSource>(&read)) {
      library->add(compile_program(*source, capability, options));
    } else {
      library->add(std::get<softgpu::packs::PackedImage>(std::move(read)), capability);
    }
  });
  for (const auto& kernel : library->kernels_) registry<Kernel>().add<CUkernel>(kernel);
  return library;
}

void Library::add(LoadedProgram program) {
  LibraryPart& part = *parts_.emplace_back(std::make_unique<LibraryPart>(std::move(program)));
  for (const softgpu::KernelInfo& kernel : part.program().program->kernels()) add_kernel(part, kernel.name);
}

void Library::add(softgpu::packs::PackedImage image, int capability) {
  const auto shared = std::make_shared<const softgpu::packs::PackedImage>(std::move(image));
  std::set<std::string, std::less<>> missing;
  for (const auto& kernel : shared->machine_code.kernels) missing.insert(kernel.name);
  if (shared->kernels) add_packed(shared, capability, missing);
  if (missing.empty()) return;
  if (auto made = stand_ins(*shared, missing, capability)) {
    add(std::move(*made));
  } else if (!shared->kernels) {
    fail(CUDA_ERROR_NO_BINARY_FOR_GPU, shared->problem);
  }
}

void Library::add_packed(const std::shared_ptr<const softgpu::packs::PackedImage>& image, int capability,
                         std::set<std::string, std::less<>>& missing) {
  const auto& file = image->kernels;
  for (std::size_t frame = 0; frame < file->frames().size(); ++frame) {
    parts_.push_back(std::make_unique<LibraryPart>([=] {
      LoadedProgram compiled;
      telling(JitOptions(), [&] { compiled = compile_packed(*image, capability, frame); });
      return compiled;
    }));
  }
  // What the machine code does not have, the program cannot mean.
  std::set<std::string_view> variables;
  for (const auto& variable : image->machine_code.variables) variables.insert(variable.name);
  for (const softgpu::packs::PackedName& each : file->names()) {
    LibraryPart& part = *parts_[each.frame];
    if (missing.erase(each.name) != 0) add_kernel(part, each.name);
    if (variables.contains(each.name)) variables_.emplace(each.name, &part);
  }
}

void Library::add_kernel(LibraryPart& part, const std::string& name) {
  const auto& made = kernels_.emplace_back(std::make_shared<Kernel>(*this, part, name));
  by_name_.emplace(made->name(), kernels_.size() - 1);
}

std::shared_ptr<Kernel> Library::kernel(std::string_view name) const {
  if (const auto found = by_name_.find(name); found != by_name_.end()) return kernels_[found->second];
  fail(CUDA_ERROR_NOT_FOUND);
}

std::shared_ptr<Module> Library::module_of(LibraryPart& part, const std::shared_ptr<Context>& context) {
  return part.module_in(context, [&](Module& made) {
    for (const auto& kernel : kernels_) {
      if (&kernel->part_ == &part) kernel->apply_attributes(made);
    }
  });
}

std::shared_ptr<Module> Library::module_in(const std::shared_ptr<Context>& context) {
  require(parts_.size() == 1, CUDA_ERROR_NOT_SUPPORTED);
  return module_of(*parts_.front(), context);
}

std::optional<softgpu::GlobalAddress> Library::global(const std::shared_ptr<Context>& context,
                                                      const char* name) {
  if (parts_.size() == 1) return module_in(context)->global(name);
  const auto found = variables_.find(name);
  return found == variables_.end() ? std::nullopt : module_of(*found->second, context)->global(name);
}

std::vector<std::shared_ptr<Module>> Library::take_modules() {
  std::vector<std::shared_ptr<Module>> taken;
  for (const auto& part : parts_) part->take_modules(taken);
  return taken;
}

void Library::forget(const Context& context) {
  for (const auto& part : parts_) part->forget(context);
}

}  // namespace softgpu::driver

// Libraries: programs that no context owns. Each context that uses one gets a module made from it on first
// use.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "base/once.h"
#include "softgpu/driver/base/cuda_api.h"
#include "softgpu/driver/program/module.h"
#include "softgpu/packs/pack_folder.h"

namespace softgpu::driver {

class Library;

// What is compiled together and gets one module in each context: all of an ordinary image; of a kernel pack
// what shares a frame, which is compiled when a program first uses a kernel of it.
class LibraryPart {
 public:
  using Compile = std::function<LoadedProgram()>;

  explicit LibraryPart(LoadedProgram program) : program_(std::move(program)) {}
  explicit LibraryPart(Compile compile) : compile_(std::move(compile)) {}

  // Throws Error.
  const LoadedProgram& program();
  // `prepare` is called with a module that was just made.
  std::shared_ptr<Module> module_in(const std::shared_ptr<Context>& context,
                                    const std::function<void(Module&)>& prepare);
  void for_each_module(const std::function<void(Module&)>& use);
  void take_modules(std::vector<std::shared_ptr<Module>>& into);
  void forget(const Context& context);

 private:
  const Compile compile_;  // empty for a program that was compiled before
  gpupool::Once compiled_;
  LoadedProgram program_;  // written by compiled_
  gpupool::Mutex mutex_;
  std::map<const Context*, std::shared_ptr<Module>> modules_ GUARDED_BY(mutex_);
};

// A kernel of a library; becomes a function in the context that launches it.
class Kernel {
 public:
  Kernel(Library& library, LibraryPart& part, std::string name)
      : library_(library), part_(part), name_(std::move(name)) {}

  Library& library() const { return library_; }
  const std::string& name() const { return name_; }
  // These compile the kernel if that was not done yet. Throw Error.
  const softgpu::KernelInfo& info() const;
  std::shared_ptr<Function> function_in(const std::shared_ptr<Context>& context) const;

  // Applies to all functions of the device, made from now on and so far.
  void set_attribute(CUfunction_attribute attribute, int value, const Device& device);
  // What was set so.
  std::optional<int> set_value(CUfunction_attribute attribute, int ordinal) const;

 private:
  friend class Library;
  std::size_t index() const;
  void apply_attributes(Module& module) const;

  Library& library_;
  LibraryPart& part_;
  const std::string name_;
  mutable gpupool::Once find_;
  mutable std::size_t index_ = 0;  // in the part's program, once found
  mutable gpupool::Mutex mutex_;
  // Set by the program, by the device's ordinal; applied to every new function.
  std::map<int, std::map<int, int>> attributes_ GUARDED_BY(mutex_);
};

class Library {
 public:
  // Throws Error as read_image and compile_program do.
  static std::shared_ptr<Library> load(const void* image, std::optional<std::size_t> size, int capability,
                                       const JitOptions& options);

  const std::vector<std::shared_ptr<Kernel>>& kernels() const { return kernels_; }
  // Throws Error(NOT_FOUND). What the image has as machine code alone can be asked about, not launched.
  std::shared_ptr<Kernel> kernel(std::string_view name) const;
  // Of a library that has one part only. Throws Error(NOT_SUPPORTED).
  std::shared_ptr<Module> module_in(const std::shared_ptr<Context>& context);
  // Nothing if no part of the library has the variable.
  std::optional<softgpu::GlobalAddress> global(const std::shared_ptr<Context>& context, const char* name);
  // The modules made so far, which end with the library.
  std::vector<std::shared_ptr<Module>> take_modules();
  // The context ends: its modules go.
  void forget(const Context& context);

 private:
  friend class Kernel;
  void add(LoadedProgram program);
  void add(softgpu::packs::PackedImage image, int capability);
  // Takes from `missing` the kernels that the pack has.
  void add_packed(const std::shared_ptr<const softgpu::packs::PackedImage>& image, int capability,
                  std::set<std::string, std::less<>>& missing);
  void add_kernel(LibraryPart& part, const std::string& name);
  std::shared_ptr<Module> module_of(LibraryPart& part, const std::shared_ptr<Context>& context);

  std::vector<std::unique_ptr<LibraryPart>> parts_;
  std::vector<std::shared_ptr<Kernel>> kernels_;
  std::unordered_map<std::string_view, std::size_t> by_name_;   // of kernels_, by their own names
  std::map<std::string, LibraryPart*, std::less<>> variables_;  // of libraries with several parts
};

}  // namespace softgpu::driver

// Libraries and kernels: code that is loaded once and used from any context.
#include "softgpu/driver/program/library.h"
#include "base/mutex.h"

#include "softgpu/driver/api/entry.h"
#include "softgpu/driver/program/image_source.h"
#include "softgpu/driver/stream/context.h"
#include "softgpu/driver/stream/current_context.h"

using namespace softgpu::driver;

namespace {

void load(CUlibrary* handle, const void* image, std::optional<std::size_t> size, const JitOptions& options) {
  require(handle != nullptr);
  const int capability = Driver::get().settings.capability();
  *handle = registry<Library>().add<CUlibrary>(Library::load(image, size, capability, options));
}

// Nothing of them changes anything here. Only CU_LIBRARY_BINARY_IS_PRESERVED has no value.
void check_options(const CUlibraryOption* options, void* const* values, unsigned count) {
  require(count == 0 || options != nullptr);
  for (unsigned i = 0; i < count; ++i) {
    require(options[i] >= 0 && options[i] < CU_LIBRARY_NUM_OPTIONS);
    require(options[i] == CU_LIBRARY_BINARY_IS_PRESERVED || values != nullptr);
  }
}

std::shared_ptr<Library> library_of(CUlibrary handle) {
  return registry<Library>().get(handle);
}
std::shared_ptr<Kernel> kernel_of(CUkernel handle) {
  return registry<Kernel>().get(handle);
}

// Kernel attributes name a device; its primary context is where the answer comes from unless the current one
// is on it.
std::shared_ptr<Context> context_on(CUdevice ordinal) {
  auto context = current_context();
  if (context->device().ordinal() == ordinal) return context;
  Device& device = Driver::get().device(ordinal);
  const gpupool::MutexLock lock(device.primary_mutex);
  require(device.primary != nullptr, CUDA_ERROR_INVALID_CONTEXT);
  return device.primary;
}

}  // namespace

CUresult cuLibraryLoadData(CUlibrary* library, const void* code, CUjit_option* jitOptions,
                           void** jitOptionsValues, unsigned int numJitOptions,
                           CUlibraryOption* libraryOptions, void** libraryOptionValues,
                           unsigned int numLibraryOptions) {
  return entry([&] {
    check_options(libraryOptions, libraryOptionValues, numLibraryOptions);
    load(library, code, std::nullopt, JitOptions(numJitOptions, jitOptions, jitOptionsValues));
  });
}

CUresult cuLibraryLoadFromFile(CUlibrary* library, const char* fileName, CUjit_option* jitOptions,
                               void** jitOptionsValues, unsigned int numJitOptions,
                               CUlibraryOption* libraryOptions, void** libraryOptionValues,
                               unsigned int numLibraryOptions) {
  return entry([&] {
    check_options(libraryOptions, libraryOptionValues, numLibraryOptions);
    std::string bytes = read_file(fileName);
    bytes.push_back('\0');
    load(library, bytes.data(), bytes.size(), JitOptions(numJitOptions, jitOptions, jitOptionsValues));
  });
}

CUresult cuLibraryUnload(CUlibrary library) {
  return entry([&] {
    const auto gone = registry<Library>().take(library);
    registry<Kernel>().take_if([&](const Kernel& kernel) { return &kernel.library() == gone.get(); });
    for (const auto& module : gone->take_modules()) {
      registry<Function>().take_if(
          [&](const Function& function) { return &function.module() == module.get(); });
      registry<Module>().take_if([&](const Module& other) { return &other == module.get(); });
    }
  });
}

CUresult cuLibraryGetKernel(CUkernel* pKernel, CUlibrary library, const char* name) {
  return entry([&] {
    require(pKernel && name);
    *pKernel = reinterpret_cast<CUkernel>(library_of(library)->kernel(name).get());
  });
}

CUresult cuLibraryGetKernelCount(unsigned int* count, CUlibrary lib) {
  return entry([&] {
    require(count != nullptr);
    *count = static_cast<unsigned>(library_of(lib)->kernels().size());
  });
}

CUresult cuLibraryEnumerateKernels(CUkernel* kernels, unsigned int numKernels, CUlibrary lib) {
  return entry([&] {
    const auto library = library_of(lib);
    require(kernels != nullptr || numKernels == 0);
    for (std::size_t i = 0; i < numKernels && i < library->kernels().size(); ++i) {
      kernels[i] = reinterpret_cast<CUkernel>(library->kernels()[i].get());
    }
  });
}

CUresult cuLibraryGetModule(CUmodule* pMod, CUlibrary library) {
  return entry([&] {
    require(pMod != nullptr);
    *pMod = reinterpret_cast<CUmodule>(library_of(library)->module_in(current_context()).get());
  });
}

CUresult cuLibraryGetGlobal(CUdeviceptr* dptr, size_t* bytes, CUlibrary library, const char* name) {
  return entry([&] {
    require(name != nullptr && (dptr || bytes));
    const auto global = library_of(library)->global(current_context(), name);
    require(global.has_value(), CUDA_ERROR_NOT_FOUND);
    if (dptr) *dptr = global->address;
    if (bytes) *bytes = global->size;
  });
}

CUresult cuLibraryGetManaged(CUdeviceptr*, size_t*, CUlibrary library, const char* name) {
  return entry([&] {
    require(name != nullptr);
    library_of(library);
    fail(CUDA_ERROR_NOT_FOUND);  // PTX variables are never managed here
  });
}

CUresult cuKernelGetFunction(CUfunction* pFunc, CUkernel kernel) {
  return entry([&] {
    require(pFunc != nullptr);
    *pFunc = reinterpret_cast<CUfunction>(kernel_of(kernel)->function_in(current_context()).get());
  });
}

CUresult cuKernelGetLibrary(CUlibrary* pLib, CUkernel kernel) {
  return entry([&] {
    require(pLib != nullptr);
    *pLib = reinterpret_cast<CUlibrary>(&kernel_of(kernel)->library());
  });
}

CUresult cuKernelGetAttribute(int* pi, CUfunction_attribute attrib, CUkernel kernel, CUdevice dev) {
  return entry([&] {
    require(pi != nullptr);
    const auto found = kernel_of(kernel);
    const auto set = found->set_value(attrib, dev);
    *pi = set ? *set : found->function_in(context_on(dev))->attribute(attrib, SetFor::kernel);
  });
}

CUresult cuKernelSetAttribute(CUfunction_attribute attrib, int val, CUkernel kernel, CUdevice dev) {
  return entry([&] { kernel_of(kernel)->set_attribute(attrib, val, Driver::get().device(dev)); });
}

CUresult cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache, CUdevice dev) {
  return entry([&] {
    kernel_of(kernel);
    Driver::get().device(dev);
  });
}

CUresult cuKernelGetName(const char** name, CUkernel hfunc) {
  return entry([&] {
    require(name != nullptr);
    *name = kernel_of(hfunc)->name().c_str();
  });
}

CUresult cuKernelGetParamInfo(CUkernel kernel, size_t paramIndex, size_t* paramOffset, size_t* paramSize) {
  return entry([&] {
    require(paramOffset != nullptr);
    const auto found = kernel_of(kernel);
    const auto& parameters = found->info().parameters;
    require(paramIndex < parameters.size());
    *paramOffset = parameters[paramIndex].offset;
    if (paramSize) *paramSize = parameters[paramIndex].size;
  });
}

CUresult cuKernelGetParamCount(CUkernel kernel, size_t* paramCount) {
  return entry([&] {
    require(paramCount != nullptr);
    *paramCount = kernel_of(kernel)->info().parameters.size();
  });
}

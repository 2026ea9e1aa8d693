// Modules and functions.
#include <cstring>

#include "softgpu/driver/api/entry.h"
#include "softgpu/driver/program/image_source.h"
#include "softgpu/driver/program/launch.h"
#include "softgpu/driver/program/module.h"
#include "softgpu/driver/stream/context.h"
#include "softgpu/driver/stream/current_context.h"

using namespace softgpu::driver;

namespace {

CUresult load(CUmodule* handle, const void* image, std::optional<std::size_t> size,
              const JitOptions& options) {
  require(handle != nullptr);
  auto context = current_context();
  const int capability = context->device().capability();
  auto program = load_program(image, size, capability, options);
  *handle = registry<Module>().add<CUmodule>(Module::create(std::move(context), std::move(program)));
  return CUDA_SUCCESS;
}

std::shared_ptr<Module> module_of(CUmodule handle) {
  return registry<Module>().get(handle);
}

}  // namespace

CUresult cuModuleLoad(CUmodule* module, const char* fname) {
  return entry([&] {
    current_context();
    std::string bytes = read_file(fname);
    bytes.push_back('\0');
    return load(module, bytes.data(), bytes.size(), JitOptions());
  });
}

CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  return entry([&] { return load(module, image, std::nullopt, JitOptions()); });
}

CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned int numOptions,
                            CUjit_option* options, void** optionValues) {
  return entry(
      [&] { return load(module, image, std::nullopt, JitOptions(numOptions, options, optionValues)); });
}

CUresult cuModuleLoadFatBinary(CUmodule* module, const void* fatCubin) {
  return entry([&] { return load(module, fatCubin, std::nullopt, JitOptions()); });
}

CUresult cuModuleUnload(CUmodule hmod) {
  return entry([&] {
    current_context();
    const auto module = registry<Module>().take(hmod);
    registry<Function>().take_if(
        [&](const Function& function) { return &function.module() == module.get(); });
    // Launches that still wait in a stream hold the module until they have run.
  });
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
  return entry([&] {
    require(mode != nullptr);
    *mode = CU_MODULE_EAGER_LOADING;
  });
}

CUresult cuModuleGetFunction(CUfunction* hfunc, CUmodule hmod, const char* name) {
  return entry([&] {
    require(hfunc && name);
    const auto function = module_of(hmod)->function(name);
    require(function != nullptr, CUDA_ERROR_NOT_FOUND);
    *hfunc = reinterpret_cast<CUfunction>(function.get());
  });
}

CUresult cuModuleGetFunctionCount(unsigned int* count, CUmodule mod) {
  return entry([&] {
    require(count != nullptr);
    *count = static_cast<unsigned>(module_of(mod)->functions().size());
  });
}

CUresult cuModuleEnumerateFunctions(CUfunction* functions, unsigned int numFunctions, CUmodule mod) {
  return entry([&] {
    const auto module = module_of(mod);
    require(functions != nullptr || numFunctions == 0);
    for (std::size_t i = 0; i < numFunctions && i < module->functions().size(); ++i) {
      functions[i] = reinterpret_cast<CUfunction>(module->functions()[i].get());
    }
  });
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr* dptr, size_t* bytes, CUmodule hmod, const char* name) {
  return entry([&] {
    require(name != nullptr);
    const auto global = module_of(hmod)->global(name);
    require(global.has_value(), CUDA_ERROR_NOT_FOUND);
    if (dptr) *dptr = global->address;
    if (bytes) *bytes = global->size;
  });
}

CUresult cuFuncGetModule(CUmodule* hmod, CUfunction hfunc) {
  return entry([&] {
    require(hmod != nullptr);
    *hmod = reinterpret_cast<CUmodule>(&resolve_function(hfunc)->module());
  });
}

CUresult cuFuncGetName(const char** name, CUfunction hfunc) {
  return entry([&] {
    require(name != nullptr);
    *name = resolve_function(hfunc)->info().name.c_str();
  });
}

CUresult cuFuncGetAttribute(int* pi, CUfunction_attribute attrib, CUfunction hfunc) {
  return entry([&] {
    require(pi != nullptr);
    *pi = resolve_function(hfunc)->attribute(attrib);
  });
}

CUresult cuFuncSetAttribute(CUfunction hfunc, CUfunction_attribute attrib, int value) {
  return entry([&] { resolve_function(hfunc)->set_attribute(attrib, value); });
}

CUresult cuFuncGetParamInfo(CUfunction func, size_t paramIndex, size_t* paramOffset, size_t* paramSize) {
  return entry([&] {
    require(paramOffset != nullptr);
    const auto function = resolve_function(func);
    const auto& parameters = function->info().parameters;
    require(paramIndex < parameters.size());
    *paramOffset = parameters[paramIndex].offset;
    if (paramSize) *paramSize = parameters[paramIndex].size;
  });
}

CUresult cuFuncGetParamCount(CUfunction func, size_t* paramCount) {
  return entry([&] {
    require(paramCount != nullptr);
    *paramCount = resolve_function(func)->info().parameters.size();
  });
}

CUresult cuFuncIsLoaded(CUfunctionLoadingState* state, CUfunction function) {
  return entry([&] {
    require(state != nullptr);
    resolve_function(function);
    *state = CU_FUNCTION_LOADING_STATE_LOADED;
  });
}

CUresult cuFuncLoad(CUfunction function) {
  return entry([&] { resolve_function(function); });
}

// Cache and bank configurations are hints without effect.
CUresult cuFuncSetCacheConfig(CUfunction hfunc, CUfunc_cache) {
  return entry([&] { resolve_function(hfunc); });
}

CUresult cuFuncSetSharedMemConfig(CUfunction hfunc, CUsharedconfig) {
  return entry([&] { resolve_function(hfunc); });
}

// Modules and libraries.
#include <cuda.h>

#include <algorithm>

#include "base/mutex.h"
#include "client/call/call.h"
#include "client/call/objects.h"
#include "client/call/refuse.h"
#include "client/memory/copy.h"
#include "client/objects/images.h"
#include "generated/client_api.h"

using namespace gpupool;
using namespace gpupool::client;

namespace {

CUresult load_module(CUmodule* module, const void* image, const JitOptionsIn& options) {
  if (!runtime().initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  std::size_t size = 0;
  std::uint64_t handle = 0;
  if (module == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult bad = image_size(image, size); bad != CUDA_SUCCESS) return bad;
  const CUresult result = load_image(image, size, false, options, handle);
  if (result == CUDA_SUCCESS) *module = handle_as<CUmodule>(handle);
  return result;
}

CUresult image_of(std::uint64_t handle, wire::Kind kind, std::shared_ptr<Image>& out) {
  if (!known(kind, handle)) return bad_handle(kind);
  out = find_image(handle);
  return out != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

template <class H>
CUresult enumerate(H* out, unsigned count, std::uint64_t handle, wire::Kind kind) {
  std::shared_ptr<Image> image;
  if (const CUresult bad = image_of(handle, kind, image); bad != CUDA_SUCCESS) return bad;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  count = std::min(count, image->kernel_count());
  for (unsigned n = 0; n < count; ++n) {
    std::uint64_t found = 0;
    if (const CUresult bad = bind_kernel(*image, n, found); bad != CUDA_SUCCESS) return bad;
    out[n] = handle_as<H>(found);
  }
  return CUDA_SUCCESS;
}

CUresult get_global(CUdeviceptr* dptr, size_t* bytes, std::uint64_t handle, wire::Kind kind,
                    const char* name) {
  std::shared_ptr<Image> image;
  if (const CUresult bad = image_of(handle, kind, image); bad != CUDA_SUCCESS) return bad;
  if (name == nullptr || (dptr == nullptr && bytes == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  CUdeviceptr address = 0;
  std::size_t size = 0;
  if (const CUresult bad = find_global(*image, handle, name, address, size); bad != CUDA_SUCCESS) return bad;
  if (dptr != nullptr) *dptr = address;
  if (bytes != nullptr) *bytes = size;
  return CUDA_SUCCESS;
}

}  // namespace

namespace gpupool::client::api {

CUresult cuModuleLoad(CUmodule* module, const char* fname) {
  runtime().begin_if_over();
  if (!runtime().initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  if (module == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::uint64_t handle = 0;
  const CUresult result = load_image_file(fname, false, {}, handle);
  if (result == CUDA_SUCCESS) *module = handle_as<CUmodule>(handle);
  return result;
}

CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  runtime().begin_if_over();
  return load_module(module, image, {});
}
CUresult cuModuleLoadFatBinary(CUmodule* module, const void* fatCubin) {
  runtime().begin_if_over();
  return load_module(module, fatCubin, {});
}
CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned int numOptions,
                            CUjit_option* options, void** optionValues) {
  runtime().begin_if_over();
  return load_module(module, image, {numOptions, options, optionValues});
}

CUresult cuModuleUnload(CUmodule hmod) {
  runtime().begin_if_over();
  std::shared_ptr<Image> image;
  if (const CUresult bad = image_of(raw(hmod), wire::Kind::module, image); bad != CUDA_SUCCESS) return bad;
  // A module of a library lives and dies with the library.
  return image->is_library ? CUDA_ERROR_NOT_PERMITTED : unload_image(raw(hmod));
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
  if (mode == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *mode = CU_MODULE_LAZY_LOADING;
  return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction* hfunc, CUmodule hmod, const char* name) {
  runtime().begin_if_over();
  std::shared_ptr<Image> image;
  if (const CUresult bad = image_of(raw(hmod), wire::Kind::module, image); bad != CUDA_SUCCESS) return bad;
  if (hfunc == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::uint64_t handle = 0;
  CUresult result = find_kernel(*image, name, handle);
  if (result == CUDA_SUCCESS && image->is_library) result = function_of_kernel(handle, handle);
  if (result == CUDA_SUCCESS) *hfunc = handle_as<CUfunction>(handle);
  return result;
}

CUresult cuModuleGetFunctionCount(unsigned int* count, CUmodule mod) {
  std::shared_ptr<Image> image;
  if (const CUresult bad = image_of(raw(mod), wire::Kind::module, image); bad != CUDA_SUCCESS) return bad;
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = image->kernel_count();
  return CUDA_SUCCESS;
}

CUresult cuModuleEnumerateFunctions(CUfunction* functions, unsigned int numFunctions, CUmodule mod) {
  return enumerate(functions, numFunctions, raw(mod), wire::Kind::module);
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr* dptr, size_t* bytes, CUmodule hmod, const char* name) {
  runtime().begin_if_over();
  return get_global(dptr, bytes, raw(hmod), wire::Kind::module, name);
}

CUresult cuLibraryLoadData(CUlibrary* library, const void* code, CUjit_option* jitOptions,
                           void** jitOptionsValues, unsigned int numJitOptions, CUlibraryOption*, void**,
                           unsigned int) {
  runtime().begin_if_over();
  if (!runtime().initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  std::size_t size = 0;
  std::uint64_t handle = 0;
  if (library == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult bad = image_size(code, size); bad != CUDA_SUCCESS) return bad;
  const CUresult result = load_image(code, size, true, {numJitOptions, jitOptions, jitOptionsValues}, handle);
  if (result == CUDA_SUCCESS) *library = handle_as<CUlibrary>(handle);
  return result;
}

CUresult cuLibraryLoadFromFile(CUlibrary* library, const char* fileName, CUjit_option* jitOptions,
                               void** jitOptionsValues, unsigned int numJitOptions, CUlibraryOption*, void**,
                               unsigned int) {
  if (!runtime().initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  if (library == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::uint64_t handle = 0;
  const CUresult result =
      load_image_file(fileName, true, {numJitOptions, jitOptions, jitOptionsValues}, handle);
  if (result == CUDA_SUCCESS) *library = handle_as<CUlibrary>(handle);
  return result;
}

CUresult cuLibraryUnload(CUlibrary library) {
  runtime().begin_if_over();
  return known(wire::Kind::library, library) ? unload_image(raw(library)) : bad_handle(wire::Kind::library);
}

CUresult cuLibraryGetKernel(CUkernel* pKernel, CUlibrary library, const char* name) {
  runtime().begin_if_over();
  std::shared_ptr<Image> image;
  if (const CUresult bad = image_of(raw(library), wire::Kind::library, image); bad != CUDA_SUCCESS)
    return bad;
  if (pKernel == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::uint64_t handle = 0;
  const CUresult result = find_kernel(*image, name, handle);
  if (result == CUDA_SUCCESS) *pKernel = handle_as<CUkernel>(handle);
  return result;
}

CUresult cuLibraryGetKernelCount(unsigned int* count, CUlibrary lib) {
  std::shared_ptr<Image> image;
  if (const CUresult bad = image_of(raw(lib), wire::Kind::library, image); bad != CUDA_SUCCESS) return bad;
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = image->kernel_count();
  return CUDA_SUCCESS;
}

CUresult cuLibraryEnumerateKernels(CUkernel* kernels, unsigned int numKernels, CUlibrary lib) {
  return enumerate(kernels, numKernels, raw(lib), wire::Kind::library);
}

CUresult cuLibraryGetModule(CUmodule* pMod, CUlibrary library) {
  runtime().begin_if_over();
  std::shared_ptr<Image> image;
  if (const CUresult bad = image_of(raw(library), wire::Kind::library, image); bad != CUDA_SUCCESS)
    return bad;
  if (pMod == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::uint64_t context = 0;
  if (const CUresult bad = in_current_context(context); bad != CUDA_SUCCESS) return bad;
  const MutexLock lock(image->mutex);
  std::uint64_t& made_before = image->modules[context];
  if (made_before == 0) {
    std::shared_ptr<Image>* slot = nullptr;
    const std::uint64_t handle = tables().modules.mint(slot);
    if (handle == 0) return CUDA_ERROR_OUT_OF_MEMORY;
    if (const CUresult bad = bind_module_of_library(*image, handle, context); bad != CUDA_SUCCESS) {
      tables().modules.drop(handle);
      return bad;
    }
    *slot = image;
    made_before = handle;
  }
  *pMod = handle_as<CUmodule>(made_before);
  return CUDA_SUCCESS;
}

// The driver's address: kernels and copies use it, the host does not.
CUresult cuLibraryGetManaged(CUdeviceptr* dptr, size_t* bytes, CUlibrary library, const char* name) {
  runtime().begin_if_over();
  std::shared_ptr<Image> image;
  if (const CUresult bad = image_of(raw(library), wire::Kind::library, image); bad != CUDA_SUCCESS)
    return bad;
  if (name == nullptr || (dptr == nullptr && bytes == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  messages::cuLibraryGetManaged m;
  m.library = raw(library);
  m.name = text(name);
  replies::cuLibraryGetManaged reply;
  if (const CUresult bad = ask(m, reply); bad != CUDA_SUCCESS) return bad;
  {
    const Global global{reply.dptr, reply.bytes, worker_of_context(current_context()).first_device};
    const MutexLock lock(image->mutex);
    image->managed.insert(global);
    remember_global(global);
  }
  if (dptr != nullptr) *dptr = reply.dptr;
  if (bytes != nullptr) *bytes = reply.bytes;
  return CUDA_SUCCESS;
}

CUresult cuLibraryGetGlobal(CUdeviceptr* dptr, size_t* bytes, CUlibrary library, const char* name) {
  runtime().begin_if_over();
  return get_global(dptr, bytes, raw(library), wire::Kind::library, name);
}

}  // namespace gpupool::client::api

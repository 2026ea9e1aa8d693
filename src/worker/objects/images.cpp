#include "worker/objects/images.h"

#include <algorithm>
#include <utility>

namespace gpupool::worker {

CUresult enumerate_kernels(const DriverApi& api, Image& image) {
  unsigned count = 0;
  CUresult result = image.is_library ? api.cuLibraryGetKernelCount_(&count, image.library)
                                     : api.cuModuleGetFunctionCount_(&count, image.module);
  if (result != CUDA_SUCCESS) return result;
  image.infos.resize(count);
  if (image.is_library) {
    image.kernels.resize(count);
    if (count != 0) result = api.cuLibraryEnumerateKernels_(image.kernels.data(), count, image.library);
  } else {
    image.functions.resize(count);
    if (count != 0) result = api.cuModuleEnumerateFunctions_(image.functions.data(), count, image.module);
  }
  for (unsigned n = 0; n < count && result == CUDA_SUCCESS; ++n) {
    const char* name = nullptr;
    result = image.is_library ? api.cuKernelGetName_(&name, image.kernels[n])
                              : api.cuFuncGetName_(&name, image.functions[n]);
    if (result == CUDA_SUCCESS && name != nullptr) image.infos[n].name = name;
  }
  return result;
}

bool order_kernels(Image& image, const std::vector<std::string>& names) {
  if (names.size() != image.infos.size()) return false;
  for (std::size_t n = 0; n < names.size(); ++n) {
    const auto found = std::find_if(image.infos.begin() + static_cast<std::ptrdiff_t>(n), image.infos.end(),
                                    [&](const KernelInfo& info) { return info.name == names[n]; });
    if (found == image.infos.end()) return false;
    const auto at = static_cast<std::size_t>(found - image.infos.begin());
    std::swap(image.infos[n], image.infos[at]);
    if (image.is_library) {
      std::swap(image.kernels[n], image.kernels[at]);
    } else {
      std::swap(image.functions[n], image.functions[at]);
    }
  }
  return true;
}

CUresult describe_kernel(const DriverApi& api, Image& image, std::size_t n, CUdevice device) {
  KernelInfo& info = image.infos[n];
  if (info.described) return CUDA_SUCCESS;
  // A lazy driver has not loaded the functions that it lists, and answers some attributes only of loaded ones
  // (CUDA_ERROR_FUNCTION_NOT_LOADED in cuda.h).
  if (!image.is_library) {
    const CUresult loaded = api.cuFuncLoad_(image.functions[n]);
    if (loaded != CUDA_SUCCESS && loaded != CUDA_ERROR_NOT_SUPPORTED) return loaded;
  }
  for (std::size_t p = 0; p < KernelInfo::max_parameters; ++p) {
    std::size_t offset = 0, size = 0;
    const CUresult result = image.is_library ? api.cuKernelGetParamInfo_(image.kernels[n], p, &offset, &size)
                                             : api.cuFuncGetParamInfo_(image.functions[n], p, &offset, &size);
    if (result == CUDA_ERROR_INVALID_VALUE) break;  // past the last parameter
    if (result != CUDA_SUCCESS) return result;
    info.parameters.push_back({static_cast<std::uint32_t>(offset), static_cast<std::uint32_t>(size)});
  }
  for (std::size_t a = 0; a < KernelInfo::attribute_count; ++a) {
    int value = 0;
    const auto attribute = static_cast<CUfunction_attribute>(a);
    const CUresult result = image.is_library
                                ? api.cuKernelGetAttribute_(&value, attribute, image.kernels[n], device)
                                : api.cuFuncGetAttribute_(&value, attribute, image.functions[n]);
    if (result != CUDA_SUCCESS) continue;
    info.attributes[a] = value;
    info.answered |= 1u << a;
  }
  info.described = true;
  return CUDA_SUCCESS;
}

}  // namespace gpupool::worker

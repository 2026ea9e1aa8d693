// The linker.
#include "softgpu/driver/program/linker.h"

#include "softgpu/driver/api/entry.h"
#include "softgpu/driver/program/image_source.h"
#include "softgpu/driver/stream/context.h"
#include "softgpu/driver/stream/current_context.h"

using namespace softgpu::driver;

CUresult cuLinkCreate_v2(unsigned int numOptions, CUjit_option* options, void** optionValues,
                         CUlinkState* stateOut) {
  return entry([&] {
    require(stateOut != nullptr);
    const int capability = current_context()->device().capability();
    *stateOut = registry<Linker>().add<CUlinkState>(
        std::make_shared<Linker>(capability, JitOptions(numOptions, options, optionValues)));
  });
}

CUresult cuLinkCreate(unsigned int numOptions, CUjit_option* options, void** optionValues,
                      CUlinkState* stateOut) {
  return cuLinkCreate_v2(numOptions, options, optionValues, stateOut);
}

CUresult cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void* data, size_t size, const char* name,
                          unsigned int, CUjit_option*, void**) {
  return entry([&] {
    require(data != nullptr && size > 0);
    const auto linker = registry<Linker>().get(state);
    linker->add(type, std::string(static_cast<const char*>(data), size), name ? name : "input");
  });
}

CUresult cuLinkAddData(CUlinkState state, CUjitInputType type, void* data, size_t size, const char* name,
                       unsigned int numOptions, CUjit_option* options, void** optionValues) {
  return cuLinkAddData_v2(state, type, data, size, name, numOptions, options, optionValues);
}

CUresult cuLinkAddFile_v2(CUlinkState state, CUjitInputType type, const char* path, unsigned int,
                          CUjit_option*, void**) {
  return entry([&] {
    const auto linker = registry<Linker>().get(state);
    const std::string bytes = read_file(path);
    require(!bytes.empty(), CUDA_ERROR_INVALID_IMAGE);
    linker->add(type, bytes, path);
  });
}

CUresult cuLinkAddFile(CUlinkState state, CUjitInputType type, const char* path, unsigned int numOptions,
                       CUjit_option* options, void** optionValues) {
  return cuLinkAddFile_v2(state, type, path, numOptions, options, optionValues);
}

CUresult cuLinkComplete(CUlinkState state, void** cubinOut, size_t* sizeOut) {
  return entry([&] {
    require(cubinOut != nullptr);
    const std::string& image = registry<Linker>().get(state)->complete();
    *cubinOut = const_cast<char*>(image.data());
    if (sizeOut) *sizeOut = image.size();
  });
}

CUresult cuLinkDestroy(CUlinkState state) {
  return entry([&] { registry<Linker>().take(state); });
}

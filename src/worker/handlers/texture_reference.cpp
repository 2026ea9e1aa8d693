// Handlers that look texture and surface references up in a module. They end with it.
#include <algorithm>
#include <string>

#include "generated/handlers.h"
#include "worker/conversation/call.h"

namespace gpupool::worker {
namespace {

Image* image_of_module(Call& x, std::uint64_t module) {
  if (const auto found = x.session.images.find(module); found != x.session.images.end())
    return found->second.get();
  for (const auto& [value, image] : x.session.images) {  // the module of a library
    if (std::find(image->bound.begin(), image->bound.end(), module) != image->bound.end()) return image.get();
  }
  return nullptr;
}

/// `look_up(module, name, out)` asks the driver.
template <class H, class F>
CUresult find_reference(Call& x, wire::Kind kind, std::uint64_t module_handle, std::uint64_t offered,
                        std::span<const std::byte> name, std::uint64_t& answer, F look_up) {
  CUmodule module = nullptr;
  Image* const image = image_of_module(x, module_handle);
  if (image == nullptr || !x.handles.find(wire::Kind::module, module_handle, module) ||
      !x.handles.vacant(kind, offered)) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  const std::string text(reinterpret_cast<const char*>(name.data()), name.size());
  H found{};
  const CUresult result = look_up(&found, module, text.c_str());
  if (result != CUDA_SUCCESS) return result;
  answer = x.handles.name_or_bind(kind, offered, found);
  if (answer == offered) image->bound.push_back(offered);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult run_cuModuleGetTexRef(Call& x, const messages::cuModuleGetTexRef& m,
                               replies::cuModuleGetTexRef& reply) {
  return find_reference<CUtexref>(x, wire::Kind::texture_reference, m.hmod, m.pTexRef, m.name, reply.pTexRef,
                                  x.api.cuModuleGetTexRef_);
}

CUresult run_cuModuleGetSurfRef(Call& x, const messages::cuModuleGetSurfRef& m,
                                replies::cuModuleGetSurfRef& reply) {
  return find_reference<CUsurfref>(x, wire::Kind::surface_reference, m.hmod, m.pSurfRef, m.name,
                                   reply.pSurfRef, x.api.cuModuleGetSurfRef_);
}

}  // namespace gpupool::worker

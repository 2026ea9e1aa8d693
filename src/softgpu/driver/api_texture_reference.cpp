// Texture references: state that a module's reference would take. Modules here have none, for PTX that
// declares one does not load.
#include <algorithm>

#include "softgpu/driver/copy.h"
#include "softgpu/driver/entry.h"
#include "softgpu/driver/module.h"
#include "softgpu/driver/texture.h"

using namespace softgpu::driver;

namespace {

// `use` sees the reference; its changes are the call's effect.
template <class F>
CUresult with(CUtexref handle, F use) {
  return entry([&] { use(*Driver::get().texture_references.get(handle, CUDA_ERROR_INVALID_VALUE)); });
}

template <class T>
CUresult answer(CUtexref handle, T* out, T (*of)(const TextureReference&)) {
  return with(handle, [&](TextureReference& reference) {
    require(out != nullptr);
    *out = of(reference);
  });
}

void bind_address(TextureReference& reference, CUdeviceptr address, std::size_t bytes) {
  require_device_range(address, bytes);
  reference.array.reset();
  reference.mipmapped.reset();
  reference.address = address;
}

}  // namespace

CUresult cuTexRefCreate(CUtexref* pTexRef) {
  return entry([&] {
    require(pTexRef != nullptr);
    *pTexRef = Driver::get().texture_references.add<CUtexref>(std::make_shared<TextureReference>());
  });
}
CUresult cuTexRefDestroy(CUtexref hTexRef) {
  return entry([&] { Driver::get().texture_references.take(hTexRef, CUDA_ERROR_INVALID_VALUE); });
}

CUresult cuTexRefSetArray(CUtexref hTexRef, CUarray hArray, unsigned int Flags) {
  return with(hTexRef, [&](TextureReference& reference) {
    require(Flags == CU_TRSA_OVERRIDE_FORMAT);
    reference.array = Driver::get().arrays.get(hArray);
    reference.mipmapped.reset();
    reference.address = 0;
    reference.format = reference.array->shape().Format;
    reference.channels = static_cast<int>(reference.array->shape().NumChannels);
  });
}
CUresult cuTexRefSetMipmappedArray(CUtexref hTexRef, CUmipmappedArray hMipmappedArray, unsigned int Flags) {
  return with(hTexRef, [&](TextureReference& reference) {
    require(Flags == CU_TRSA_OVERRIDE_FORMAT);
    reference.mipmapped = Driver::get().mipmapped_arrays.get(hMipmappedArray);
    reference.array.reset();
    reference.address = 0;
  });
}
CUresult cuTexRefSetAddress_v2(size_t* ByteOffset, CUtexref hTexRef, CUdeviceptr dptr, size_t bytes) {
  return with(hTexRef, [&](TextureReference& reference) {
    constexpr CUdeviceptr kAlignment = 512;
    require(ByteOffset != nullptr || dptr % kAlignment == 0);
    bind_address(reference, dptr, bytes);
    if (ByteOffset) *ByteOffset = dptr % kAlignment;
  });
}
CUresult cuTexRefSetAddress2D_v3(CUtexref hTexRef, const CUDA_ARRAY_DESCRIPTOR* desc, CUdeviceptr dptr,
                                 size_t Pitch) {
  return with(hTexRef, [&](TextureReference& reference) {
    require(desc && desc->Height > 0 && Pitch % 32 == 0 && Pitch <= (std::size_t{1} << 40) / desc->Height);
    Array::check_shape({desc->Width, desc->Height, 0, desc->Format, desc->NumChannels, 0});
    bind_address(reference, dptr, Pitch * desc->Height);
    reference.format = desc->Format;
    reference.channels = static_cast<int>(desc->NumChannels);
  });
}
CUresult cuTexRefSetAddress2D_v2(CUtexref hTexRef, const CUDA_ARRAY_DESCRIPTOR* desc, CUdeviceptr dptr,
                                 size_t Pitch) {
  return cuTexRefSetAddress2D_v3(hTexRef, desc, dptr, Pitch);
}
CUresult cuTexRefSetFormat(CUtexref hTexRef, CUarray_format fmt, int NumPackedComponents) {
  return with(hTexRef, [&](TextureReference& reference) {
    require(NumPackedComponents > 0);
    Array::check_shape({1, 0, 0, fmt, static_cast<unsigned>(NumPackedComponents), 0});
    reference.format = fmt;
    reference.channels = NumPackedComponents;
  });
}
CUresult cuTexRefSetAddressMode(CUtexref hTexRef, int dim, CUaddress_mode am) {
  return with(hTexRef, [&](TextureReference& reference) {
    require(dim >= 0 && dim < 3 && am <= CU_TR_ADDRESS_MODE_BORDER);
    reference.sampling.addressMode[dim] = am;
  });
}
CUresult cuTexRefSetFilterMode(CUtexref hTexRef, CUfilter_mode fm) {
  return with(hTexRef, [&](TextureReference& reference) {
    require(fm <= CU_TR_FILTER_MODE_LINEAR);
    reference.sampling.filterMode = fm;
  });
}
CUresult cuTexRefSetMipmapFilterMode(CUtexref hTexRef, CUfilter_mode fm) {
  return with(hTexRef, [&](TextureReference& reference) {
    require(fm <= CU_TR_FILTER_MODE_LINEAR);
    reference.sampling.mipmapFilterMode = fm;
  });
}
CUresult cuTexRefSetMipmapLevelBias(CUtexref hTexRef, float bias) {
  return with(hTexRef, [&](TextureReference& reference) { reference.sampling.mipmapLevelBias = bias; });
}
CUresult cuTexRefSetMipmapLevelClamp(CUtexref hTexRef, float minMipmapLevelClamp, float maxMipmapLevelClamp) {
  return with(hTexRef, [&](TextureReference& reference) {
    reference.sampling.minMipmapLevelClamp = minMipmapLevelClamp;
    reference.sampling.maxMipmapLevelClamp = maxMipmapLevelClamp;
  });
}
CUresult cuTexRefSetMaxAnisotropy(CUtexref hTexRef, unsigned int maxAniso) {
  return with(hTexRef, [&](TextureReference& reference) {
    require(maxAniso <= 16);
    reference.sampling.maxAnisotropy = maxAniso;
  });
}
CUresult cuTexRefSetBorderColor(CUtexref hTexRef, float* pBorderColor) {
  return with(hTexRef, [&](TextureReference& reference) {
    require(pBorderColor != nullptr);
    std::copy_n(pBorderColor, 4, reference.sampling.borderColor);
  });
}
CUresult cuTexRefSetFlags(CUtexref hTexRef, unsigned int Flags) {
  return with(hTexRef, [&](TextureReference& reference) { reference.sampling.flags = Flags; });
}

CUresult cuTexRefGetAddress_v2(CUdeviceptr* pdptr, CUtexref hTexRef) {
  return with(hTexRef, [&](TextureReference& reference) {
    require(pdptr && reference.address != 0);
    *pdptr = reference.address;
  });
}
CUresult cuTexRefGetArray(CUarray* phArray, CUtexref hTexRef) {
  return with(hTexRef, [&](TextureReference& reference) {
    require(phArray && reference.array);
    *phArray = reinterpret_cast<CUarray>(reference.array.get());
  });
}
CUresult cuTexRefGetMipmappedArray(CUmipmappedArray* phMipmappedArray, CUtexref hTexRef) {
  return with(hTexRef, [&](TextureReference& reference) {
    require(phMipmappedArray && reference.mipmapped);
    *phMipmappedArray = reinterpret_cast<CUmipmappedArray>(reference.mipmapped.get());
  });
}
CUresult cuTexRefGetAddressMode(CUaddress_mode* pam, CUtexref hTexRef, int dim) {
  return with(hTexRef, [&](TextureReference& reference) {
    require(pam && dim >= 0 && dim < 3);
    *pam = reference.sampling.addressMode[dim];
  });
}
CUresult cuTexRefGetFormat(CUarray_format* pFormat, int* pNumChannels, CUtexref hTexRef) {
  return with(hTexRef, [&](TextureReference& reference) {
    if (pFormat) *pFormat = reference.format;
    if (pNumChannels) *pNumChannels = reference.channels;
  });
}
CUresult cuTexRefGetFilterMode(CUfilter_mode* pfm, CUtexref hTexRef) {
  return answer<CUfilter_mode>(hTexRef, pfm, [](const TextureReference& r) { return r.sampling.filterMode; });
}
CUresult cuTexRefGetMipmapFilterMode(CUfilter_mode* pfm, CUtexref hTexRef) {
  return answer<CUfilter_mode>(hTexRef, pfm,
                               [](const TextureReference& r) { return r.sampling.mipmapFilterMode; });
}
CUresult cuTexRefGetMipmapLevelBias(float* pbias, CUtexref hTexRef) {
  return answer<float>(hTexRef, pbias, [](const TextureReference& r) { return r.sampling.mipmapLevelBias; });
}
CUresult cuTexRefGetMipmapLevelClamp(float* pminMipmapLevelClamp, float* pmaxMipmapLevelClamp,
                                     CUtexref hTexRef) {
  return with(hTexRef, [&](TextureReference& reference) {
    require(pminMipmapLevelClamp && pmaxMipmapLevelClamp);
    *pminMipmapLevelClamp = reference.sampling.minMipmapLevelClamp;
    *pmaxMipmapLevelClamp = reference.sampling.maxMipmapLevelClamp;
  });
}
CUresult cuTexRefGetMaxAnisotropy(int* pmaxAniso, CUtexref hTexRef) {
  return answer<int>(hTexRef, pmaxAniso,
                     [](const TextureReference& r) { return static_cast<int>(r.sampling.maxAnisotropy); });
}
CUresult cuTexRefGetBorderColor(float* pBorderColor, CUtexref hTexRef) {
  return with(hTexRef, [&](TextureReference& reference) {
    require(pBorderColor != nullptr);
    std::copy_n(reference.sampling.borderColor, 4, pBorderColor);
  });
}
CUresult cuTexRefGetFlags(unsigned int* pFlags, CUtexref hTexRef) {
  return answer<unsigned>(hTexRef, pFlags, [](const TextureReference& r) { return r.sampling.flags; });
}

CUresult cuModuleGetTexRef(CUtexref* pTexRef, CUmodule hmod, const char* name) {
  return entry([&] {
    require(pTexRef && name);
    Driver::get().modules.get(hmod);
    fail(CUDA_ERROR_NOT_FOUND);
  });
}
CUresult cuModuleGetSurfRef(CUsurfref* pSurfRef, CUmodule hmod, const char* name) {
  return entry([&] {
    require(pSurfRef && name);
    Driver::get().modules.get(hmod);
    fail(CUDA_ERROR_NOT_FOUND);
  });
}
CUresult cuParamSetTexRef(CUfunction hfunc, int texunit, CUtexref hTexRef) {
  return with(hTexRef, [&](TextureReference&) {
    Driver::get().functions.get(hfunc);
    require(texunit == CU_PARAM_TR_DEFAULT);
  });
}

// Arrays, mipmapped arrays, textures over them, through the C API.
#include <numeric>

#include "softgpu/driver/tests/driver_fixture.h"

namespace {

CUDA_ARRAY3D_DESCRIPTOR floats(std::size_t width, std::size_t height, std::size_t depth, unsigned flags = 0) {
  return {width, height, depth, CU_AD_FORMAT_FLOAT, 1, flags};
}

CUarray make(const CUDA_ARRAY3D_DESCRIPTOR& shape) {
  CUarray array = nullptr;
  REQUIRE_CUDA(cuArray3DCreate_v2(&array, &shape));
  return array;
}

std::vector<float> counted(std::size_t size) {
  std::vector<float> values(size);
  std::iota(values.begin(), values.end(), 1.0F);
  return values;
}

CUDA_MEMCPY3D host_block(const float* from, CUarray to, std::size_t width, std::size_t height,
                         std::size_t depth) {
  CUDA_MEMCPY3D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = from;
  copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  copy.dstArray = to;
  copy.WidthInBytes = width * sizeof(float);
  copy.Height = height;
  copy.Depth = depth;
  return copy;
}

}  // namespace

TEST_CASE("a block that goes into a three-dimensional array comes out again, also in part") {
  const CurrentContext context;
  const CUarray array = make(floats(5, 4, 3));
  const auto values = counted(60);
  CUDA_MEMCPY3D in = host_block(values.data(), array, 5, 4, 3);
  in.srcHeight = 4;
  REQUIRE_CUDA(cuMemcpy3D_v2(&in));
  std::vector<float> part(2 * 2);
  CUDA_MEMCPY3D out{};
  out.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  out.srcArray = array;
  out.srcXInBytes = sizeof(float);
  out.srcY = 2;
  out.srcZ = 1;
  out.dstMemoryType = CU_MEMORYTYPE_HOST;
  out.dstHost = part.data();
  out.WidthInBytes = 2 * sizeof(float);
  out.Height = 1;
  out.Depth = 2;
  REQUIRE_CUDA(cuMemcpy3D_v2(&out));
  CHECK(part == std::vector<float>{32, 33, 52, 53});
  CHECK_CUDA(cuArrayDestroy(array));
  CHECK_RESULT(cuArrayDestroy(array), CUDA_ERROR_INVALID_HANDLE);
}

TEST_CASE("a copy past the end of an array is refused") {
  const CurrentContext context;
  const CUarray array = make(floats(8, 0, 0));
  const auto values = counted(9);
  CHECK_CUDA(cuMemcpyHtoA_v2(array, 0, values.data(), 32));
  CHECK_RESULT(cuMemcpyHtoA_v2(array, 4, values.data(), 32), CUDA_ERROR_INVALID_VALUE);
  CHECK_RESULT(cuMemcpyHtoA_v2(array, ~std::size_t{0}, values.data(), 4), CUDA_ERROR_INVALID_VALUE);
  CUDA_MEMCPY3D two_rows = host_block(values.data(), array, 4, 2, 1);
  CHECK_RESULT(cuMemcpy3D_v2(&two_rows), CUDA_ERROR_INVALID_VALUE);
  CHECK_CUDA(cuArrayDestroy(array));
}

TEST_CASE("arrays copy among themselves and with device memory") {
  const CurrentContext context;
  const CUarray first = make(floats(8, 0, 0)), second = make(floats(8, 0, 0));
  const auto values = counted(8);
  std::vector<float> back(8);
  CUdeviceptr memory = 0;
  REQUIRE_CUDA(cuMemAlloc_v2(&memory, 32));
  REQUIRE_CUDA(cuMemcpyHtoA_v2(first, 0, values.data(), 32));
  REQUIRE_CUDA(cuMemcpyAtoA_v2(second, 8, first, 0, 24));
  REQUIRE_CUDA(cuMemcpyAtoD_v2(memory, second, 8, 24));
  REQUIRE_CUDA(cuMemcpyDtoA_v2(first, 0, memory, 4));
  REQUIRE_CUDA(cuMemcpyAtoH_v2(back.data(), second, 8, 24));
  CHECK(back == std::vector<float>{1, 2, 3, 4, 5, 6, 0, 0});
  for (const CUarray array : {first, second}) CHECK_CUDA(cuArrayDestroy(array));
  CHECK_CUDA(cuMemFree_v2(memory));
}

TEST_CASE("a mipmapped array has as many levels as halving allows, and they end with it") {
  const CurrentContext context;
  CUmipmappedArray mipmapped = nullptr;
  const auto shape = floats(16, 8, 0);
  REQUIRE_CUDA(cuMipmappedArrayCreate(&mipmapped, &shape, 99));
  CUarray level = nullptr;
  REQUIRE_CUDA(cuMipmappedArrayGetLevel(&level, mipmapped, 4));
  CUDA_ARRAY3D_DESCRIPTOR last{};
  REQUIRE_CUDA(cuArray3DGetDescriptor_v2(&last, level));
  CHECK(last.Width == 1);
  CHECK(last.Height == 1);
  CHECK_RESULT(cuMipmappedArrayGetLevel(&level, mipmapped, 5), CUDA_ERROR_INVALID_VALUE);
  CHECK_RESULT(cuArrayDestroy(level), CUDA_ERROR_INVALID_HANDLE);
  REQUIRE_CUDA(cuMipmappedArrayDestroy(mipmapped));
  CHECK_RESULT(cuArray3DGetDescriptor_v2(&last, level), CUDA_ERROR_INVALID_HANDLE);
}

TEST_CASE("arrays count against the device's memory and end with their context") {
  REQUIRE_CUDA(cuInit(0));
  std::size_t before = 0, now = 0, total = 0;
  CUarray array = nullptr;
  {
    const CurrentContext context;
    REQUIRE_CUDA(cuMemGetInfo_v2(&before, &total));
    array = make(floats(1024, 1024, 0));
    REQUIRE_CUDA(cuMemGetInfo_v2(&now, &total));
    CHECK(before - now == 4u << 20);
  }
  CHECK_RESULT(cuArrayDestroy(array), CUDA_ERROR_INVALID_HANDLE);
  const CurrentContext context;
  REQUIRE_CUDA(cuMemGetInfo_v2(&now, &total));
  CHECK(now == before);
}

TEST_CASE("impossible shapes are refused") {
  const CurrentContext context;
  CUarray array = nullptr;
  for (const auto& shape : {floats(0, 1, 0), floats(4, 0, 4), floats(4, 8, 6, CUDA_ARRAY3D_CUBEMAP),
                            CUDA_ARRAY3D_DESCRIPTOR{4, 4, 0, CU_AD_FORMAT_FLOAT, 3, 0}}) {
    CHECK_RESULT(cuArray3DCreate_v2(&array, &shape), CUDA_ERROR_INVALID_VALUE);
  }
  const auto sparse = floats(4, 4, 0, CUDA_ARRAY3D_SPARSE);
  CHECK_RESULT(cuArray3DCreate_v2(&array, &sparse), CUDA_ERROR_NOT_SUPPORTED);
}

TEST_CASE("a texture object tells what it was made of") {
  const CurrentContext context;
  const CUarray array = make(floats(8, 8, 0));
  CUDA_RESOURCE_DESC resource{}, told{};
  resource.resType = CU_RESOURCE_TYPE_ARRAY;
  resource.res.array.hArray = array;
  CUDA_TEXTURE_DESC sampling{}, sampling_told{};
  sampling.addressMode[0] = CU_TR_ADDRESS_MODE_MIRROR;
  sampling.filterMode = CU_TR_FILTER_MODE_LINEAR;
  CUtexObject texture = 0;
  REQUIRE_CUDA(cuTexObjectCreate(&texture, &resource, &sampling, nullptr));
  REQUIRE_CUDA(cuTexObjectGetResourceDesc(&told, texture));
  CHECK(told.res.array.hArray == array);
  REQUIRE_CUDA(cuTexObjectGetTextureDesc(&sampling_told, texture));
  CHECK(sampling_told.addressMode[0] == CU_TR_ADDRESS_MODE_MIRROR);
  CUDA_RESOURCE_VIEW_DESC view{};
  CHECK_RESULT(cuTexObjectGetResourceViewDesc(&view, texture), CUDA_ERROR_INVALID_VALUE);
  CHECK_CUDA(cuTexObjectDestroy(texture));
  CHECK_RESULT(cuTexObjectDestroy(texture), CUDA_ERROR_INVALID_VALUE);
  CUsurfObject surface = 0;
  CHECK_RESULT(cuSurfObjectCreate(&surface, &resource), CUDA_ERROR_INVALID_VALUE);  // not made for surfaces
  CHECK_CUDA(cuArrayDestroy(array));
}

// shift: out[tid] = texture at (tid.x + dx, tid.y + 0.5). twice: the surface doubled in place.
constexpr const char* texture_ptx = R"(
.version 7.0
.target sm_75
.address_size 64
.visible .entry shift(.param .u64 out, .param .u64 texture, .param .f32 dx)
{
    .reg .b32 %r<6>; .reg .b64 %rd<5>; .reg .f32 %f<10>;
    ld.param.u64 %rd1, [out]; ld.param.u64 %rd2, [texture]; ld.param.f32 %f1, [dx];
    mov.u32 %r1, %tid.x; mov.u32 %r2, %tid.y; mov.u32 %r3, %ntid.x;
    cvt.rn.f32.u32 %f2, %r1; cvt.rn.f32.u32 %f3, %r2;
    add.f32 %f2, %f2, %f1; add.f32 %f3, %f3, 0f3F000000;
    tex.2d.v4.f32.f32 {%f4, %f5, %f6, %f7}, [%rd2, {%f2, %f3}];
    mad.lo.u32 %r4, %r2, %r3, %r1;
    mul.wide.u32 %rd3, %r4, 4;
    add.s64 %rd4, %rd1, %rd3;
    st.global.f32 [%rd4], %f4;
    ret;
}
.visible .entry twice(.param .u64 surface)
{
    .reg .b32 %r<6>; .reg .b64 %rd<3>; .reg .f32 %f<3>;
    ld.param.u64 %rd1, [surface];
    mov.u32 %r1, %tid.x; mov.u32 %r2, %tid.y;
    shl.b32 %r3, %r1, 2;
    suld.b.2d.b32.trap {%r4}, [%rd1, {%r3, %r2}];
    mov.b32 %f1, %r4;
    add.f32 %f1, %f1, %f1;
    mov.b32 %r5, %f1;
    sust.b.2d.b32.trap [%rd1, {%r3, %r2}], {%r5};
    ret;
}
)";

TEST_CASE("a kernel reads through a texture and writes through a surface") {
  const CurrentContext context;
  const CUarray array = make(floats(4, 2, 0, CUDA_ARRAY3D_SURFACE_LDST));
  const auto values = counted(8);
  CUDA_MEMCPY3D in = host_block(values.data(), array, 4, 2, 1);
  REQUIRE_CUDA(cuMemcpy3D_v2(&in));
  CUDA_RESOURCE_DESC resource{};
  resource.resType = CU_RESOURCE_TYPE_ARRAY;
  resource.res.array.hArray = array;
  CUDA_TEXTURE_DESC sampling{};
  sampling.addressMode[0] = sampling.addressMode[1] = CU_TR_ADDRESS_MODE_CLAMP;
  sampling.filterMode = CU_TR_FILTER_MODE_LINEAR;
  CUtexObject texture = 0;
  CUsurfObject surface = 0;
  REQUIRE_CUDA(cuTexObjectCreate(&texture, &resource, &sampling, nullptr));
  REQUIRE_CUDA(cuSurfObjectCreate(&surface, &resource));
  const LoadedKernel shift(texture_ptx, "shift");
  CUfunction twice = nullptr;
  REQUIRE_CUDA(cuModuleGetFunction(&twice, shift.module, "twice"));

  CUdeviceptr out = 0;
  REQUIRE_CUDA(cuMemAlloc_v2(&out, 32));
  float dx = 1.0F;  // half an element to the right of the centres
  std::vector<void*> parameters{&out, &texture, &dx};
  std::vector<float> seen(8);
  REQUIRE_CUDA(cuLaunchKernel(shift.function, 1, 1, 1, 4, 2, 1, 0, nullptr, parameters.data(), nullptr));
  REQUIRE_CUDA(cuMemcpyDtoH_v2(seen.data(), out, 32));
  CHECK(seen == std::vector<float>{1.5, 2.5, 3.5, 4, 5.5, 6.5, 7.5, 8});

  std::vector<void*> of_twice{&surface};
  REQUIRE_CUDA(cuLaunchKernel(twice, 1, 1, 1, 4, 2, 1, 0, nullptr, of_twice.data(), nullptr));
  dx = 0.5F;
  REQUIRE_CUDA(cuLaunchKernel(shift.function, 1, 1, 1, 4, 2, 1, 0, nullptr, parameters.data(), nullptr));
  REQUIRE_CUDA(cuMemcpyDtoH_v2(seen.data(), out, 32));
  CHECK(seen == std::vector<float>{2, 4, 6, 8, 10, 12, 14, 16});
  CHECK_CUDA(cuTexObjectDestroy(texture));

  // A dead handle is a fault of the kernel, not of the process.
  REQUIRE_CUDA(cuLaunchKernel(shift.function, 1, 1, 1, 4, 2, 1, 0, nullptr, parameters.data(), nullptr));
  CHECK_RESULT(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_CASE("a texture of rows in memory is checked when it is made and again when it is read") {
  const CurrentContext context;
  CUdeviceptr rows = 0, out = 0;
  REQUIRE_CUDA(cuMemAlloc_v2(&rows, 4 << 20));
  REQUIRE_CUDA(cuMemAlloc_v2(&out, 32));
  CUDA_RESOURCE_DESC resource{};
  resource.resType = CU_RESOURCE_TYPE_PITCH2D;
  resource.res.pitch2D = {rows, CU_AD_FORMAT_FLOAT, 1, 16, 2, 32};
  CUDA_TEXTURE_DESC sampling{};
  CUtexObject texture = 0;
  // 16 floats are wider than a row, and a second row that begins where the memory ends is not in it.
  CHECK_RESULT(cuTexObjectCreate(&texture, &resource, &sampling, nullptr), CUDA_ERROR_INVALID_VALUE);
  resource.res.pitch2D.width = 4;
  resource.res.pitch2D.pitchInBytes = 4 << 20;
  CHECK_RESULT(cuTexObjectCreate(&texture, &resource, &sampling, nullptr), CUDA_ERROR_INVALID_VALUE);
  resource.res.pitch2D.pitchInBytes = 32;
  REQUIRE_CUDA(cuTexObjectCreate(&texture, &resource, &sampling, nullptr));

  const LoadedKernel shift(texture_ptx, "shift");
  float dx = 0;
  std::vector<void*> parameters{&out, &texture, &dx};
  REQUIRE_CUDA(cuMemFree_v2(rows));
  REQUIRE_CUDA(cuLaunchKernel(shift.function, 1, 1, 1, 4, 2, 1, 0, nullptr, parameters.data(), nullptr));
  CHECK_RESULT(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

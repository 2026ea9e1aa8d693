// Fills.
#include "softgpu/driver/api/entry.h"
#include "softgpu/driver/memory/copy.h"
#include "softgpu/driver/stream/selection.h"

using namespace softgpu::driver;

namespace {

CUDA_MEMSET_NODE_PARAMS describe(CUdeviceptr address, std::size_t pitch, unsigned value, unsigned element,
                                 std::size_t width, std::size_t height) {
  CUDA_MEMSET_NODE_PARAMS shape{};
  shape.dst = address;
  shape.pitch = pitch;
  shape.value = value;
  shape.elementSize = element;
  shape.width = width;
  shape.height = height;
  return shape;
}

CUresult fill_now(const CUDA_MEMSET_NODE_PARAMS& shape) {
  return entry([&] { issue_and_wait(resolve_stream(nullptr), make_fill(shape)); });
}

CUresult fill_in_stream(const CUDA_MEMSET_NODE_PARAMS& shape, CUstream stream) {
  return entry([&] { issue(resolve_stream(stream), make_fill(shape)); });
}

}  // namespace

CUresult cuMemsetD8_v2(CUdeviceptr dstDevice, unsigned char uc, size_t N) {
  return fill_now(describe(dstDevice, 0, uc, 1, N, 1));
}

CUresult cuMemsetD2D8_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width,
                         size_t Height) {
  return fill_now(describe(dstDevice, dstPitch, uc, 1, Width, Height));
}

CUresult cuMemsetD8Async(CUdeviceptr dstDevice, unsigned char uc, size_t N, CUstream hStream) {
  return fill_in_stream(describe(dstDevice, 0, uc, 1, N, 1), hStream);
}

CUresult cuMemsetD2D8Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width,
                           size_t Height, CUstream hStream) {
  return fill_in_stream(describe(dstDevice, dstPitch, uc, 1, Width, Height), hStream);
}

CUresult cuMemsetD16_v2(CUdeviceptr dstDevice, unsigned short us, size_t N) {
  return fill_now(describe(dstDevice, 0, us, 2, N, 1));
}

CUresult cuMemsetD2D16_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width,
                          size_t Height) {
  return fill_now(describe(dstDevice, dstPitch, us, 2, Width, Height));
}

CUresult cuMemsetD16Async(CUdeviceptr dstDevice, unsigned short us, size_t N, CUstream hStream) {
  return fill_in_stream(describe(dstDevice, 0, us, 2, N, 1), hStream);
}

CUresult cuMemsetD2D16Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width,
                            size_t Height, CUstream hStream) {
  return fill_in_stream(describe(dstDevice, dstPitch, us, 2, Width, Height), hStream);
}

CUresult cuMemsetD32_v2(CUdeviceptr dstDevice, unsigned int ui, size_t N) {
  return fill_now(describe(dstDevice, 0, ui, 4, N, 1));
}

CUresult cuMemsetD2D32_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width,
                          size_t Height) {
  return fill_now(describe(dstDevice, dstPitch, ui, 4, Width, Height));
}

CUresult cuMemsetD32Async(CUdeviceptr dstDevice, unsigned int ui, size_t N, CUstream hStream) {
  return fill_in_stream(describe(dstDevice, 0, ui, 4, N, 1), hStream);
}

CUresult cuMemsetD2D32Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width,
                            size_t Height, CUstream hStream) {
  return fill_in_stream(describe(dstDevice, dstPitch, ui, 4, Width, Height), hStream);
}

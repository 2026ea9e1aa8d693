#include "softgpu/driver/memory/copy.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>

#include "softgpu/driver/backing/allocation_table.h"
#include "softgpu/driver/base/error.h"
#include "softgpu/driver/base/fault_report.h"
#include "softgpu/driver/base/registry.h"
#include "softgpu/driver/memory/array.h"
#include "softgpu/driver/memory/memory.h"
#include "softgpu/exec/run/guarded_access.h"

namespace softgpu::driver {
namespace {

constexpr std::size_t largest_bytes = std::size_t{1} << 47;

char* bytes_at(std::uint64_t address) {
  return reinterpret_cast<char*>(address);
}

// One side of a 2D/3D copy as an address and strides.
struct Side {
  std::uint64_t start = 0;
  std::size_t pitch = 0;                   // bytes between rows
  std::size_t slice = 0;                   // bytes between slices
  std::shared_ptr<Array> array = nullptr;  // kept until the copy is done
};

std::size_t checked_product(std::size_t a, std::size_t b) {
  std::size_t product = 0;
  require(!__builtin_mul_overflow(a, b, &product) && product <= largest_bytes);
  return product;
}

Side array_side(CUarray handle, std::size_t x, std::size_t y, std::size_t z, const CUDA_MEMCPY3D& shape) {
  const auto array = registry<Array>().get(handle);
  const auto fits = [](std::size_t at, std::size_t size, std::size_t whole) {
    return at <= whole && size <= whole - at;
  };
  require(fits(x, shape.WidthInBytes, array->row_bytes()) && fits(y, shape.Height, array->rows()) &&
          fits(z, shape.Depth, array->slices()));
  const std::size_t slice = array->pitch() * array->rows();
  return {array->address() + z * slice + y * array->pitch() + x, array->pitch(), slice, array};
}

Side make_side(CUmemorytype type, const void* host, CUdeviceptr device, std::size_t x, std::size_t y,
               std::size_t z, std::size_t pitch, std::size_t height, CUarray array,
               const CUDA_MEMCPY3D& shape) {
  if (type == CU_MEMORYTYPE_ARRAY) return array_side(array, x, y, z, shape);
  require(type == CU_MEMORYTYPE_HOST || type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_UNIFIED);
  Side side;
  side.pitch = pitch ? pitch : x + shape.WidthInBytes;
  require(side.pitch <= largest_bytes && x <= largest_bytes && y <= largest_bytes && z <= largest_bytes);
  require(shape.Height <= 1 || side.pitch >= shape.WidthInBytes + x);
  const std::size_t rows = height ? height : y + shape.Height;
  require(shape.Depth <= 1 || rows >= shape.Height);
  side.slice = checked_product(side.pitch, rows);
  const std::uint64_t base = type == CU_MEMORYTYPE_HOST ? reinterpret_cast<std::uint64_t>(host) : device;
  require(base != 0);
  side.start = base + x + checked_product(y, side.pitch) + checked_product(z, side.slice);
  const std::size_t extent = checked_product(shape.Depth - 1, side.slice) +
                             checked_product(shape.Height - 1, side.pitch) + shape.WidthInBytes;
  if (type == CU_MEMORYTYPE_DEVICE) require_device_range(side.start, extent);
  return side;
}

bool is_empty(const CUDA_MEMCPY3D& shape) {
  return !shape.WidthInBytes || !shape.Height || !shape.Depth;
}

// Memory of a program's own may not be there, and memory of the driver's may have been freed since.
template <class Access>
void touch(const Access& access) {
  std::uint64_t missing = 0;
  if (guarded(access, missing)) return;
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "a copy or fill found no memory at 0x%llx",
                static_cast<unsigned long long>(missing));
  report_fault(CUDA_ERROR_ILLEGAL_ADDRESS, text.data());
  fail(CUDA_ERROR_ILLEGAL_ADDRESS);
}

template <class Element>
void fill_row(char* row, Element value, std::size_t width) {
  std::fill_n(reinterpret_cast<Element*>(row), width, value);
}

}  // namespace

void require_device_range(std::uint64_t address, std::size_t size) {
  require(size == 0 || (address != 0 && AllocationTable::of_process().covers(address, size)));
}

Operation make_copy(std::uint64_t destination, std::uint64_t source, std::size_t size) {
  CUDA_MEMCPY3D shape{};
  shape.srcMemoryType = shape.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
  shape.srcDevice = source;
  shape.dstDevice = destination;
  shape.WidthInBytes = size;
  shape.Height = shape.Depth = 1;
  return {CU_GRAPH_NODE_TYPE_MEMCPY, shape,
          [=] { touch([&] { std::memmove(bytes_at(destination), bytes_at(source), size); }); }};
}

Operation make_copy(const CUDA_MEMCPY3D& shape) {
  if (is_empty(shape)) return {CU_GRAPH_NODE_TYPE_MEMCPY, shape, nullptr};
  require(shape.WidthInBytes <= largest_bytes && shape.srcLOD == 0 && shape.dstLOD == 0);
  const Side source =
      make_side(shape.srcMemoryType, shape.srcHost, shape.srcDevice, shape.srcXInBytes, shape.srcY,
                shape.srcZ, shape.srcPitch, shape.srcHeight, shape.srcArray, shape);
  const Side target =
      make_side(shape.dstMemoryType, shape.dstHost, shape.dstDevice, shape.dstXInBytes, shape.dstY,
                shape.dstZ, shape.dstPitch, shape.dstHeight, shape.dstArray, shape);
  return {CU_GRAPH_NODE_TYPE_MEMCPY, shape, [shape, source, target] {
            touch([&] {
              for (std::size_t z = 0; z < shape.Depth; ++z) {
                for (std::size_t y = 0; y < shape.Height; ++y) {
                  std::memmove(bytes_at(target.start + z * target.slice + y * target.pitch),
                               bytes_at(source.start + z * source.slice + y * source.pitch),
                               shape.WidthInBytes);
                }
              }
            });
          }};
}

CUDA_MEMCPY3D as_3d(const CUDA_MEMCPY2D& from) {
  CUDA_MEMCPY3D shape{};
  shape.srcXInBytes = from.srcXInBytes;
  shape.srcY = from.srcY;
  shape.srcMemoryType = from.srcMemoryType;
  shape.srcHost = from.srcHost;
  shape.srcDevice = from.srcDevice;
  shape.srcArray = from.srcArray;
  shape.srcPitch = from.srcPitch;
  shape.dstXInBytes = from.dstXInBytes;
  shape.dstY = from.dstY;
  shape.dstMemoryType = from.dstMemoryType;
  shape.dstHost = from.dstHost;
  shape.dstDevice = from.dstDevice;
  shape.dstArray = from.dstArray;
  shape.dstPitch = from.dstPitch;
  shape.WidthInBytes = from.WidthInBytes;
  shape.Height = from.Height;
  shape.Depth = 1;
  return shape;
}

CUDA_MEMCPY3D as_3d(const CUDA_MEMCPY3D_PEER& from) {
  CUDA_MEMCPY3D shape{};
  shape.srcXInBytes = from.srcXInBytes;
  shape.srcY = from.srcY;
  shape.srcZ = from.srcZ;
  shape.srcLOD = from.srcLOD;
  shape.srcMemoryType = from.srcMemoryType;
  shape.srcHost = from.srcHost;
  shape.srcDevice = from.srcDevice;
  shape.srcArray = from.srcArray;
  shape.srcPitch = from.srcPitch;
  shape.srcHeight = from.srcHeight;
  shape.dstXInBytes = from.dstXInBytes;
  shape.dstY = from.dstY;
  shape.dstZ = from.dstZ;
  shape.dstLOD = from.dstLOD;
  shape.dstMemoryType = from.dstMemoryType;
  shape.dstHost = from.dstHost;
  shape.dstDevice = from.dstDevice;
  shape.dstArray = from.dstArray;
  shape.dstPitch = from.dstPitch;
  shape.dstHeight = from.dstHeight;
  shape.WidthInBytes = from.WidthInBytes;
  shape.Height = from.Height;
  shape.Depth = from.Depth;
  return shape;
}

bool touches_pageable(const CUDA_MEMCPY3D& shape) {
  const auto pageable = [](CUmemorytype type, const void* host, CUdeviceptr unified) {
    if (type == CU_MEMORYTYPE_HOST) return !is_known_memory(reinterpret_cast<std::uint64_t>(host), 1);
    return type == CU_MEMORYTYPE_UNIFIED && !is_known_memory(unified, 1);
  };
  return pageable(shape.srcMemoryType, shape.srcHost, shape.srcDevice) ||
         pageable(shape.dstMemoryType, shape.dstHost, shape.dstDevice);
}

Operation make_fill(const CUDA_MEMSET_NODE_PARAMS& shape) {
  const std::size_t element = shape.elementSize;
  require(element == 1 || element == 2 || element == 4);
  if (shape.width == 0 || shape.height == 0) return {CU_GRAPH_NODE_TYPE_MEMSET, shape, nullptr};
  require(shape.dst % element == 0);
  const std::size_t row = checked_product(shape.width, element);
  require(shape.height == 1 || (shape.pitch >= row && shape.pitch % element == 0));
  const std::size_t extent = checked_product(shape.height - 1, shape.pitch) + row;
  require_device_range(shape.dst, extent);
  return {CU_GRAPH_NODE_TYPE_MEMSET, shape, [shape] {
            touch([&] {
              for (std::size_t y = 0; y < shape.height; ++y) {
                char* begin = bytes_at(shape.dst + y * shape.pitch);
                switch (shape.elementSize) {
                  case 1:
                    fill_row(begin, static_cast<std::uint8_t>(shape.value), shape.width);
                    break;
                  case 2:
                    fill_row(begin, static_cast<std::uint16_t>(shape.value), shape.width);
                    break;
                  default:
                    fill_row(begin, static_cast<std::uint32_t>(shape.value), shape.width);
                    break;
                }
              }
            });
          }};
}

}  // namespace softgpu::driver

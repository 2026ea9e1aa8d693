// Descriptors of tensors and of filters.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>

#include "libraries/cudnn/tensors.h"

using namespace gpupool::cudnn;

namespace {

/// cuDNN counts elements of a tensor with 31 bits.
constexpr std::int64_t most_elements = (std::int64_t{1} << 31) - 1;
constexpr int least_dims = 3;

int set_tensor(void* descriptor, int type, std::span<const int> sizes, std::span<const int> strides) {
  TensorDescriptor* const found = find<TensorDescriptor>(descriptor);
  if (found == nullptr || !is_data_type(type)) return bad_param;
  std::int64_t last = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] <= 0 || strides[i] < 0) return bad_param;
    last += static_cast<std::int64_t>(sizes[i] - 1) * strides[i];
  }
  if (last >= most_elements) return not_supported;
  found->data_type = type;
  found->dims = static_cast<int>(sizes.size());
  std::copy(sizes.begin(), sizes.end(), found->sizes);
  std::copy(strides.begin(), strides.end(), found->strides);
  return success;
}

int set_packed(void* descriptor, int format, int type, std::span<const int> sizes) {
  if (format == nchw_vect_c) return not_supported;
  if (format != nchw && format != nhwc) return bad_param;
  if (std::any_of(sizes.begin(), sizes.end(), [](int size) { return size <= 0; })) return bad_param;
  std::int64_t strides[max_dims];
  if (!packed_strides(format, sizes, strides)) return not_supported;
  int narrow[max_dims];
  std::copy_n(strides, sizes.size(), narrow);
  return set_tensor(descriptor, type, sizes, {narrow, sizes.size()});
}

}  // namespace

namespace gpupool::cudnn {

bool packed_strides(int format, std::span<const int> sizes, std::int64_t* strides) {
  std::int64_t next = 1;
  const auto dims = static_cast<int>(sizes.size());
  const auto take = [&](int dim) {
    strides[dim] = next;
    next *= sizes[static_cast<std::size_t>(dim)];
    return next <= most_elements;
  };
  if (format == nhwc && !take(1)) return false;
  for (int i = dims - 1; i >= (format == nhwc ? 2 : 1); --i) {
    if (!take(i)) return false;
  }
  return take(0);
}

Tensor tensor_of(const TensorDescriptor& descriptor, const void* address) {
  Tensor made;
  made.address = reinterpret_cast<std::uintptr_t>(address);
  made.type = element_of(descriptor.data_type).value_or(Element::f32);
  made.dims = static_cast<std::uint8_t>(descriptor.dims);
  std::copy_n(descriptor.sizes, descriptor.dims, made.sizes);
  std::copy_n(descriptor.strides, descriptor.dims, made.strides);
  return made;
}

Tensor tensor_of(const FilterDescriptor& descriptor, const void* address) {
  Tensor made;
  made.address = reinterpret_cast<std::uintptr_t>(address);
  made.type = element_of(descriptor.data_type).value_or(Element::f32);
  made.dims = static_cast<std::uint8_t>(descriptor.dims);
  std::copy_n(descriptor.sizes, descriptor.dims, made.sizes);
  packed_strides(descriptor.format, {descriptor.sizes, static_cast<std::size_t>(descriptor.dims)},
                 made.strides);
  return made;
}

std::optional<double> number_of(const void* value, Element type) {
  const auto read = [&]<class T>(T into) {
    std::memcpy(&into, value, sizeof into);
    return into;
  };
  switch (type) {
    case Element::f32:
      return read(float{});
    case Element::f64:
      return read(double{});
    case Element::i8:
      return read(std::int8_t{});
    case Element::u8:
      return read(std::uint8_t{});
    case Element::i32:
      return read(std::int32_t{});
    case Element::bf16:
      return std::bit_cast<float>(static_cast<std::uint32_t>(read(std::uint16_t{})) << 16);
    case Element::f16: {
      const std::uint16_t bits = read(std::uint16_t{});
      const int exponent = bits >> 10 & 31, fraction = bits & 1023;
      const double size = exponent == 31  ? (fraction == 0 ? HUGE_VAL : NAN)
                          : exponent == 0 ? std::ldexp(fraction, -24)
                                          : std::ldexp(fraction + 1024, exponent - 25);
      return (bits & 0x8000) != 0 ? -size : size;
    }
    default:
      return std::nullopt;
  }
}

double scalar_of(const void* value, Element type) {
  if (value == nullptr) return 0;
  return type == Element::f64 ? *static_cast<const double*>(value) : *static_cast<const float*>(value);
}

}  // namespace gpupool::cudnn

GPUPOOL_LIBRARY_EXPORT int cudnnCreateTensorDescriptor(void** descriptor) {
  return create<TensorDescriptor>(descriptor);
}
GPUPOOL_LIBRARY_EXPORT int cudnnDestroyTensorDescriptor(void* descriptor) {
  return destroy<TensorDescriptor>(descriptor);
}
GPUPOOL_LIBRARY_EXPORT int cudnnSetTensor4dDescriptor(void* descriptor, int format, int type, int n, int c,
                                                      int h, int w) {
  const int sizes[] = {n, c, h, w};
  return set_packed(descriptor, format, type, sizes);
}
GPUPOOL_LIBRARY_EXPORT int cudnnSetTensor4dDescriptorEx(void* descriptor, int type, int n, int c, int h,
                                                        int w, int stride_n, int stride_c, int stride_h,
                                                        int stride_w) {
  const int sizes[] = {n, c, h, w}, strides[] = {stride_n, stride_c, stride_h, stride_w};
  return set_tensor(descriptor, type, sizes, strides);
}
GPUPOOL_LIBRARY_EXPORT int cudnnGetTensor4dDescriptor(const void* descriptor, int* type, int* n, int* c,
                                                      int* h, int* w, int* stride_n, int* stride_c,
                                                      int* stride_h, int* stride_w) {
  const TensorDescriptor* const found = find<TensorDescriptor>(descriptor);
  if (found == nullptr || found->dims != 4) return bad_param;
  put(type, found->data_type);
  int* const sizes[] = {n, c, h, w};
  int* const strides[] = {stride_n, stride_c, stride_h, stride_w};
  for (int i = 0; i < 4; ++i) {
    put(sizes[i], found->sizes[i]);
    put(strides[i], found->strides[i]);
  }
  return success;
}
GPUPOOL_LIBRARY_EXPORT int cudnnSetTensorNdDescriptor(void* descriptor, int type, int dims, const int* sizes,
                                                      const int* strides) {
  if (sizes == nullptr || strides == nullptr) return bad_param;
  if (dims < least_dims || dims > max_dims) return not_supported;
  const auto count = static_cast<std::size_t>(dims);
  return set_tensor(descriptor, type, {sizes, count}, {strides, count});
}
GPUPOOL_LIBRARY_EXPORT int cudnnSetTensorNdDescriptorEx(void* descriptor, int format, int type, int dims,
                                                        const int* sizes) {
  if (sizes == nullptr) return bad_param;
  if (dims < least_dims || dims > max_dims) return not_supported;
  return set_packed(descriptor, format, type, {sizes, static_cast<std::size_t>(dims)});
}
GPUPOOL_LIBRARY_EXPORT int cudnnGetTensorNdDescriptor(const void* descriptor, int requested, int* type,
                                                      int* dims, int* sizes, int* strides) {
  const TensorDescriptor* const found = find<TensorDescriptor>(descriptor);
  if (found == nullptr || requested < 0 || requested > max_dims) return bad_param;
  put(type, found->data_type);
  put(dims, found->dims);
  const int count = std::min(requested, found->dims);
  if (sizes != nullptr) std::copy_n(found->sizes, count, sizes);
  if (strides != nullptr) std::copy_n(found->strides, count, strides);
  return success;
}
GPUPOOL_LIBRARY_EXPORT int cudnnGetTensorSizeInBytes(const void* descriptor, std::size_t* size) {
  const TensorDescriptor* const found = find<TensorDescriptor>(descriptor);
  if (found == nullptr || size == nullptr) return bad_param;
  std::size_t last = 0;
  for (int i = 0; i < found->dims; ++i)
    last += static_cast<std::size_t>(found->sizes[i] - 1) * static_cast<std::size_t>(found->strides[i]);
  *size = found->dims == 0 ? 0 : (last + 1) * bytes_of_data_type(found->data_type);
  return success;
}

GPUPOOL_LIBRARY_EXPORT int cudnnCreateFilterDescriptor(void** descriptor) {
  return create<FilterDescriptor>(descriptor);
}
GPUPOOL_LIBRARY_EXPORT int cudnnDestroyFilterDescriptor(void* descriptor) {
  return destroy<FilterDescriptor>(descriptor);
}
GPUPOOL_LIBRARY_EXPORT int cudnnSetFilterNdDescriptor(void* descriptor, int type, int format, int dims,
                                                      const int* sizes) {
  FilterDescriptor* const found = find<FilterDescriptor>(descriptor);
  if (found == nullptr || sizes == nullptr || !is_data_type(type) || format < 0 || format > nchw_vect_c)
    return bad_param;
  if (dims < least_dims || dims > max_dims || format == nchw_vect_c) return not_supported;
  if (std::any_of(sizes, sizes + dims, [](int size) { return size <= 0; })) return bad_param;
  std::int64_t strides[max_dims];
  if (!packed_strides(format, {sizes, static_cast<std::size_t>(dims)}, strides)) return not_supported;
  found->data_type = type;
  found->format = format;
  found->dims = dims;
  std::copy_n(sizes, dims, found->sizes);
  return success;
}
GPUPOOL_LIBRARY_EXPORT int cudnnSetFilter4dDescriptor(void* descriptor, int type, int format, int k, int c,
                                                      int h, int w) {
  const int sizes[] = {k, c, h, w};
  return cudnnSetFilterNdDescriptor(descriptor, type, format, 4, sizes);
}
GPUPOOL_LIBRARY_EXPORT int cudnnGetFilterNdDescriptor(const void* descriptor, int requested, int* type,
                                                      int* format, int* dims, int* sizes) {
  const FilterDescriptor* const found = find<FilterDescriptor>(descriptor);
  if (found == nullptr || requested < 0 || requested > max_dims) return bad_param;
  put(type, found->data_type);
  put(format, found->format);
  put(dims, found->dims);
  if (sizes != nullptr) std::copy_n(found->sizes, std::min(requested, found->dims), sizes);
  return success;
}
GPUPOOL_LIBRARY_EXPORT int cudnnGetFilter4dDescriptor(const void* descriptor, int* type, int* format, int* k,
                                                      int* c, int* h, int* w) {
  const FilterDescriptor* const found = find<FilterDescriptor>(descriptor);
  if (found == nullptr || found->dims != 4) return bad_param;
  put(type, found->data_type);
  put(format, found->format);
  int* const sizes[] = {k, c, h, w};
  for (int i = 0; i < 4; ++i) put(sizes[i], found->sizes[i]);
  return success;
}
GPUPOOL_LIBRARY_EXPORT int cudnnGetFilterSizeInBytes(const void* descriptor, std::size_t* size) {
  const FilterDescriptor* const found = find<FilterDescriptor>(descriptor);
  if (found == nullptr || size == nullptr) return bad_param;
  *size = found->dims == 0 ? 0 : bytes_of_data_type(found->data_type);
  for (int i = 0; i < found->dims; ++i) *size *= static_cast<std::size_t>(found->sizes[i]);
  return success;
}

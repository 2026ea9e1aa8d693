// Spatial transformers: grids of affine maps, samplers that read images by them, and their gradients.
#include "libraries/operations/spatial_transformer.h"

#include <algorithm>

#include "libraries/cudnn/handle.h"
#include "libraries/cudnn/tensors.h"

using namespace gpupool::cudnn;

namespace {

using gpupool::operations::SpatialTransformer;
using gpupool::operations::Transforming;

struct SpatialTransformerDescriptor : Marked<0x6e74000e> {
  int data_type = 0, dims = 0;
  int sizes[max_dims] = {};  // of what is made
};

/// The operation with its grid's sizes.
int operation_of(const void* descriptor, Transforming what, SpatialTransformer& operation) {
  const auto* const found = find<SpatialTransformerDescriptor>(descriptor);
  if (found == nullptr || found->dims == 0) return bad_param;
  const auto type = element_of(found->data_type);
  if (found->dims != SpatialTransformer::dims || !type) return not_supported;
  operation.what = what;
  operation.type = *type;
  operation.images = found->sizes[0];
  operation.height = found->sizes[2];
  operation.width = found->sizes[3];
  return success;
}

int make_grid(void* handle, const void* descriptor, const void* theta, const void* grid, Transforming what) {
  return guarded([&]() -> int {
    const Handle* const found = find_handle(handle);
    if (found == nullptr || theta == nullptr || grid == nullptr) return bad_param;
    SpatialTransformer operation;
    if (const int bad = operation_of(descriptor, what, operation); bad != success) return bad;
    operation.theta = reinterpret_cast<std::uintptr_t>(theta);
    operation.grid = reinterpret_cast<std::uintptr_t>(grid);
    return operation.sound() ? post(*found, operation) : not_supported;
  });
}

struct TensorArgument {
  const void *descriptor, *address;

  /// Of the transformer's type and dimensions.
  [[nodiscard]] std::optional<Tensor> of(Element type) const {
    const TensorDescriptor* const found = find<TensorDescriptor>(descriptor);
    if (found == nullptr || address == nullptr || found->dims != SpatialTransformer::dims ||
        element_of(found->data_type) != type)
      return std::nullopt;
    return tensor_of(*found, address);
  }
};

struct SamplerCall {
  const void* descriptor;
  const void *alpha, *beta, *grid_alpha, *grid_beta;  // the last two of a gradient
  TensorArgument x, y, dx;
  const void *grid, *grid_gradient;
};

bool same_sizes(const Tensor& one, const Tensor& other) {
  return std::equal(one.sizes, one.sizes + SpatialTransformer::dims, other.sizes);
}

int sample(void* handle, const SamplerCall& call, Transforming what) {
  return guarded([&]() -> int {
    const Handle* const found = find_handle(handle);
    const auto* const transformer = find<SpatialTransformerDescriptor>(call.descriptor);
    if (found == nullptr || call.alpha == nullptr || call.beta == nullptr || call.grid_alpha == nullptr ||
        call.grid_beta == nullptr || call.grid == nullptr || call.grid_gradient == nullptr)
      return bad_param;
    SpatialTransformer operation;
    if (const int bad = operation_of(transformer, what, operation); bad != success) return bad;
    const auto x = call.x.of(operation.type), y = call.y.of(operation.type), dx = call.dx.of(operation.type);
    if (!x || !y || !dx || !same_sizes(*dx, *x) || x->sizes[0] != y->sizes[0] || x->sizes[1] != y->sizes[1])
      return bad_param;
    if (!std::equal(y->sizes, y->sizes + SpatialTransformer::dims, transformer->sizes)) return bad_param;
    operation.x = *x;
    operation.y = *y;
    operation.dx = *dx;
    operation.grid = reinterpret_cast<std::uintptr_t>(call.grid);
    operation.grid_gradient = reinterpret_cast<std::uintptr_t>(call.grid_gradient);
    operation.alpha = scalar_of(call.alpha, operation.type);
    operation.beta = scalar_of(call.beta, operation.type);
    operation.grid_alpha = scalar_of(call.grid_alpha, operation.type);
    operation.grid_beta = scalar_of(call.grid_beta, operation.type);
    return operation.sound() ? post(*found, operation) : not_supported;
  });
}

}  // namespace

GPUPOOL_LIBRARY_EXPORT int cudnnCreateSpatialTransformerDescriptor(void** descriptor) {
  return create<SpatialTransformerDescriptor>(descriptor);
}
GPUPOOL_LIBRARY_EXPORT int cudnnDestroySpatialTransformerDescriptor(void* descriptor) {
  return destroy<SpatialTransformerDescriptor>(descriptor);
}
GPUPOOL_LIBRARY_EXPORT int cudnnSetSpatialTransformerNdDescriptor(void* descriptor, int sampler,
                                                                  int data_type, int dims, const int* sizes) {
  auto* const found = find<SpatialTransformerDescriptor>(descriptor);
  constexpr int bilinear = 0;  // the only one
  if (found == nullptr || sampler != bilinear || !is_data_type(data_type) || dims < 1 || sizes == nullptr)
    return bad_param;
  if (dims > max_dims) return not_supported;
  if (std::any_of(sizes, sizes + dims, [](int size) { return size < 1; })) return bad_param;
  found->data_type = data_type;
  found->dims = dims;
  std::copy_n(sizes, dims, found->sizes);
  return success;
}

GPUPOOL_LIBRARY_EXPORT int cudnnSpatialTfGridGeneratorForward(void* handle, const void* descriptor,
                                                              const void* theta, void* grid) {
  return make_grid(handle, descriptor, theta, grid, Transforming::grid);
}
GPUPOOL_LIBRARY_EXPORT int cudnnSpatialTfGridGeneratorBackward(void* handle, const void* descriptor,
                                                               const void* grid_gradient, void* theta) {
  return make_grid(handle, descriptor, theta, grid_gradient, Transforming::grid_gradient);
}

GPUPOOL_LIBRARY_EXPORT int cudnnSpatialTfSamplerForward(void* handle, void* descriptor, const void* alpha,
                                                        const void* x_descriptor, const void* x,
                                                        const void* grid, const void* beta,
                                                        const void* y_descriptor, void* y) {
  const TensorArgument of_x{x_descriptor, x};
  return sample(handle, {descriptor, alpha, beta, alpha, beta, of_x, {y_descriptor, y}, of_x, grid, grid},
                Transforming::sample);
}
GPUPOOL_LIBRARY_EXPORT int cudnnSpatialTfSamplerBackward(
    void* handle, void* descriptor, const void* alpha, const void* x_descriptor, const void* x,
    const void* beta, const void* dx_descriptor, void* dx, const void* grid_alpha, const void* dy_descriptor,
    const void* dy, const void* grid, const void* grid_beta, void* grid_gradient) {
  return sample(handle,
                {descriptor,
                 alpha,
                 beta,
                 grid_alpha,
                 grid_beta,
                 {x_descriptor, x},
                 {dy_descriptor, dy},
                 {dx_descriptor, dx},
                 grid,
                 grid_gradient},
                Transforming::sample_gradient);
}

// Reductions, and the gradient of a bias, which is one.
#include "libraries/operations/reduction.h"

#include "libraries/cudnn/handle.h"
#include "libraries/cudnn/tensors.h"

using namespace gpupool::cudnn;

namespace {

using gpupool::operations::Reduce;
using gpupool::operations::Reduction;

constexpr int index_bytes = 4;

/// Whether the result has the source's size or size 1 on every axis.
bool reduces(const TensorDescriptor& source, const TensorDescriptor& target) {
  if (source.dims != target.dims || source.dims == 0) return false;
  for (int i = 0; i < source.dims; ++i) {
    if (target.sizes[i] != source.sizes[i] && target.sizes[i] != 1) return false;
  }
  return true;
}

/// Whether a reduction tells where its result was, and how many bytes that takes.
std::size_t bytes_of_indices(const ReduceTensorDescriptor& descriptor, const TensorDescriptor& target) {
  const bool of_one = descriptor.operation >= 2 && descriptor.operation <= 4;
  if (descriptor.indices == 0 || !of_one) return 0;
  std::size_t count = index_bytes;
  for (int i = 0; i < target.dims; ++i) count *= static_cast<std::size_t>(target.sizes[i]);
  return count;
}

int reduction_size(void* handle, const void* descriptor, const void* source, const void* target,
                   std::size_t* bytes, bool of_indices) {
  const ReduceTensorDescriptor* const reduce = find<ReduceTensorDescriptor>(descriptor);
  const TensorDescriptor* const a = find<TensorDescriptor>(source);
  const TensorDescriptor* const c = find<TensorDescriptor>(target);
  if (find_handle(handle) == nullptr || reduce == nullptr || a == nullptr || c == nullptr ||
      bytes == nullptr || !reduces(*a, *c))
    return bad_param;
  *bytes = of_indices ? bytes_of_indices(*reduce, *c) : 0;
  return success;
}

}  // namespace

GPUPOOL_LIBRARY_EXPORT int cudnnGetReductionIndicesSize(void* handle, const void* descriptor,
                                                        const void* source, const void* target,
                                                        std::size_t* bytes) {
  return reduction_size(handle, descriptor, source, target, bytes, true);
}
GPUPOOL_LIBRARY_EXPORT int cudnnGetReductionWorkspaceSize(void* handle, const void* descriptor,
                                                          const void* source, const void* target,
                                                          std::size_t* bytes) {
  return reduction_size(handle, descriptor, source, target, bytes, false);
}

GPUPOOL_LIBRARY_EXPORT int cudnnReduceTensor(void* handle, const void* descriptor, void* indices,
                                             std::size_t indices_bytes, void*, std::size_t, const void* alpha,
                                             const void* source, const void* a, const void* beta,
                                             const void* target, void* c) {
  return guarded([&]() -> int {
    const Handle* const found = find_handle(handle);
    const ReduceTensorDescriptor* const reduce = find<ReduceTensorDescriptor>(descriptor);
    const TensorDescriptor* const of_a = find<TensorDescriptor>(source);
    const TensorDescriptor* const of_c = find<TensorDescriptor>(target);
    if (found == nullptr || reduce == nullptr || of_a == nullptr || of_c == nullptr || alpha == nullptr ||
        beta == nullptr || a == nullptr || c == nullptr || !reduces(*of_a, *of_c))
      return bad_param;
    const auto type = element_of(of_a->data_type);
    if (!type || !element_of(of_c->data_type)) return not_supported;
    const std::size_t needed = bytes_of_indices(*reduce, *of_c);
    if (needed != 0) {
      if (reduce->indices_type != 0) return not_supported;  // of 32 bits only, as documented
      if (indices == nullptr || indices_bytes < needed) return bad_param;
    }
    Reduction operation;
    operation.source = tensor_of(*of_a, a);
    operation.target = tensor_of(*of_c, c);
    operation.operation = static_cast<Reduce>(reduce->operation);
    operation.alpha = scalar_of(alpha, operation.target.type);
    operation.beta = scalar_of(beta, operation.target.type);
    operation.indices = needed != 0 ? reinterpret_cast<std::uintptr_t>(indices) : 0;
    return post(*found, operation);
  });
}

/// db = alpha · the sum of dy over all but the channels + beta · db.
GPUPOOL_LIBRARY_EXPORT int cudnnConvolutionBackwardBias(void* handle, const void* alpha, const void* source,
                                                        const void* dy, const void* beta, const void* target,
                                                        void* db) {
  return guarded([&]() -> int {
    const Handle* const found = find_handle(handle);
    const TensorDescriptor* const of_dy = find<TensorDescriptor>(source);
    const TensorDescriptor* const of_db = find<TensorDescriptor>(target);
    if (found == nullptr || of_dy == nullptr || of_db == nullptr || alpha == nullptr || beta == nullptr ||
        dy == nullptr || db == nullptr || !reduces(*of_dy, *of_db) || of_dy->data_type != of_db->data_type)
      return bad_param;
    for (int i = 0; i < of_db->dims; ++i) {
      if (of_db->sizes[i] != (i == 1 ? of_dy->sizes[1] : 1)) return bad_param;
    }
    const auto type = element_of(of_dy->data_type);
    if (!type || !is_real(*type)) return not_supported;
    Reduction operation;
    operation.source = tensor_of(*of_dy, dy);
    operation.target = tensor_of(*of_db, db);
    operation.alpha = scalar_of(alpha, *type);
    operation.beta = scalar_of(beta, *type);
    return post(*found, operation);
  });
}

// Dropout: states in device memory say which numbers come next, the reserve space keeps what was left out.
#include "libraries/operations/dropout.h"

#include <algorithm>

#include "libraries/cudnn/handle.h"
#include "libraries/cudnn/tensors.h"

using namespace gpupool::cudnn;

namespace {

using gpupool::operations::bytes_of_mask;
using gpupool::operations::Dropout;
using gpupool::operations::DropoutStates;
using gpupool::operations::Dropping;

/// Without states nothing can be left out at random.
int keep_settings(void* descriptor, void* handle, float rate, void* states, std::size_t bytes,
                  unsigned long long seed) {
  DropoutDescriptor* const found = find<DropoutDescriptor>(descriptor);
  if (found == nullptr || find_handle(handle) == nullptr || !(rate >= 0 && rate <= 1)) return bad_param;
  if (states != nullptr && bytes < sizeof(DropoutStates)) return bad_param;
  found->rate = rate;
  found->states = states;
  found->seed = seed;
  return success;
}

struct DropoutCall {
  const void *from_descriptor, *from, *into_descriptor;
  void *into, *reserve;
  std::size_t reserve_bytes;
};

int drop(void* handle, const void* descriptor, const DropoutCall& call, Dropping what) {
  return guarded([&]() -> int {
    const Handle* const found = find_handle(handle);
    const DropoutDescriptor* const dropout = find<DropoutDescriptor>(descriptor);
    const TensorDescriptor* const from = find<TensorDescriptor>(call.from_descriptor);
    const TensorDescriptor* const into = find<TensorDescriptor>(call.into_descriptor);
    if (found == nullptr || dropout == nullptr || from == nullptr || into == nullptr ||
        call.from == nullptr || call.into == nullptr || call.reserve == nullptr || into->dims == 0)
      return bad_param;
    if (from->dims != into->dims || !std::equal(from->sizes, from->sizes + from->dims, into->sizes) ||
        from->data_type != into->data_type)
      return bad_param;
    const auto type = element_of(into->data_type);
    if (!type || !is_real(*type)) return not_supported;
    Dropout operation;
    operation.from = tensor_of(*from, call.from);
    operation.into = tensor_of(*into, call.into);
    if (call.reserve_bytes < static_cast<std::size_t>(bytes_of_mask(operation.into.elements())))
      return bad_param;
    if (what == Dropping::forward && dropout->rate > 0 && dropout->states == nullptr) return bad_param;
    operation.states = reinterpret_cast<std::uintptr_t>(dropout->states);
    operation.mask = reinterpret_cast<std::uintptr_t>(call.reserve);
    operation.seed = dropout->seed;
    operation.rate = static_cast<double>(dropout->rate);
    operation.what = what;
    return post(*found, operation);
  });
}

}  // namespace

GPUPOOL_LIBRARY_EXPORT int cudnnCreateDropoutDescriptor(void** descriptor) {
  return create<DropoutDescriptor>(descriptor);
}
GPUPOOL_LIBRARY_EXPORT int cudnnDestroyDropoutDescriptor(void* descriptor) {
  return destroy<DropoutDescriptor>(descriptor);
}
GPUPOOL_LIBRARY_EXPORT int cudnnDropoutGetStatesSize(void* handle, std::size_t* bytes) {
  if (find_handle(handle) == nullptr || bytes == nullptr) return bad_param;
  *bytes = sizeof(DropoutStates);
  return success;
}
GPUPOOL_LIBRARY_EXPORT int cudnnDropoutGetReserveSpaceSize(const void* x, std::size_t* bytes) {
  const TensorDescriptor* const found = find<TensorDescriptor>(x);
  if (found == nullptr || bytes == nullptr) return bad_param;
  *bytes =
      found->dims == 0 ? 0 : static_cast<std::size_t>(bytes_of_mask(tensor_of(*found, nullptr).elements()));
  return success;
}
GPUPOOL_LIBRARY_EXPORT int cudnnSetDropoutDescriptor(void* descriptor, void* handle, float rate, void* states,
                                                     std::size_t bytes, unsigned long long seed) {
  return guarded([&]() -> int {
    if (const int bad = keep_settings(descriptor, handle, rate, states, bytes, seed); bad != success)
      return bad;
    if (states == nullptr) return success;
    Dropout operation;
    operation.states = reinterpret_cast<std::uintptr_t>(states);
    operation.seed = seed;
    return post(*find_handle(handle), operation);
  });
}
GPUPOOL_LIBRARY_EXPORT int cudnnRestoreDropoutDescriptor(void* descriptor, void* handle, float rate,
                                                         void* states, std::size_t bytes,
                                                         unsigned long long seed) {
  return keep_settings(descriptor, handle, rate, states, bytes, seed);
}
GPUPOOL_LIBRARY_EXPORT int cudnnGetDropoutDescriptor(const void* descriptor, void* handle, float* rate,
                                                     void** states, unsigned long long* seed) {
  const DropoutDescriptor* const found = find<DropoutDescriptor>(descriptor);
  if (found == nullptr || find_handle(handle) == nullptr) return bad_param;
  put(rate, found->rate);
  put(states, found->states);
  put(seed, static_cast<unsigned long long>(found->seed));
  return success;
}
GPUPOOL_LIBRARY_EXPORT int cudnnDropoutForward(void* handle, const void* descriptor, const void* x_descriptor,
                                               const void* x, const void* y_descriptor, void* y,
                                               void* reserve, std::size_t reserve_bytes) {
  return drop(handle, descriptor, {x_descriptor, x, y_descriptor, y, reserve, reserve_bytes},
              Dropping::forward);
}
GPUPOOL_LIBRARY_EXPORT int cudnnDropoutBackward(void* handle, const void* descriptor,
                                                const void* dy_descriptor, const void* dy,
                                                const void* dx_descriptor, void* dx, void* reserve,
                                                std::size_t reserve_bytes) {
  return drop(handle, descriptor, {dy_descriptor, dy, dx_descriptor, dx, reserve, reserve_bytes},
              Dropping::backward);
}

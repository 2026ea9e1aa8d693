// Local response normalisation across channels, and its gradient.
#include "libraries/operations/response_normalization.h"

#include <algorithm>

#include "libraries/cudnn/convolution.h"
#include "libraries/cudnn/handle.h"
#include "libraries/cudnn/tensors.h"

using namespace gpupool::cudnn;

namespace {

using gpupool::operations::ResponseNormalization;

struct TensorArgument {
  const void *descriptor, *address;
};

struct LrnCall {
  const void* descriptor;
  int mode;
  const void *alpha, *beta;
  TensorArgument x, y, dy, dx;  // the last two of a gradient alone
  bool backward;
};

int normalize(void* handle, const LrnCall& call) {
  return guarded([&]() -> int {
    const Handle* const found = find_handle(handle);
    const LrnDescriptor* const how = find<LrnDescriptor>(call.descriptor);
    const TensorDescriptor* const x = find<TensorDescriptor>(call.x.descriptor);
    constexpr int across_channels = 0;
    if (found == nullptr || how == nullptr || x == nullptr || call.alpha == nullptr || call.beta == nullptr ||
        call.mode != across_channels || x->dims < 3)
      return bad_param;
    if (x->dims > 2 + ResponseNormalization::space) return not_supported;
    const auto type = element_of(x->data_type);
    if (!type || !is_real(*type)) return not_supported;
    ResponseNormalization operation;
    const auto place = [&](const TensorArgument& argument, Tensor& into) {
      const TensorDescriptor* const of = find<TensorDescriptor>(argument.descriptor);
      if (of == nullptr || argument.address == nullptr || of->dims != x->dims ||
          of->data_type != x->data_type || !std::equal(x->sizes, x->sizes + x->dims, of->sizes))
        return false;
      into = of_five(tensor_of(*of, argument.address));
      return true;
    };
    if (!place(call.x, operation.x) || !place(call.y, operation.y)) return bad_param;
    if (call.backward && (!place(call.dy, operation.dy) || !place(call.dx, operation.dx))) return bad_param;
    operation.window = how->window;
    operation.coefficient = how->alpha;
    operation.exponent = how->beta;
    operation.k = how->k;
    operation.alpha = scalar_of(call.alpha, *type);
    operation.beta = scalar_of(call.beta, *type);
    operation.backward = call.backward;
    return post(*found, operation);
  });
}

}  // namespace

GPUPOOL_LIBRARY_EXPORT int cudnnLRNCrossChannelForward(void* handle, void* descriptor, int mode,
                                                       const void* alpha, const void* x_descriptor,
                                                       const void* x, const void* beta,
                                                       const void* y_descriptor, void* y) {
  return normalize(handle,
                   {descriptor, mode, alpha, beta, {x_descriptor, x}, {y_descriptor, y}, {}, {}, false});
}
GPUPOOL_LIBRARY_EXPORT int cudnnLRNCrossChannelBackward(void* handle, void* descriptor, int mode,
                                                        const void* alpha, const void* y_descriptor,
                                                        const void* y, const void* dy_descriptor,
                                                        const void* dy, const void* x_descriptor,
                                                        const void* x, const void* beta,
                                                        const void* dx_descriptor, void* dx) {
  return normalize(handle, {descriptor,
                            mode,
                            alpha,
                            beta,
                            {x_descriptor, x},
                            {y_descriptor, y},
                            {dy_descriptor, dy},
                            {dx_descriptor, dx},
                            true});
}

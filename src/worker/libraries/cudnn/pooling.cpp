// Pooling, softmax and response normalisation by cuDNN.
#include "libraries/operations/pooling.h"

#include <algorithm>

#include "libraries/operations/response_normalization.h"
#include "libraries/operations/softmax.h"
#include "worker/libraries/cudnn/dnn.h"

namespace gpupool::worker {

using operations::Pool;
using operations::Pooling;
using operations::ResponseNormalization;
using operations::Softmax;

CUresult run(const Execution& x, const Pooling& of) {
  Dnn dnn(x);
  // Also a dimension of length 1 counts where a window goes beyond it.
  int dims = dims_of({&of.x, &of.y});
  for (int d = 0; d < Pooling::space; ++d) {
    if (of.window[d] != 1 || of.padding[d] != 0) dims = std::max(dims, 2 + Pooling::space - d);
  }
  const int space = dims - 2, left_out = Pooling::space - space;
  int window[Pooling::space], padding[Pooling::space], stride[Pooling::space];
  for (int i = 0; i < space; ++i) {
    window[i] = static_cast<int>(of.window[left_out + i]);
    padding[i] = static_cast<int>(of.padding[left_out + i]);
    stride[i] = static_cast<int>(of.stride[left_out + i]);
  }
  constexpr int propagate = 1;
  const int mode = of.pool == Pool::maximum ? 0 : of.pool == Pool::average_with_padding ? 1 : 2;
  void* const pooling = dnn.make("Pooling");
  dnn.describe("cudnnSetPoolingNdDescriptor", pooling, mode, propagate, space,
               static_cast<const int*>(window), static_cast<const int*>(padding),
               static_cast<const int*>(stride));
  const DnnScalar alpha(of.alpha, of.x.type), beta(of.beta, of.x.type);
  void *const in = dnn.tensor(of.x, dims), *const out = dnn.tensor(of.y, dims);
  if (of.backward) {
    dnn.call("cudnnPoolingBackward", pooling, alpha.place(), out, place_of(of.y), dnn.tensor(of.dy, dims),
             place_of(of.dy), in, place_of(of.x), beta.place(), dnn.tensor(of.dx, dims), place_of(of.dx));
  } else {
    dnn.call("cudnnPoolingForward", pooling, alpha.place(), in, place_of(of.x), beta.place(), out,
             place_of(of.y));
  }
  return dnn.result();
}

CUresult run(const Execution& x, const ResponseNormalization& of) {
  Dnn dnn(x);
  const int dims = dims_of({&of.x});
  constexpr int across_channels = 0;
  void* const how = dnn.make("LRN");
  dnn.describe("cudnnSetLRNDescriptor", how, static_cast<unsigned>(of.window), of.coefficient, of.exponent,
               of.k);
  const DnnScalar alpha(of.alpha, of.x.type), beta(of.beta, of.x.type);
  void *const in = dnn.tensor(of.x, dims), *const out = dnn.tensor(of.y, dims);
  if (of.backward) {
    dnn.call("cudnnLRNCrossChannelBackward", how, across_channels, alpha.place(), out, place_of(of.y),
             dnn.tensor(of.dy, dims), place_of(of.dy), in, place_of(of.x), beta.place(),
             dnn.tensor(of.dx, dims), place_of(of.dx));
  } else {
    dnn.call("cudnnLRNCrossChannelForward", how, across_channels, alpha.place(), in, place_of(of.x),
             beta.place(), out, place_of(of.y));
  }
  return dnn.result();
}

CUresult run(const Execution& x, const Softmax& of) {
  Dnn dnn(x);
  const int dims = dims_of({&of.y});
  constexpr int accurate = 1, logarithm = 2;
  const int algorithm = of.logarithm ? logarithm : accurate, mode = of.of_instance ? 0 : 1;
  const DnnScalar alpha(of.alpha, of.y.type), beta(of.beta, of.y.type);
  void *const in = dnn.tensor(of.x, dims), *const out = dnn.tensor(of.y, dims);
  if (of.backward) {
    dnn.call("cudnnSoftmaxBackward", algorithm, mode, alpha.place(), out, place_of(of.y),
             dnn.tensor(of.dy, dims), place_of(of.dy), beta.place(), in, place_of(of.x));
  } else {
    dnn.call("cudnnSoftmaxForward", algorithm, mode, alpha.place(), in, place_of(of.x), beta.place(), out,
             place_of(of.y));
  }
  return dnn.result();
}

}  // namespace gpupool::worker

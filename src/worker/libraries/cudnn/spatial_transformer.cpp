// Spatial transformers by cuDNN.
#include "libraries/operations/spatial_transformer.h"

#include "worker/libraries/cudnn/dnn.h"

namespace gpupool::worker {

using operations::SpatialTransformer;
using operations::Transforming;

CUresult run(const Execution& x, const SpatialTransformer& of) {
  constexpr int bilinear = 0, dims = SpatialTransformer::dims;
  Dnn dnn(x);
  int sizes[dims];
  // Grids have no channels.
  const std::int64_t made[dims] = {of.images, of.reads_images() ? of.x.sizes[1] : 1, of.height, of.width};
  for (int i = 0; i < dims; ++i) {
    if (made[i] > 0x7fffffff) dnn.fail(Dnn::not_supported);
    sizes[i] = static_cast<int>(made[i]);
  }
  void* const how = dnn.make("SpatialTransformer");
  dnn.describe("cudnnSetSpatialTransformerNdDescriptor", how, bilinear, data_type_of(of.type), dims,
               static_cast<const int*>(sizes));
  auto* const grid = pointer<void>(of.grid);
  if (of.what == Transforming::grid) {
    dnn.call("cudnnSpatialTfGridGeneratorForward", how, pointer<void>(of.theta), grid);
    return dnn.result();
  }
  if (of.what == Transforming::grid_gradient) {
    dnn.call("cudnnSpatialTfGridGeneratorBackward", how, grid, pointer<void>(of.theta));
    return dnn.result();
  }
  const DnnScalar alpha(of.alpha, of.type), beta(of.beta, of.type);
  void *const in = dnn.tensor(of.x, dims), *const out = dnn.tensor(of.y, dims);
  if (of.what == Transforming::sample) {
    dnn.call("cudnnSpatialTfSamplerForward", how, alpha.place(), in, place_of(of.x), grid, beta.place(), out,
             place_of(of.y));
    return dnn.result();
  }
  const DnnScalar grid_alpha(of.grid_alpha, of.type), grid_beta(of.grid_beta, of.type);
  dnn.call("cudnnSpatialTfSamplerBackward", how, alpha.place(), in, place_of(of.x), beta.place(),
           dnn.tensor(of.dx, dims), place_of(of.dx), grid_alpha.place(), out, place_of(of.y), grid,
           grid_beta.place(), pointer<void>(of.grid_gradient));
  return dnn.result();
}

}  // namespace gpupool::worker

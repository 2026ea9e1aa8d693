// The handler that asks the driver about launches with clusters.
#include "generated/handlers.h"
#include "worker/conversation/call.h"
#include "worker/handlers/launch_attributes.h"

namespace gpupool::worker {

CUresult run_ClusterOccupancy(Call& x, const messages::ClusterOccupancy& m,
                              replies::ClusterOccupancy& reply) {
  CUfunction function = nullptr;
  CUstream stream = nullptr;
  if (!x.handles.find(wire::Kind::function, m.function, function) ||
      !x.handles.find(wire::Kind::stream, m.stream, stream)) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  std::vector<CUlaunchAttribute> attributes;
  if (const CUresult bad = read_launch_attributes(x, m.attributes, attributes); bad != CUDA_SUCCESS) {
    return bad;
  }
  const CUlaunchConfig config = launch_config(m, stream, attributes);
  return m.largest_cluster != 0 ? x.api.cuOccupancyMaxPotentialClusterSize_(&reply.value, function, &config)
                                : x.api.cuOccupancyMaxActiveClusters_(&reply.value, function, &config);
}

}  // namespace gpupool::worker

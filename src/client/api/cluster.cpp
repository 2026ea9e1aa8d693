// Occupancy of launches with thread block clusters: the driver knows.
#include <cuda.h>

#include "client/call/call.h"
#include "client/call/objects.h"
#include "client/objects/images.h"
#include "client/objects/launch_config.h"
#include "generated/client_api.h"

using namespace gpupool;
using namespace gpupool::client;

namespace {

CUresult occupancy(int* out, CUfunction function, const CUlaunchConfig* config, bool largest_cluster) {
  if (find_function(raw(function)) == nullptr) return bad_handle(wire::Kind::function);
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  EncodedAttributes attributes;
  if (const CUresult bad = attributes.encode(config, "cuOccupancyMaxActiveClusters"); bad != CUDA_SUCCESS) {
    return bad;
  }
  if (!known(wire::Kind::stream, config->hStream)) return CUDA_ERROR_INVALID_HANDLE;
  messages::ClusterOccupancy m;
  m.function = raw(function);
  m.largest_cluster = largest_cluster;
  describe_launch(m, *config);
  m.stream = raw(config->hStream);
  m.attributes = attributes.bytes();
  replies::ClusterOccupancy reply;
  const CUresult result = ask(m, reply);
  if (result == CUDA_SUCCESS) *out = reply.value;
  return result;
}

}  // namespace

namespace gpupool::client::api {

CUresult cuOccupancyMaxActiveClusters(int* numClusters, CUfunction func, const CUlaunchConfig* config) {
  return occupancy(numClusters, func, config, false);
}
CUresult cuOccupancyMaxPotentialClusterSize(int* clusterSize, CUfunction func, const CUlaunchConfig* config) {
  return occupancy(clusterSize, func, config, true);
}

}  // namespace gpupool::client::api

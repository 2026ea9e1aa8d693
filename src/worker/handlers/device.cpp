// What the driver says of a device beyond its attributes.
#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "generated/handlers.h"
#include "worker/conversation/call.h"
#include "worker/objects/elements.h"

namespace gpupool::worker {

CUresult run_CliqueInfo(Call& x, const messages::CliqueInfo& m, replies::CliqueInfo& reply) {
  CUdevice device = 0;
  if (!x.device(m.device, device)) return CUDA_ERROR_INVALID_DEVICE;
  static thread_local std::vector<CUcliqueInfo> cliques;  // the reply refers to it until it is encoded
  std::size_t count = m.count;
  if (!make_elements(count, cliques)) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = x.api.cuDeviceGetCliqueInfo_(cliques.data(), &count, device);
  if (result != CUDA_SUCCESS) return result;
  cliques.resize(std::min<std::size_t>(count, cliques.size()));
  reply.cliques = std::as_bytes(std::span(cliques));
  return CUDA_SUCCESS;
}

}  // namespace gpupool::worker

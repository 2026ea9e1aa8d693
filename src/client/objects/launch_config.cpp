#include "client/objects/launch_config.h"

#include <cstdint>
#include <cstring>

#include "client/call/objects.h"
#include "client/call/refuse.h"

namespace gpupool::client {

CUresult EncodedAttributes::encode(const CUlaunchConfig* config, const char* function) {
  if (config == nullptr || (config->numAttrs != 0 && config->attrs == nullptr) ||
      config->numAttrs > max_launch_attributes) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (unsigned n = 0; n < config->numAttrs; ++n) {
    const CUlaunchAttribute& attribute = config->attrs[n];
    const auto id = static_cast<std::int32_t>(attribute.id);
    if (id == CU_LAUNCH_ATTRIBUTE_IGNORE) continue;
    if (!is_launch_attribute(id)) return CUDA_ERROR_INVALID_VALUE;
    const auto& cluster = attribute.value.clusterDim;
    if (id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION && (cluster.x == 0 || cluster.y == 0 || cluster.z == 0))
      return CUDA_ERROR_INVALID_VALUE;
    if (launch_attribute_class(id) == LaunchAttribute::refused) {
      return static_cast<CUresult>(refuse(function, "one of the launch attributes is not supported"));
    }
    if (launch_attribute_class(id) == LaunchAttribute::event) {
      std::uint64_t recorded = 0;  // the launch records it, which the client does not follow
      std::memcpy(&recorded, &attribute.value, sizeof(recorded));
      if (Event* const event = tables().events.find(recorded)) event->elsewhere.raise(1);
    }
    if (id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE) {
      if (attribute.value.cooperative == 0) continue;
      cooperative_ = true;
    }
    std::memcpy(bytes_.data() + size_, &id, sizeof(id));
    std::memcpy(bytes_.data() + size_ + sizeof(id), &attribute.value, sizeof(attribute.value));
    size_ += sizeof(id) + sizeof(attribute.value);
  }
  return CUDA_SUCCESS;
}

}  // namespace gpupool::client

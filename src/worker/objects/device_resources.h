// The driver's descriptions of device resources that the client knows by number.
//
// A CUdevResource carries bytes that only the driver understands, and a client could make them up. So they
// stay here: the client gets the public part, with a number in the place of those bytes.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

namespace gpupool::worker {

class DeviceResources {
 public:
  static constexpr std::size_t most = 1 << 16;

  /// Makes a resource fit to be shown. False when the client has asked for too many different ones.
  [[nodiscard]] bool publish(CUdevResource& resource) {
    const std::string bytes(reinterpret_cast<const char*>(&resource), sizeof(resource));
    const auto [found, fresh] = numbers_.try_emplace(bytes, kept_.size());
    if (fresh) {
      if (kept_.size() >= most) {
        numbers_.erase(found);
        return false;
      }
      kept_.push_back(resource);
    }
    const std::uint64_t number = found->second;
    std::memset(resource._internal_padding, 0, sizeof(resource._internal_padding));
    std::memcpy(resource._internal_padding, &number, sizeof(number));
    resource.nextResource = nullptr;
    return true;
  }

  /// Puts the driver's bytes back. False for a resource that was never shown.
  [[nodiscard]] bool restore(CUdevResource& resource) const {
    std::uint64_t number = 0;
    std::memcpy(&number, resource._internal_padding, sizeof(number));
    if (number >= kept_.size() || kept_[number].type != resource.type) return false;
    CUdevResource own = kept_[number];
    if (own.type == CU_DEV_RESOURCE_TYPE_WORKQUEUE_CONFIG) {  // the program may choose these two
      own.wqConfig.wqConcurrencyLimit = resource.wqConfig.wqConcurrencyLimit;
      own.wqConfig.sharingScope = resource.wqConfig.sharingScope;
    }
    resource = own;
    return true;
  }

  void clear() {
    numbers_.clear();
    kept_.clear();
  }

 private:
  std::map<std::string, std::uint64_t> numbers_;
  std::vector<CUdevResource> kept_;
};

}  // namespace gpupool::worker

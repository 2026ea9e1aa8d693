// Physical memory of a device that counts against the share for as long as it exists, and multicast objects,
// whose handles are of the same kind and which count nothing.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <memory>

#include "worker/bound_memory.h"
#include "worker/driver.h"
#include "worker/memory_account.h"

namespace gpupool::worker {

/// Held by the client's handle and by each mapping. The driver keeps the memory while it is mapped, so its
/// own handle may be released earlier.
class PhysicalMemory {
 public:
  /// CUDA_ERROR_OUT_OF_MEMORY over the share.
  static CUresult create(const DriverApi& api, MemoryAccount& account, std::uint64_t size,
                         const CUmemAllocationProp& properties, std::shared_ptr<PhysicalMemory>& out) {
    if (!account.reserve(size)) return CUDA_ERROR_OUT_OF_MEMORY;
    CUmemGenericAllocationHandle handle = 0;
    const CUresult result = api.cuMemCreate_(&handle, size, &properties, 0);
    if (result != CUDA_SUCCESS) {
      account.release(size);
      return result;
    }
    out =
        std::shared_ptr<PhysicalMemory>(new PhysicalMemory(api, &account, size, properties.location, handle));
    return CUDA_SUCCESS;
  }
  static CUresult create_multicast(const DriverApi& api, const CUmulticastObjectProp& properties,
                                   std::shared_ptr<PhysicalMemory>& out) {
    CUmemGenericAllocationHandle handle = 0;
    const CUresult result = api.cuMulticastCreate_(&handle, &properties);
    if (result != CUDA_SUCCESS) return result;
    out = std::shared_ptr<PhysicalMemory>(new PhysicalMemory(api, nullptr, properties.size, {}, handle));
    return CUDA_SUCCESS;
  }
  ~PhysicalMemory() {
    api_.cuMemRelease_(handle_);
    if (account_ != nullptr) account_->release(size_);
  }
  PhysicalMemory(const PhysicalMemory&) = delete;
  PhysicalMemory& operator=(const PhysicalMemory&) = delete;

  [[nodiscard]] CUmemGenericAllocationHandle handle() const { return handle_; }
  [[nodiscard]] std::uint64_t size() const { return size_; }
  /// Nowhere in particular for a multicast object.
  [[nodiscard]] const CUmemLocation& location() const { return location_; }
  [[nodiscard]] bool is_multicast() const { return account_ == nullptr; }

  /// To a multicast object.
  BoundMemory bound;

 private:
  PhysicalMemory(const DriverApi& api, MemoryAccount* account, std::uint64_t size,
                 const CUmemLocation& location, CUmemGenericAllocationHandle handle)
      : api_(api), account_(account), size_(size), location_(location), handle_(handle) {}

  const DriverApi& api_;
  MemoryAccount* account_;  // null: a multicast object
  std::uint64_t size_;
  CUmemLocation location_;
  CUmemGenericAllocationHandle handle_;
};

}  // namespace gpupool::worker

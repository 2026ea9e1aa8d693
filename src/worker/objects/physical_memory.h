// Physical memory of a device that counts against the share for as long as it exists.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <memory>

#include "wire/transport/socket.h"
#include "worker/driver/driver.h"
#include "worker/lease/memory_account.h"

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
    return keep(result, api, account, size, properties.location, handle, out);
  }
  /// Memory of another worker. It counts against this share too: it lives on when the other one ends.
  static CUresult import(const DriverApi& api, MemoryAccount& account, std::uint64_t size,
                         const CUmemLocation& location, const wire::Socket& descriptor,
                         std::shared_ptr<PhysicalMemory>& out) {
    if (!account.reserve(size)) return CUDA_ERROR_OUT_OF_MEMORY;
    CUmemGenericAllocationHandle handle = 0;
    const auto number = reinterpret_cast<void*>(static_cast<std::intptr_t>(descriptor.fd()));
    const CUresult result =
        api.cuMemImportFromShareableHandle_(&handle, number, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    const CUresult kept = keep(result, api, account, size, location, handle, out);
    if (kept == CUDA_SUCCESS) {
      account.import_began();
      out->imported_ = true;
    }
    return kept;
  }
  ~PhysicalMemory() {
    api_.cuMemRelease_(handle_);
    account_.release(size_);
    if (imported_) account_.import_ended();
  }
  PhysicalMemory(const PhysicalMemory&) = delete;
  PhysicalMemory& operator=(const PhysicalMemory&) = delete;

  /// Makes `descriptor` one that another worker can be given.
  CUresult share() {
    if (descriptor_) return CUDA_SUCCESS;
    int fd = -1;
    const CUresult result =
        api_.cuMemExportToShareableHandle_(&fd, handle_, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    if (result == CUDA_SUCCESS) descriptor_ = wire::Socket(fd);
    return result;
  }

  [[nodiscard]] int descriptor() const { return descriptor_.fd(); }
  [[nodiscard]] CUmemGenericAllocationHandle handle() const { return handle_; }
  [[nodiscard]] std::uint64_t size() const { return size_; }
  [[nodiscard]] const CUmemLocation& location() const { return location_; }

  /// How the program wanted it made.
  std::uint8_t compression = 0, rdma = 0;

 private:
  PhysicalMemory(const DriverApi& api, MemoryAccount& account, std::uint64_t size,
                 const CUmemLocation& location, CUmemGenericAllocationHandle handle)
      : api_(api), account_(account), size_(size), location_(location), handle_(handle) {}

  static CUresult keep(CUresult result, const DriverApi& api, MemoryAccount& account, std::uint64_t size,
                       const CUmemLocation& location, CUmemGenericAllocationHandle handle,
                       std::shared_ptr<PhysicalMemory>& out) {
    if (result != CUDA_SUCCESS) {
      account.release(size);
      if (result == CUDA_ERROR_OUT_OF_MEMORY) account.refused(size);
      return result;
    }
    out = std::shared_ptr<PhysicalMemory>(new PhysicalMemory(api, account, size, location, handle));
    return CUDA_SUCCESS;
  }

  const DriverApi& api_;
  MemoryAccount& account_;
  std::uint64_t size_;
  CUmemLocation location_;
  CUmemGenericAllocationHandle handle_;
  wire::Socket descriptor_;  // once it was shared
  bool imported_ = false;
};

}  // namespace gpupool::worker

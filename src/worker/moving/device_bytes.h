// Device memory in pieces, on its way into a session image and out of one.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "worker/objects/physical_memory.h"

namespace gpupool::worker {

class Session;

/// Throws std::runtime_error that names the call.
void need(CUresult result, const char* call);

/// Addresses of a whole piece of physical memory, wherever the program has mapped it or whether it has.
class DeviceWindow {
 public:
  /// Throws std::runtime_error.
  DeviceWindow(const DriverApi& api, std::shared_ptr<PhysicalMemory> memory);
  ~DeviceWindow();
  DeviceWindow(const DeviceWindow&) = delete;
  DeviceWindow& operator=(const DeviceWindow&) = delete;

  [[nodiscard]] CUdeviceptr address() const { return address_; }

 private:
  void give_up() noexcept;

  const DriverApi& api_;
  std::shared_ptr<PhysicalMemory> memory_;
  CUdeviceptr address_ = 0;
  bool mapped_ = false;
};

/// Where bytes of a device lie. `context` is one of that device.
struct DeviceRange {
  CUcontext context = nullptr;
  CUdeviceptr address = 0;
  std::uint64_t size = 0;
  bool reachable = false;  ///< by the CPU, at the same addresses
};

/// Calls `use` with the bytes from `offset` on in pieces of SessionImage::chunk_bytes, in order. All work on
/// them is complete. Leaves another context current. Throws std::runtime_error.
void read_device(Session& session, const DeviceRange& range, std::uint64_t offset, std::uint64_t size,
                 const std::function<void(std::span<const std::byte>)>& use);

}  // namespace gpupool::worker

// One software device: its identity, its attributes, its memory budget, its primary context and its default
// pool.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "base/mutex.h"
#include "softgpu/driver/backing/arena.h"
#include "softgpu/driver/backing/physical_memory.h"
#include "softgpu/driver/base/cuda_api.h"
#include "softgpu/driver/described/card_identity.h"
#include "softgpu/driver/described/device_limits.h"
#include "softgpu/driver/described/identity.h"
#include "softgpu/driver/described/settings.h"

namespace softgpu::driver {

class Context;
class MemoryPool;

class Device {
 public:
  // `card`: which of the machine's cards it is.
  Device(int ordinal, int card, const Settings& settings);
  ~Device();

  int ordinal() const { return ordinal_; }
  const char* name() const { return driver_identity.device_name; }
  // Which of the machine's cards it is: its own number, until a checkpoint is restored onto another one. All
  // that identifies a device follows the card; ordinal, handles and addresses do not.
  int card() const { return card_.load(); }
  void set_card(int card) { card_ = card; }
  CUuuid uuid() const { return uuid_of_card(card()); }
  int pci_bus() const { return pci_bus_of_card(card()); }
  std::string pci_bus_id() const { return pci_bus_id_of_card(card()); }
  const DeviceLimits& limits() const { return limits_; }
  int capability_major() const { return settings_.capability_major; }
  int capability_minor() const { return settings_.capability_minor; }
  int capability() const { return settings_.capability(); }
  // Throws Error(INVALID_VALUE) for a number that is no attribute.
  int attribute(CUdevice_attribute id) const;

  // Memory budget. reserve() throws Error(OUT_OF_MEMORY) and changes nothing when `size` does not fit.
  std::size_t total_memory() const { return settings_.memory_bytes; }
  std::size_t used_memory() const { return used_.load(); }
  void reserve(std::size_t size);
  void unreserve(std::size_t size);
  // Memory in use counts nothing during a checkpoint.
  void park_account();
  void unpark_account();
  std::size_t parked_memory() const { return parked_; }

  // Ordinary device memory, counted against the budget. Throws Error(OUT_OF_MEMORY).
  std::uint64_t allocate(std::size_t size, std::size_t alignment);
  void free(std::uint64_t address, std::size_t size);

  // Tells other processes what is in use.
  void publish() const;

  Arena& arena() { return arena_; }
  PhysicalMemory& physical() { return physical_; }
  const std::shared_ptr<MemoryPool>& shared_default_pool() const { return default_pool_; }

  // Primary context life cycle (api/context.cpp).
  gpupool::Mutex primary_mutex;
  std::shared_ptr<Context> primary GUARDED_BY(primary_mutex);
  unsigned primary_flags GUARDED_BY(primary_mutex) = 0;
  int primary_users GUARDED_BY(primary_mutex) = 0;
  // The pool that cuMemAllocAsync uses; the default pool unless cuDeviceSetMemPool chose another.
  gpupool::Mutex pool_mutex;
  std::shared_ptr<MemoryPool> current_pool GUARDED_BY(pool_mutex);

 private:
  const int ordinal_;
  const Settings settings_;
  const DeviceLimits limits_;
  std::atomic<int> card_;
  std::atomic<std::size_t> used_{0};
  std::size_t parked_ = 0;  // guarded by the checkpoint
  Arena arena_;
  PhysicalMemory physical_;
  std::shared_ptr<MemoryPool> default_pool_;
};

}  // namespace softgpu::driver

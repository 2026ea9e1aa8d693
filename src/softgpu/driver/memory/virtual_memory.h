// Virtual memory management: reserved address ranges, physical allocations, and mappings between them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "base/mutex.h"
#include "softgpu/driver/backing/shared_file.h"
#include "softgpu/driver/base/cuda_api.h"

namespace softgpu::driver {

class Device;

class VirtualMemory {
 public:
  static VirtualMemory& of_process();

  // Reserves address space. A requested address is honoured if that range is free, else another is chosen.
  // Throws Error(INVALID_VALUE) for a size or alignment that is no multiple of 2 MiB, Error(OUT_OF_MEMORY).
  std::uint64_t reserve(std::size_t size, std::size_t alignment, std::uint64_t requested);
  void release_reservation(std::uint64_t base, std::size_t size);

  // Physical memory of a device, counted against its budget from here on.
  CUmemGenericAllocationHandle create(Device& device, std::size_t size,
                                      const CUmemAllocationProp& properties);
  // A descriptor for another process. Throws Error(NOT_SUPPORTED) for memory that was not made for that.
  int export_descriptor(CUmemGenericAllocationHandle handle) const;
  // Memory of another process; counted against that one's budget.
  CUmemGenericAllocationHandle import_descriptor(int descriptor);
  void release(CUmemGenericAllocationHandle handle);
  CUmemAllocationProp properties(CUmemGenericAllocationHandle handle) const;
  // The handle behind a mapped address, with one more reference.
  CUmemGenericAllocationHandle retain(std::uint64_t address);

  void map(std::uint64_t address, std::size_t size, std::size_t offset, CUmemGenericAllocationHandle handle);
  void unmap(std::uint64_t address, std::size_t size);
  // [address, address + size) must be whole mappings.
  void set_access(std::uint64_t address, std::size_t size, CUmemAccess_flags access);

  // Takes all mappings off their addresses, which stay reserved; unpark() makes them again. The memory itself
  // stays in its files. Throw Error(OPERATING_SYSTEM) or Error(MAP_FAILED).
  void park();
  void unpark();

  // The reservation with the most memory mapped into it: {begin, end, mapped bytes}; zeros if there is none.
  struct Window {
    std::uint64_t begin = 0, end = 0;
    std::size_t mapped = 0;
  };
  Window busiest() const;

 private:
  struct Physical {
    Physical(Device& device, std::size_t offset, std::size_t size, const CUmemAllocationProp& properties,
             std::uint64_t id)
        : device(device), offset(offset), size(size), properties(properties), id(id) {}
    Physical(Device& device, SharedFile file, bool imported, const CUmemAllocationProp& properties,
             std::uint64_t id)
        : device(device),
          offset(0),
          size(file.size()),
          properties(properties),
          id(id),
          file(std::move(file)),
          imported(imported) {}
    ~Physical();
    // Over reserved address space, without access. Throws Error(MAP_FAILED).
    void map(std::uint64_t address, std::size_t length, std::size_t from) const;
    Physical(const Physical&) = delete;
    Physical& operator=(const Physical&) = delete;

    Device& device;
    const std::size_t offset, size;
    const CUmemAllocationProp properties;
    const std::uint64_t id;
    const std::optional<SharedFile> file;  // else an extent of the device's common one
    const bool imported = false;
  };
  struct Handle {
    std::shared_ptr<Physical> memory;
    int references = 1;
  };
  struct Reservation {
    std::size_t size = 0;
    std::size_t mapped = 0;
  };
  struct Mapping {
    std::size_t size = 0;
    std::shared_ptr<Physical> memory;
    std::size_t offset = 0;  // in the memory
  };

  std::map<std::uint64_t, Reservation>::iterator reservation_of(std::uint64_t address, std::size_t size)
      REQUIRES(mutex_);

  mutable gpupool::Mutex mutex_;
  std::uint64_t next_handle_ GUARDED_BY(mutex_) = 1;
  std::map<CUmemGenericAllocationHandle, Handle> handles_ GUARDED_BY(mutex_);
  std::map<std::uint64_t, Reservation> reservations_ GUARDED_BY(mutex_);
  std::map<std::uint64_t, Mapping> mappings_ GUARDED_BY(mutex_);
};

}  // namespace softgpu::driver

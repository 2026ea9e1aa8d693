// Allocation and release of the kinds of memory a context owns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "softgpu/driver/backing/allocation_table.h"
#include "softgpu/driver/backing/arena.h"

namespace softgpu::driver {

class Context;
class MemoryPool;

// Device or managed memory, at least 512-byte aligned. Throws Error(INVALID_VALUE) for size 0,
// Error(OUT_OF_MEMORY).
std::uint64_t allocate_device(Context& context, std::size_t size, MemoryKind kind,
                              std::shared_ptr<MemoryPool> pool = nullptr,
                              std::size_t alignment = allocation_alignment);
// The same, from a pool and counted by it: memory of the pool's device, which may be another than the
// context's.
std::uint64_t allocate_from(const std::shared_ptr<MemoryPool>& pool, Context& context, std::size_t size);
// Releases what they gave. Throws Error(INVALID_VALUE) if address is not the start of such memory.
void free_device(std::uint64_t address);

// Page-aligned host memory that kernels may access at the same address. Throws Error(OUT_OF_MEMORY).
void* allocate_host(Context& context, std::size_t size, unsigned flags);
void free_host(void* address);

// Lets kernels access [address, address + size) of the program's own memory.
// Throws Error(HOST_MEMORY_ALREADY_REGISTERED) / Error(HOST_MEMORY_NOT_REGISTERED).
void register_host(Context& context, void* address, std::size_t size, unsigned flags);
void unregister_host(void* address);

// Everything of one context, at its end.
void free_memory_of(const Context& context);

// True if the address is memory the driver knows to be page-locked or on the device (so an asynchronous copy
// may touch it later); false for pageable memory.
bool is_known_memory(std::uint64_t address, std::size_t size);

}  // namespace softgpu::driver

// Moving bytes between this process and the device.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <optional>

#include "client/call/objects.h"

namespace gpupool::client {

/// Rows of `width` bytes, `pitch` apart, in planes `slice_pitch` apart.
struct Block {
  std::uint64_t address = 0;
  std::uint64_t pitch = 0;
  std::uint64_t slice_pitch = 0;
};
struct Extent {
  std::uint64_t width = 0, height = 1, depth = 1;
};

CUresult copy_from_host(CUdeviceptr to, const void* from, std::size_t size, CUstream stream,
                        bool asynchronous);
CUresult copy_to_host(void* to, CUdeviceptr from, std::size_t size, CUstream stream, bool asynchronous);
CUresult copy_on_device(CUdeviceptr to, CUdeviceptr from, std::size_t size, CUstream stream,
                        bool asynchronous);

CUresult copy_rows_from_host(const Block& to, const Block& from, const Extent& extent, CUstream stream,
                             bool asynchronous);
CUresult copy_rows_to_host(const Block& to, const Block& from, const Extent& extent, CUstream stream,
                           bool asynchronous);
CUresult copy_rows_on_device(const Block& to, const Block& from, const Extent& extent, CUstream stream);

/// Whether an address means device memory where the API leaves it open (unified addressing).
bool is_device_address(std::uint64_t address);

/// Two workers may have one at one address.
void remember_global(const Global& global);
/// Before its module goes: then its address may be given to something else.
void forget_global(const Global& global);
/// The one that holds the address.
std::optional<Global> global_at(std::uint64_t address);

}  // namespace gpupool::client

#include "softgpu/driver/memory/neighbours.h"

#include <algorithm>
#include <cstdio>

#include "softgpu/driver/backing/allocation_table.h"

namespace softgpu::driver {
namespace {

constexpr std::uint64_t null_page_bytes = 4096;
// Farther away than this nobody has missed an array by counting wrong.
constexpr std::uint64_t far_bytes = std::uint64_t{1} << 32;
// As near as this, a live array is named beside a freed one.
constexpr std::uint64_t close_bytes = 4096;

std::string hexadecimal(std::uint64_t address) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(address));
  return text;
}

std::string bytes_text(std::uint64_t count) {
  return std::to_string(count) + (count == 1 ? " byte" : " bytes");
}

const char* call_of(const Allocation& allocation) {
  switch (allocation.kind) {
    case MemoryKind::device:
      return allocation.pool != nullptr ? "cuMemAllocAsync" : "cuMemAlloc";
    case MemoryKind::managed:
      return "cuMemAllocManaged";
    case MemoryKind::host:
      return "cuMemHostAlloc";
    case MemoryKind::registered_host:
      return "cuMemHostRegister";
    case MemoryKind::mapped:
      return "cuMemMap";
  }
  return "the driver";
}

std::string block_text(const Allocation& allocation) {
  return "the " + bytes_text(allocation.size) + " at " + hexadecimal(allocation.base) + " from " +
         call_of(allocation);
}

}  // namespace

std::string describe_neighbours(std::uint64_t address, std::size_t size) {
  if (address < null_page_bytes)
    return "the address is " + std::string(address == 0 ? "" : "almost ") + "a null pointer";
  const AllocationTable::Neighbours near = AllocationTable::of_process().neighbours(address);
  if (near.holds) {
    const std::uint64_t left = near.holds->end() - address;
    if (!near.holds->accessible)
      return "no access has been set (cuMemSetAccess) for " + block_text(*near.holds);
    if (left < size) {
      return "only " + bytes_text(left) + " of it are the last of " + block_text(*near.holds);
    }
    return "it is in " + block_text(*near.holds);
  }
  std::string text;
  if (near.freed) {
    text = "it is byte " + std::to_string(address - near.freed->base) +
           " of memory that was freed: " + block_text(*near.freed);
  }
  const std::uint64_t behind = near.before ? address - near.before->end() : far_bytes;
  const std::uint64_t ahead = near.after ? near.after->base - address : far_bytes;
  const std::uint64_t nearest = std::min(behind, ahead);
  if (near.freed && nearest >= close_bytes) return text;
  if (nearest >= far_bytes) return "no allocation is near";
  if (near.freed) text += "; ";
  return text + "this is " + bytes_text(nearest) +
         (behind <= ahead ? " behind the end of " + block_text(*near.before)
                          : " in front of " + block_text(*near.after));
}

}  // namespace softgpu::driver

// What this process has given other processes tickets of: when it goes, the tickets go with it.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <span>

#include "client/memory/device_memory.h"
#include "protocol/export_ticket.h"

namespace gpupool::client {

/// Whether a block is memory of cuMemAlloc, which cuIpcGetMemHandle takes.
[[nodiscard]] bool can_be_exported(const DeviceMemory::Found& block);

/// Asks for the ticket of a block; `pool` is the one it belongs to, or 0.
CUresult export_memory(const DeviceMemory::Found& block, std::uint64_t pool,
                       std::span<std::byte, ExportTicket::bytes> out);
/// Of an event that was made for it.
CUresult export_event(std::uint64_t event, std::uint64_t context,
                      std::span<std::byte, ExportTicket::bytes> out);
CUresult export_physical(std::uint64_t memory, std::span<std::byte, ExportTicket::bytes> out);
CUresult export_pool(std::uint64_t pool, int device, std::span<std::byte, ExportTicket::bytes> out);

/// The object ends. Costs nothing when no tickets of it were asked for.
void end_export(ExportKind kind, int device, std::uint64_t object);

}  // namespace gpupool::client

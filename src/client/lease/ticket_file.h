// A file descriptor that stands for memory of this session: a sealed memory file that holds a ticket.
//
// The driver's own descriptors are on the node. Programs pass descriptors over sockets and to children, and
// both work with this one as well.
#pragma once

#include <cuda.h>

#include <array>
#include <cstddef>

#include "protocol/export_ticket.h"

namespace gpupool::client {

using TicketBytes = std::array<std::byte, ExportTicket::bytes>;

/// CUDA_ERROR_OPERATING_SYSTEM when there is no descriptor to be had.
CUresult make_ticket_file(const TicketBytes& ticket, int& descriptor);
/// False for a descriptor of anything else. The descriptor stays the caller's.
[[nodiscard]] bool read_ticket_file(int descriptor, TicketBytes& ticket);

}  // namespace gpupool::client

// Memory of other processes that this one has opened: by cuIpcOpenMemHandle, or out of an imported pool.
#pragma once

#include <cuda.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <optional>
#include <span>

#include "base/mutex.h"
#include "client/memory/virtual_memory.h"
#include "protocol/export_ticket.h"

namespace gpupool::client {

class OpenedMemory {
 public:
  using Ticket = std::array<std::byte, ExportTicket::bytes>;

  struct Block {
    std::uint64_t address = 0, size = 0;  ///< as in the process that allocated it
    int device = 0;
    std::uint64_t context = 0;  ///< it was opened in
    std::uint64_t pool = 0;     ///< this process's handle of the pool; 0: opened by cuIpcOpenMemHandle
  };

  /// Gives the block an address in this process; the same one again while it is open in the same context.
  /// `foreign_pool`: the giver's handle of the pool that the block must belong to; 0: of none.
  CUresult open(const Ticket& ticket, std::uint64_t context, std::uint64_t pool, std::uint64_t foreign_pool,
                CUdeviceptr& out);
  /// Undoes one open. CUDA_ERROR_INVALID_VALUE for an address that none gave. `pooled`: as in Block::pool.
  CUresult close(std::uint64_t address, bool pooled);
  void close_all_of(std::uint64_t context);

  /// The block that holds the address.
  [[nodiscard]] std::optional<Block> find(std::uint64_t address);
  /// The session is over (session_belongings.h).
  void forget();

 private:
  struct Opened {
    Block block;
    Ticket ticket{};
    std::uint64_t mapping = 0, mapping_size = 0, memory = 0;
    int references = 0;
  };

  CUresult map(std::uint64_t memory, const ImportedMemory& imported, std::uint64_t& mapping);
  CUresult undo(const Opened& opened);

  Mutex opening_;  // one after the other, also while the worker is asked: the same block is opened once
  Mutex mutex_;
  std::map<std::uint64_t, Opened> opened_ GUARDED_BY(mutex_);  // by address
  std::atomic<bool> any_{false};
};

/// One per process, never destroyed.
OpenedMemory& opened_memory();

}  // namespace gpupool::client

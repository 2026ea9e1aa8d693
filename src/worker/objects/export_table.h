// What a session has given out to other processes of its user.
#pragma once

#include <cuda.h>

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/sha256.h"
#include "protocol/export_ticket.h"
#include "worker/objects/physical_memory.h"

namespace gpupool::worker {

/// One object, as another worker needs it.
struct Export {
  ExportKind kind = ExportKind::memory;
  std::string uuid;                      ///< of the device; empty for an event
  std::weak_ptr<PhysicalMemory> memory;  ///< memory, physical: given out as long as the session has it
  std::uint64_t offset = 0, length = 0;  ///< memory: the block in it
  std::uint64_t pool = 0;                ///< memory of a pool, pool: the client's handle of the pool
  std::uint64_t event = 0;               ///< event: the client's handle
  CUipcEventHandle event_handle{};       ///< event: what the driver says to another process
};

/// Thread-safe: the executing thread fills it, the export door looks things up.
class ExportTable {
 public:
  static constexpr std::size_t most = 1 << 16;

  /// `office`: the name that this worker is found by.
  explicit ExportTable(const std::array<std::uint8_t, 16>& office) : office_(office) {}

  /// The same object has the same ticket each time. Nothing when there are too many, or no random numbers.
  [[nodiscard]] std::optional<ExportTicket> add(Export object);
  /// Nothing for a ticket that was not given out, or whose object is gone.
  [[nodiscard]] std::optional<Export> find(const ExportTicket& ticket) const;
  /// Whether another process can still be given something.
  [[nodiscard]] bool gives_out_any() const;
  [[nodiscard]] const std::array<std::uint8_t, 16>& office() const { return office_; }
  [[nodiscard]] bool is_own(const ExportTicket& ticket) const { return ticket.office == office_; }

  /// The block at `offset` of a memory is freed.
  void end_memory(const PhysicalMemory* memory, std::uint64_t offset);
  void end_event(std::uint64_t event);
  void end_pool(std::uint64_t pool);
  void clear();
  /// Objects that are given out at present.
  [[nodiscard]] std::size_t size() const {
    const std::lock_guard lock(mutex_);
    return entries_.size();
  }

 private:
  struct Entry {
    ExportTicket ticket;
    Export object;
  };

  const std::array<std::uint8_t, 16> office_;
  mutable std::mutex mutex_;
  /// By a digest of the secret, so that how long a search takes tells nothing about the secrets.
  std::map<Digest, Entry> entries_;
};

}  // namespace gpupool::worker

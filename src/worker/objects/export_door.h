// Where other workers of this node fetch what a session has given out: a Unix socket in the abstract
// namespace, so that nothing of it outlives the process. Memory goes as a descriptor of the driver.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

#include "protocol/export_ticket.h"
#include "wire/transport/socket.h"
#include "worker/objects/export_table.h"

namespace gpupool::worker {

/// Stands for the user whom a session belongs to.
using UserKey = std::array<std::uint8_t, 32>;

/// Answers whoever runs as the same operating-system user, serves the same user of the pool and has a ticket.
class ExportDoor {
 public:
  ExportDoor(const std::array<std::uint8_t, 16>& office, const UserKey& user, const ExportTable& exports);
  ~ExportDoor();
  ExportDoor(const ExportDoor&) = delete;
  ExportDoor& operator=(const ExportDoor&) = delete;

  /// Before the first ticket is given out: most sessions never need the door. False when it cannot be opened.
  [[nodiscard]] bool open();

 private:
  void run();
  void answer(const wire::Socket& visitor);

  const std::array<std::uint8_t, 16> office_;
  const UserKey user_;
  const ExportTable& exports_;
  wire::Socket listener_;
  std::thread thread_;
};

/// What another worker gives for a ticket.
struct FetchedExport {
  Export object;            ///< without `memory`
  wire::Socket descriptor;  ///< of the memory, for the driver
  std::uint64_t size = 0;   ///< of the whole memory
};

/// Asks the worker that a ticket names; waits a few seconds at most. CUDA_ERROR_INVALID_HANDLE when there is
/// no such worker or it does not know the ticket.
[[nodiscard]] CUresult fetch_export(const ExportTicket& ticket, const UserKey& user, FetchedExport& out);

/// A name for a new door. Throws std::runtime_error without random numbers.
[[nodiscard]] std::array<std::uint8_t, 16> random_office();

}  // namespace gpupool::worker

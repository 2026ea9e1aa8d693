// What the node agent writes to a new worker's stdin: who it serves, with which devices, until when.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "worker/lease/worker_state.h"

namespace gpupool::worker {

struct StartRecord {
  std::array<std::uint8_t, 16> session{};
  std::array<std::uint8_t, 32> token{};                  ///< which the client shows
  std::optional<std::array<std::uint8_t, 32>> move_key;  ///< which another worker shows; none: none may come
  std::uint32_t epoch = 0;
  std::int64_t deadline_ns = 0;                      ///< CLOCK_BOOTTIME
  std::vector<DeviceShare> devices;                  ///< 1..max_devices
  std::optional<std::array<std::uint8_t, 32>> user;  ///< stands for whom the session belongs to
  std::string image_cache;                           ///< path; empty = none
  std::uint64_t image_cache_mib = 0;
  std::uint64_t context_reserve_mib = 0;  ///< of each share, for what the driver takes for a context itself
  std::int64_t drain_ms = 4000;           ///< so long after a lease's end what still computes is stopped
  Mps mps = Mps::none;                    ///< what the agent has set this process up for
  std::string image;                      ///< folder of a session image to resume; empty = none
  std::string image_from;                 ///< address of the worker to fetch one from; empty = none
};

inline constexpr std::size_t max_start_record = 64 * 1024;
inline constexpr std::size_t max_devices = 64;
inline constexpr std::uint64_t max_mib = 1ULL << 40;  // so that bytes fit 64 bits

/// Parses the lines before the empty one. Throws std::runtime_error that names the key, never its value: a
/// token is among them.
[[nodiscard]] StartRecord parse_start_record(std::string_view text);

/// Waits until `fd` has something to be read or has ended, for as long as that takes.
void await_start_record(int fd);

/// Reads from `fd` until an empty line or the end of the stream. Throws std::runtime_error when the record is
/// larger than max_start_record or not complete within `timeout_ms`.
[[nodiscard]] std::string read_start_record(int fd, int timeout_ms);

}  // namespace gpupool::worker

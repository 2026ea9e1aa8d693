// The session file: how a process learns that it has a share. Text, one `key value` per line.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gpupool::client {

/// `waiting`: the lease was taken back for another, and its holder has asked for one again: calls wait.
enum class FileState { none, queued, attached, waiting, parked, closed };

/// A worker beside the first one, with devices of its own.
struct FurtherWorker {
  std::array<std::uint8_t, 16> session{};
  std::uint32_t epoch = 0;
  std::string address;
  std::array<std::uint8_t, 32> token{};  ///< never logged
};

struct SessionFile {
  static constexpr std::size_t max_workers = 16;
  static constexpr unsigned max_devices = 64;

  FileState state = FileState::none;
  std::array<std::uint8_t, 16> session{};  ///< this and the next three: of the first worker
  std::uint64_t generation = 0;
  std::uint32_t epoch = 0;
  std::string address;
  std::array<std::uint8_t, 32> token{};  ///< never logged
  std::vector<FurtherWorker> further;
  std::vector<unsigned> devices;  ///< how many each worker has, in order; empty: all are the first one's
  std::string message;
  bool software = false;
  bool resumes = false;        ///< when the lease is taken back for another, its holder asks again by itself
  bool told = false;           ///< the user has been told already, by the holder, what `message` says
  std::uint64_t answered = 0;  ///< number of the latest wish that has its answer (attach_again.h)
  std::string profile;
  std::string log;

  [[nodiscard]] std::size_t workers() const { return 1 + further.size(); }
  /// What the file says of one worker, as if it were the only one. One that it does not name has no session.
  [[nodiscard]] SessionFile of_worker(std::size_t number) const;
};

/// Parses the text; unknown keys are skipped. `error` names what is wrong, without quoting secrets.
std::optional<SessionFile> parse_session_file(std::string_view text, std::string& error);

/// Reads a file of at most 64 KiB. Empty on failure.
std::optional<std::string> read_small_file(const std::string& path, std::size_t limit = 64 << 10);

}  // namespace gpupool::client

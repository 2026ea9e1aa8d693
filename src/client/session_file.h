// The session file: how a process learns that it has a share. Text, one `key value` per line.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace gpupool::client {

enum class FileState { none, queued, attached, parked, closed };

struct SessionFile {
  FileState state = FileState::none;
  std::array<std::uint8_t, 16> session{};
  std::uint64_t generation = 0;
  std::uint32_t epoch = 0;
  std::string address;
  std::array<std::uint8_t, 32> token{};  ///< never logged
  std::string message;
  bool software = false;
  std::string profile;
  std::string log;
};

/// Parses the text; unknown keys are skipped. `error` names what is wrong, without quoting secrets.
std::optional<SessionFile> parse_session_file(std::string_view text, std::string& error);

/// Reads a file of at most 64 KiB. Empty on failure.
std::optional<std::string> read_small_file(const std::string& path, std::size_t limit = 64 << 10);

}  // namespace gpupool::client

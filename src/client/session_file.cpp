#include "client/session_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <charconv>
#include <span>

namespace gpupool::client {
namespace {

template <class T>
bool number(std::string_view text, T& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc{} && end == text.data() + text.size();
}

bool hex(std::string_view text, std::span<std::uint8_t> out) {
  if (text.size() != out.size() * 2) return false;
  for (std::size_t n = 0; n < out.size(); ++n) {
    const auto pair = text.substr(2 * n, 2);
    const auto [end, error] = std::from_chars(pair.data(), pair.data() + 2, out[n], 16);
    if (error != std::errc{} || end != pair.data() + 2) return false;
  }
  return true;
}

bool state_of(std::string_view text, FileState& out) {
  constexpr std::pair<std::string_view, FileState> names[] = {
      {"none", FileState::none},     {"queued", FileState::queued}, {"attached", FileState::attached},
      {"parked", FileState::parked}, {"closed", FileState::closed}, {"warned", FileState::attached},
  };
  for (const auto& [name, state] : names) {
    if (text == name) {
      out = state;
      return true;
    }
  }
  return false;
}

}  // namespace

std::optional<SessionFile> parse_session_file(std::string_view text, std::string& error) {
  SessionFile file;
  bool has_session = false, has_token = false;
  int version = 0;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    const std::size_t space = line.find(' ');
    const std::string_view key = line.substr(0, space);
    const std::string_view value =
        space == std::string_view::npos ? std::string_view{} : line.substr(space + 1);
    bool good = true;
    if (key == "version") {
      good = number(value, version) && version == 1;
    } else if (key == "state") {
      good = state_of(value, file.state);
    } else if (key == "session" && !value.empty()) {
      good = has_session = hex(value, file.session);
    } else if (key == "generation") {
      good = number(value, file.generation);
    } else if (key == "epoch") {
      good = number(value, file.epoch);
    } else if (key == "address") {
      file.address = value;
    } else if (key == "token" && !value.empty()) {
      good = has_token = hex(value, file.token);
    } else if (key == "message") {
      file.message = value;
    } else if (key == "software") {
      file.software = value == "1";
    } else if (key == "profile") {
      file.profile = value;
    } else if (key == "log") {
      file.log = value;
    }
    if (!good) {
      error = "the session file has a bad value for '" + std::string(key) + "'";
      return std::nullopt;
    }
  }
  if (version != 1) {
    error = "the session file has no version";
    return std::nullopt;
  }
  if (file.state == FileState::attached &&
      (!has_session || !has_token || file.address.empty() || file.epoch == 0)) {
    error = "the session file says attached but names no session, token, address or epoch";
    return std::nullopt;
  }
  return file;
}

std::optional<std::string> read_small_file(const std::string& path, std::size_t limit) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return std::nullopt;
  std::string text(limit, '\0');
  std::size_t size = 0;
  while (size < limit) {
    const ssize_t got = read(fd, text.data() + size, limit - size);
    if (got <= 0) break;
    size += static_cast<std::size_t>(got);
  }
  close(fd);
  text.resize(size);
  return text;
}

}  // namespace gpupool::client

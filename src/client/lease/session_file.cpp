#include "client/lease/session_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <charconv>
#include <set>
#include <span>
#include <utility>

namespace gpupool::client {
namespace {

template <class T>
bool parse_number(std::string_view text, T& out) {
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
      {"none", FileState::none},       {"queued", FileState::queued}, {"attached", FileState::attached},
      {"parked", FileState::parked},   {"closed", FileState::closed}, {"warned", FileState::attached},
      {"waiting", FileState::waiting},
  };
  for (const auto& [name, state] : names) {
    if (text == name) {
      out = state;
      return true;
    }
  }
  return false;
}

/// `1,2,1`: at least one for each, and no more in all than a session may have.
bool device_counts(std::string_view text, std::vector<unsigned>& out) {
  unsigned all = 0;
  out.clear();
  while (true) {
    const std::size_t comma = text.find(',');
    unsigned count = 0;
    if (!parse_number(text.substr(0, comma), count) || count == 0 || count > SessionFile::max_devices)
      return false;
    all += count;
    out.push_back(count);
    if (all > SessionFile::max_devices || out.size() > SessionFile::max_workers) return false;
    if (comma == std::string_view::npos) return true;
    text.remove_prefix(comma + 1);
  }
}

/// `session.1` and so on: what is said of the workers beside the first one.
class FurtherKeys {
 public:
  /// Whether the key is of this kind.
  static bool takes(std::string_view key) {
    const std::string_view name = key.substr(0, key.find('.'));
    return name.size() < key.size() &&
           (name == "session" || name == "epoch" || name == "address" || name == "token");
  }
  bool take(std::string_view key, std::string_view value) {
    const std::size_t dot = key.find('.');
    const std::string_view digits = key.substr(dot + 1);
    std::size_t which = 0;
    if (digits.starts_with('0') || !parse_number(digits, which) || which == 0 ||
        which >= SessionFile::max_workers)
      return false;
    if (!seen_.emplace(which, key.front()).second) return false;  // each once
    if (workers_.size() < which) workers_.resize(which);
    FurtherWorker& worker = workers_[which - 1];
    switch (key.front()) {
      case 's':
        return hex(value, worker.session);
      case 'e':
        return parse_number(value, worker.epoch) && worker.epoch != 0;
      case 'a':
        worker.address = value;
        return !value.empty();
      default:
        return hex(value, worker.token);
    }
  }
  /// Whether every worker up to the last is described as a whole.
  [[nodiscard]] bool complete() const { return seen_.size() == 4 * workers_.size(); }
  /// Whether no number is left out.
  [[nodiscard]] bool contiguous() const {
    for (std::size_t which = 1; which <= workers_.size(); ++which) {
      const auto first = seen_.lower_bound({which, '\0'});
      if (first == seen_.end() || first->first != which) return false;
    }
    return true;
  }
  std::vector<FurtherWorker> workers() && { return std::move(workers_); }

 private:
  std::vector<FurtherWorker> workers_;
  std::set<std::pair<std::size_t, char>> seen_;
};

}  // namespace

SessionFile SessionFile::of_worker(std::size_t which) const {
  SessionFile one = *this;
  one.further.clear();
  one.devices.clear();
  if (which < devices.size()) one.devices = {devices[which]};
  if (which == 0) return one;
  const FurtherWorker worker = which <= further.size() ? further[which - 1] : FurtherWorker{};
  one.session = worker.session;
  one.epoch = worker.epoch;
  one.address = worker.address;
  one.token = worker.token;
  return one;
}

std::optional<SessionFile> parse_session_file(std::string_view text, std::string& error) {
  SessionFile file;
  FurtherKeys further;
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
      good = parse_number(value, version) && version == 1;
    } else if (key == "state") {
      good = state_of(value, file.state);
    } else if (key == "session" && !value.empty()) {
      good = has_session = hex(value, file.session);
    } else if (key == "generation") {
      good = parse_number(value, file.generation);
    } else if (key == "epoch") {
      good = parse_number(value, file.epoch);
    } else if (key == "address") {
      file.address = value;
    } else if (key == "token" && !value.empty()) {
      good = has_token = hex(value, file.token);
    } else if (key == "message") {
      file.message = value;
    } else if (key == "software") {
      file.software = value == "1";
    } else if (key == "resumes") {
      file.resumes = value == "1";
    } else if (key == "told") {
      file.told = value == "1";
    } else if (key == "answered") {
      good = parse_number(value, file.answered);
    } else if (key == "profile") {
      file.profile = value;
    } else if (key == "log") {
      file.log = value;
    } else if (key == "devices") {
      good = device_counts(value, file.devices);
    } else if (FurtherKeys::takes(key)) {
      good = further.take(key, value);
    }
    if (!good) {
      // Only the part of a key that is known: damage may have put a secret behind it.
      error = "the session file has a bad value for '" + std::string(key.substr(0, key.find('.'))) + "'";
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
  if (!further.contiguous() || (file.state == FileState::attached && !further.complete())) {
    error = "the session file leaves out a worker, or what is to be known of one";
    return std::nullopt;
  }
  file.further = std::move(further).workers();
  if (!file.further.empty() || !file.devices.empty()) {
    // Of a session that is parked the file need not say where its workers are.
    const bool fits = file.state == FileState::attached ? file.devices.size() == file.workers()
                                                        : file.devices.size() >= file.workers();
    if (!fits) {
      error = "the session file does not say how many devices each worker has";
      return std::nullopt;
    }
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

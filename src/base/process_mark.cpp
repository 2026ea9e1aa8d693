#include "base/process_mark.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/text_fields.h"

namespace gpupool::process_mark {
namespace {

/// Empty: there is no session file.
std::string beside_session(const char* suffix) {
  const char* const session = std::getenv("GPUPOOL_SESSION_FILE");
  return session == nullptr || *session == '\0' ? std::string() : std::string(session) + suffix;
}

}  // namespace

std::optional<std::uint64_t> start_ticks(unsigned pid) {
  const int fd = open(("/proc/" + std::to_string(pid) + "/stat").c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return std::nullopt;
  std::array<char, 1024> text;
  const ssize_t got = read(fd, text.data(), text.size());
  close(fd);
  if (got <= 0) return std::nullopt;
  std::string_view rest(text.data(), static_cast<std::size_t>(got));
  // The name stands in brackets and may hold anything, brackets and blanks too; the start is field 22.
  const std::size_t name_end = rest.rfind(')');
  if (name_end == rest.npos || name_end + 2 > rest.size()) return std::nullopt;
  rest.remove_prefix(name_end + 2);
  for (int field = 3; field < 22; ++field) static_cast<void>(next_field(rest, ' '));
  return parse_number<std::uint64_t>(next_field(rest, ' '));
}

void mark_process() {
  const auto ticks = start_ticks(static_cast<unsigned>(getpid()));
  if (ticks) write_beside_session(".process", std::to_string(getpid()) + ' ' + std::to_string(*ticks) + '\n');
}

void write_beside_session(const char* suffix, std::string_view text) {
  const std::string path = beside_session(suffix);
  if (path.empty()) return;
  const std::string fresh = path + '.' + std::to_string(getpid());
  const int fd = open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) return;
  const bool written = write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  close(fd);
  if (!written || rename(fresh.c_str(), path.c_str()) != 0) unlink(fresh.c_str());
}

void remove_beside_session(const char* suffix) {
  const std::string path = beside_session(suffix);
  if (!path.empty()) unlink(path.c_str());
}

}  // namespace gpupool::process_mark

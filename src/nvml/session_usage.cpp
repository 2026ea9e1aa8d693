#include "nvml/session_usage.h"

#include <array>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <string>

#include "base/process_mark.h"
#include "base/text_fields.h"

namespace gpupool::nvml {
namespace {

constexpr std::int64_t longest_age_ns = 30'000'000'000;
constexpr std::size_t most_devices = 64;

std::string read_beside_session(const char* suffix) {
  const char* const session = std::getenv("GPUPOOL_SESSION_FILE");
  if (session == nullptr || *session == '\0') return {};
  std::ifstream file(std::string(session) + suffix, std::ios::binary);
  std::array<char, 4096> text;
  file.read(text.data(), text.size());
  return {text.data(), static_cast<std::size_t>(file.gcount())};
}

std::int64_t boottime_ns() {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace

std::optional<SessionUsage> parse_usage(std::string_view text) {
  SessionUsage usage;
  bool has_time = false, has_busy = false;
  while (!text.empty()) {
    std::string_view value = next_field(text, '\n');
    const std::string_view key = next_field(value, ' ');
    if (key == "time_ns") {
      const auto time = parse_number<std::int64_t>(value);
      if (!time || *time < 0) return std::nullopt;
      usage.time_ns = *time;
      has_time = true;
    } else if (key == "busy_permille") {
      const auto permille = parse_number<unsigned>(value);
      if (!permille || *permille > 1000) return std::nullopt;
      usage.busy = *permille / 1000.0;
      has_busy = true;
    } else if (key == "memory_used") {
      while (!value.empty()) {
        const auto bytes = parse_number<std::uint64_t>(next_field(value, ','));
        if (!bytes || usage.memory_used.size() == most_devices) return std::nullopt;
        usage.memory_used.push_back(*bytes);
      }
    }
  }
  if (!has_time || !has_busy) return std::nullopt;
  return usage;
}

std::optional<SessionUsage> read_session_usage() {
  const auto usage = parse_usage(read_beside_session(".usage"));
  if (!usage) return std::nullopt;
  const std::int64_t age = boottime_ns() - usage->time_ns;
  return age >= 0 && age <= longest_age_ns ? usage : std::nullopt;
}

std::optional<SessionProcess> parse_process(std::string_view text) {
  std::string_view line = next_field(text, '\n');
  const auto pid = parse_number<unsigned>(next_field(line, ' '));
  const auto ticks = parse_number<std::uint64_t>(line);
  if (!pid || !ticks || *pid == 0) return std::nullopt;
  return SessionProcess{*pid, *ticks};
}

std::optional<unsigned> session_process() {
  const auto process = parse_process(read_beside_session(".process"));
  if (!process || process_mark::start_ticks(process->pid) != process->start_ticks) return std::nullopt;
  return process->pid;
}

}  // namespace gpupool::nvml

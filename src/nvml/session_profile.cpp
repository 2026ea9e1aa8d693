#include "nvml/session_profile.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <stdexcept>

#include "base/text_fields.h"

namespace gpupool::nvml {
namespace {

constexpr std::size_t max_file = 1U << 20;

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(max_file + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  return text.size() > max_file ? std::string{} : text;
}

void parse_shares(std::string_view text, std::map<unsigned, std::uint64_t>& shares) {
  while (!text.empty()) {
    std::string_view entry = next_field(text, ',');
    const auto ordinal = parse_number<unsigned>(next_field(entry, ':'));
    const auto milli = parse_number<unsigned>(next_field(entry, ':'));
    const auto mib = parse_number<std::uint64_t>(entry);
    if (ordinal && milli && mib && *mib <= (1ULL << 40)) shares[*ordinal] = *mib;
  }
}

}  // namespace

SessionFacts parse_session(std::string_view text) {
  SessionFacts facts;
  while (!text.empty()) {
    std::string_view line = next_field(text, '\n');
    const std::string_view key = next_field(line, ' ');
    if (key == "profile") facts.profile_path = line;
    if (key == "share") parse_shares(line, facts.share_mib);
  }
  return facts;
}

std::optional<DeviceProfile> read_session_profile() {
  const char* path = std::getenv("GPUPOOL_SESSION_FILE");
  if (path == nullptr || *path == '\0') return std::nullopt;
  const SessionFacts facts = parse_session(read_file(path));
  DeviceProfile profile;
  if (facts.profile_path.empty()) return profile;
  try {
    profile = parse_profile(read_file(facts.profile_path));
  } catch (const std::runtime_error&) {
    return DeviceProfile{};
  }
  for (const auto& [ordinal, mib] : facts.share_mib) {
    if (ordinal < profile.devices.size()) {
      std::uint64_t& total = profile.devices[ordinal].total_mib;
      total = std::min(total, mib);
    }
  }
  return profile;
}

}  // namespace gpupool::nvml

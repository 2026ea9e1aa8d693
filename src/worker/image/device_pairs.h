// Which card every device of the process gets when some of them are to change.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace gpupool::worker {

/// From each device's UUID to the one that takes its place. Every device of the process is named, as a driver
/// wants it: whose place is taken gets the place that was left. Nothing when a wish is no device of the
/// process or is wished for twice; empty when nothing changes. `present`: by the driver's ordinal. `wishes`:
/// ordinal to UUID.
[[nodiscard]] inline std::optional<std::vector<std::pair<std::string, std::string>>> device_pairs(
    const std::vector<std::string>& present, const std::map<std::size_t, std::string>& wishes) {
  std::vector<std::string> after = present;
  std::vector<bool> fixed(present.size());
  for (const auto& [ordinal, wish] : wishes) {
    if (ordinal >= present.size()) return std::nullopt;
    std::size_t at = 0;
    while (at < after.size() && after[at] != wish) ++at;
    if (at == after.size() || (fixed[at] && at != ordinal)) return std::nullopt;
    std::swap(after[at], after[ordinal]);
    fixed[ordinal] = true;
  }
  std::vector<std::pair<std::string, std::string>> pairs;
  if (after == present) return pairs;
  for (std::size_t n = 0; n < present.size(); ++n) pairs.emplace_back(present[n], after[n]);
  return pairs;
}

}  // namespace gpupool::worker

#include "softgpu/differential/shrink.h"

#include <algorithm>

namespace softgpu::differential {

// Whole statements first, the largest before what is inside of them; then single lines; until nothing more
// goes.
std::vector<bool> shrink(const Program& program,
                         const std::function<bool(const std::vector<bool>&)>& still_differs) {
  std::vector<std::pair<size_t, size_t>> units = program.groups;
  for (size_t i = 0; i < program.lines.size(); ++i) {
    if (program.lines[i].removable) units.emplace_back(i, i + 1);
  }
  std::stable_sort(units.begin(), units.end(),
                   [](const auto& a, const auto& b) { return a.second - a.first > b.second - b.first; });
  std::vector<bool> kept(program.lines.size(), true);
  for (bool smaller = true; smaller;) {
    smaller = false;
    // Many at a time while that works, then one by one.
    for (size_t stretch = std::max<size_t>(1, units.size() / 2);; stretch /= 2) {
      for (size_t first = 0; first < units.size(); first += stretch) {
        std::vector<bool> candidate = kept;
        for (size_t u = first; u < std::min(first + stretch, units.size()); ++u) {
          std::fill(candidate.begin() + static_cast<ptrdiff_t>(units[u].first),
                    candidate.begin() + static_cast<ptrdiff_t>(units[u].second), false);
        }
        if (candidate == kept || !still_differs(candidate)) continue;
        kept = std::move(candidate);
        smaller = true;
      }
      if (stretch == 1) break;
    }
  }
  return kept;
}

}  // namespace softgpu::differential

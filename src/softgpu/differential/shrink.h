// Makes a program that shows a difference smaller.
#pragma once

#include <functional>
#include <vector>

#include "softgpu/differential/program.h"

namespace softgpu::differential {

// The lines to keep. `still_differs` runs a candidate; false also where a candidate is no valid program.
[[nodiscard]] std::vector<bool> shrink(const Program& program,
                                       const std::function<bool(const std::vector<bool>&)>& still_differs);

}  // namespace softgpu::differential

// CUDA_VISIBLE_DEVICES, as NVIDIA's driver reads it.
#pragma once

#include <string_view>
#include <vector>

namespace softgpu::driver {

// Which of `cards` cards a process sees, in its order: numbers, or UUIDs (`GPU-`, then as many digits as tell
// the card from others), separated by commas. The list ends before the first entry that names no card, or one
// that was named before.
std::vector<int> visible_cards(std::string_view list, int cards);

}  // namespace softgpu::driver

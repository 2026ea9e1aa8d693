// Who waits where in a block: for errors about barriers that do not open and kernels that do not end.
#pragma once

#include <cstdint>
#include <string>

namespace softgpu {

struct Block;

// "32 threads from (0, 0, 0) on wait at barrier 1 (PTX line 9); 32 threads have ended". The largest groups
// come first, and what is too long is counted only.
[[nodiscard]] std::string waiting_text(const Block& block);
// Why no thread of the block can go on.
[[nodiscard]] std::string stuck_text(const Block& block);

// That the launch has used up its time, and where this block is.
[[nodiscard]] std::string late_text(const Block& block);

}  // namespace softgpu

// What one transport costs: a blocking call, and large copies beside a copy within one process.
#pragma once

#include <cstddef>

namespace gpupool::bench {

/// Measures over whatever transport the client runtime chooses, and prints one JSON object.
void print_transport_figures(std::size_t rounds);

}  // namespace gpupool::bench

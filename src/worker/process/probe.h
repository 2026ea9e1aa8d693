// `gpupool-worker --probe`: what a driver has to lend.
#pragma once

#include <string>

namespace gpupool::worker {

/// Opens the driver at `path` and prints its profile on stdout. Exit status: 0; 1 driver unusable; 3 no
/// device.
int probe_main(const std::string& path);

/// Opens and initialises the driver ahead of its use: that is what takes long. No context is made, for each
/// costs device memory that nobody has been granted yet. The driver stays open. Throws std::runtime_error.
void warm_up(const std::string& path);

}  // namespace gpupool::worker

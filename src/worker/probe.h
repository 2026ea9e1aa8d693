// `gpupool-worker --probe`: what a driver has to lend.
#pragma once

#include <string>

namespace gpupool::worker {

/// Opens the driver at `path` and prints its profile on stdout. Exit status: 0; 1 driver unusable; 3 no
/// device.
int probe_main(const std::string& path);

}  // namespace gpupool::worker

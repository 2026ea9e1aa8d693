// cudnnStatus_t, and what the driver's results are in it (cudnn_graph.h).
#pragma once

#include <cuda.h>

#include "libraries/shared/export.h"
#include "libraries/shared/status.h"

namespace gpupool::cudnn {

enum Status : int {
  success = 0,
  not_initialized = 1001,
  bad_param = 2000,
  bad_param_null_pointer = 2002,
  bad_param_not_finalized = 2004,
  bad_param_out_of_bound = 2005,
  bad_param_size_insufficient = 2006,
  bad_param_shape_mismatch = 2008,
  bad_param_attribute_type = 2010,
  bad_param_descriptor_type = 2012,
  not_supported = 3000,
  not_supported_graph_pattern = 3001,
  not_supported_shape = 3002,
  not_supported_data_type = 3003,
  not_supported_layout = 3004,
  internal_error = 4000,
  host_allocation_failed = 4003,
  device_allocation_failed = 4004,
  execution_failed = 5000,
  execution_failed_driver = 5001,
};

inline Status status_of(CUresult result) {
  return libraries::status_of(
      result, libraries::Outcomes<Status>{success, device_allocation_failed, not_supported, not_initialized,
                                          execution_failed_driver});
}

template <class Body>
int guarded(Body&& body) noexcept {
  return libraries::guarded<int>(host_allocation_failed, internal_error, [&]() -> int { return body(); });
}

}  // namespace gpupool::cudnn

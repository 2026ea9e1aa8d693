// Where the sentence about a kernel's fault goes: standard error and the error log (cuLogs*), of which a
// worker hands it to the program that it serves.
#pragma once

#include <string>

#include "softgpu/driver/base/cuda_api.h"

namespace softgpu::driver {

void report_fault(CUresult code, const std::string& detail);

}  // namespace softgpu::driver

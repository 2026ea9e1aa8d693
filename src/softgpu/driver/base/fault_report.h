// Where the sentence about a kernel's fault, or an image that does not load, goes: standard error and the
// error log (cuLogs*), of which a worker hands it to the program that it serves.
#pragma once

#include <string>

#include "softgpu/driver/base/cuda_api.h"

namespace softgpu::driver {

void report_fault(CUresult code, const std::string& detail);
// Why an image could not be loaded. On standard error once for each reason: programs try again and again.
void report_refused_image(CUresult code, const std::string& detail);

}  // namespace softgpu::driver

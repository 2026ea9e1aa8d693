#include "softgpu/driver/base/fault_report.h"

#include <cstdio>

#include "shared_api/error_log.h"
#include "softgpu/driver/base/error.h"
#include "softgpu/driver/described/identity.h"

namespace softgpu::driver {

void report_fault(CUresult code, const std::string& detail) {
  const std::string line = std::string(driver_identity.log_name) + ": " + error_text(code) + ": " + detail;
  std::fprintf(stderr, "%s\n", line.c_str());
  gpupool::error_log().add(line);
}

}  // namespace softgpu::driver

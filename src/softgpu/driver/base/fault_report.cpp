#include "softgpu/driver/base/fault_report.h"

#include <cstdio>
#include <set>

#include "base/mutex.h"
#include "shared_api/error_log.h"
#include "softgpu/driver/base/error.h"
#include "softgpu/driver/described/identity.h"

namespace softgpu::driver {

namespace {

constexpr std::size_t most_remembered = 1000;

std::string line_of(CUresult code, const std::string& detail) {
  std::string line = std::string(driver_identity.log_name) + ": " + error_text(code) + ": " + detail;
  while (line.ends_with('\n')) line.pop_back();
  return line;
}

}  // namespace

void report_fault(CUresult code, const std::string& detail) {
  const std::string line = line_of(code, detail);
  std::fprintf(stderr, "%s\n", line.c_str());
  gpupool::error_log().add(line);
}

void report_refused_image(CUresult code, const std::string& detail) {
  static gpupool::Mutex mutex;
  static std::set<std::string>& told = *new std::set<std::string>;
  const std::string line = line_of(code, detail);
  const bool is_new = [&] {
    const gpupool::MutexLock lock(mutex);
    return told.size() < most_remembered && told.insert(line).second;
  }();
  if (is_new) std::fprintf(stderr, "%s\n", line.c_str());
  gpupool::error_log().add(line);
}

}  // namespace softgpu::driver

// Error texts, profiler control.
#include "softgpu/driver/entry.h"

using namespace softgpu::driver;

CUresult cuGetErrorName(CUresult error, const char** pStr) {
  return entry_any_time([&] {
    require(pStr != nullptr);
    *pStr = error_name(error);
    require(*pStr != nullptr);
  });
}

CUresult cuGetErrorString(CUresult error, const char** pStr) {
  return entry_any_time([&] {
    require(pStr != nullptr);
    *pStr = error_text(error);
    require(*pStr != nullptr);
  });
}

// There is no profiler to steer; programs bracket their work with these two unconditionally.
CUresult cuProfilerStart(void) {
  return entry([] {});
}

CUresult cuProfilerStop(void) {
  return entry([] {});
}

// What a GPU's driver cannot do: all work of this process stops between two instructions, and goes on later.
#include "softgpu/driver/stand_still.h"

#include "softgpu/driver/published_usage.h"
#include "softgpu/exec/standstill.h"

extern "C" int gpupool_softgpu_stand_still(int on) {
  auto& standstill = softgpu::Standstill::of_process();
  try {
    if (on == 0) {
      softgpu::driver::PublishedUsage::get().stand_still(false);
      standstill.end();
    } else {
      standstill.begin();
      softgpu::driver::PublishedUsage::get().stand_still(true);
    }
  } catch (const std::exception&) {
    return CUDA_ERROR_OPERATING_SYSTEM;
  }
  return CUDA_SUCCESS;
}

#include "softgpu/driver/program/launch.h"

#include <algorithm>
#include <cstring>

#include "softgpu/driver/base/error.h"
#include "softgpu/driver/base/registry.h"
#include "softgpu/driver/described/occupancy.h"
#include "softgpu/driver/device/driver.h"
#include "softgpu/driver/device/published_usage.h"
#include "softgpu/driver/program/kernel_execution.h"
#include "softgpu/driver/program/library.h"
#include "softgpu/driver/program/module.h"
#include "softgpu/driver/program/packed_program.h"
#include "softgpu/driver/stream/context.h"
#include "softgpu/driver/stream/current_context.h"

namespace softgpu::driver {
namespace {

// From the array of pointers, or from the buffer named in `extra`. Throws Error(INVALID_VALUE).
std::vector<std::byte> pack_parameters(const softgpu::KernelInfo& kernel, void** parameters, void** extra) {
  std::vector<std::byte> packed(kernel.parameter_bytes);
  if (parameters) {
    for (std::size_t i = 0; i < kernel.parameters.size(); ++i) {
      require(parameters[i] != nullptr);
      const softgpu::ParameterInfo& info = kernel.parameters[i];
      std::memcpy(packed.data() + info.offset, parameters[i], info.size);
    }
    return packed;
  }
  if (!extra) {
    require(kernel.parameters.empty());
    return packed;
  }
  const void* buffer = nullptr;
  std::size_t size = 0;
  for (; *extra != CU_LAUNCH_PARAM_END; extra += 2) {
    if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER) {
      buffer = extra[1];
    } else if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE) {
      size = *static_cast<const std::size_t*>(extra[1]);
    } else {
      fail(CUDA_ERROR_INVALID_VALUE);
    }
  }
  require(buffer != nullptr || packed.empty());
  // A buffer may stop behind the last parameter's bytes, before the padding.
  const std::size_t needed =
      kernel.parameters.empty() ? 0 : kernel.parameters.back().offset + kernel.parameters.back().size;
  require(size >= needed);
  if (needed) std::memcpy(packed.data(), buffer, std::min(size, packed.size()));
  return packed;
}

void check_shape(const Function& function, const LaunchShape& shape) {
  const Device& device = function.module().context().device();
  const auto limit = [&](CUdevice_attribute id) { return static_cast<std::uint32_t>(device.attribute(id)); };
  const auto& [grid, block, dynamic_shared, cooperative] = shape;
  require(grid.x && grid.y && grid.z && block.x && block.y && block.z);
  require(grid.x <= limit(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X) &&
          grid.y <= limit(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y) &&
          grid.z <= limit(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z));
  require(block.x <= limit(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X) &&
          block.y <= limit(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y) &&
          block.z <= limit(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z));
  const std::uint64_t threads = std::uint64_t{block.x} * block.y * block.z;
  require(threads <= limit(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK));
  require(dynamic_shared <= function.dynamic_shared_limit());
  const softgpu::KernelInfo& kernel = function.info();
  require(threads <= kernel.max_threads_per_block);  // launch bounds; registers fit any block within them
  if (const auto& needed = kernel.required_block; needed.x) {
    require(block.x == needed.x && block.y == needed.y && block.z == needed.z);
  }
  if (cooperative) {
    const std::uint64_t blocks = std::uint64_t{grid.x} * grid.y * grid.z;
    const std::uint64_t resident = static_cast<std::uint64_t>(blocks_per_multiprocessor(
                                       function, static_cast<unsigned>(threads), dynamic_shared)) *
                                   static_cast<std::uint64_t>(device.limits().multiprocessors);
    require(blocks <= resident, CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
  }
}

}  // namespace

void KernelLaunch::point_to_parameters() {
  pointers.clear();
  for (const softgpu::ParameterInfo& info : function->info().parameters)
    pointers.push_back(parameters.data() + info.offset);
}

void KernelLaunch::run() const {
  if (!Driver::get().settings.execute) return;
  const RunningKernel running(module->context().device().card());
  execute(*this);
}

std::shared_ptr<Function> resolve_function(CUfunction handle, const std::shared_ptr<Context>& context) {
  if (auto function = registry<Function>().find(handle)) return function;
  const auto kernel = registry<Kernel>().get(handle);
  return kernel->function_in(context != nullptr ? context : current_context());
}

std::shared_ptr<const KernelLaunch> prepare_launch(const std::shared_ptr<Function>& function,
                                                   const LaunchShape& shape, void** parameters,
                                                   void** extra) {
  // First: what a kernel without code allows is a guess, and its error is the one that is told again if it is
  // cleared.
  require_code(*function);
  check_shape(*function, shape);
  auto launch = std::make_shared<KernelLaunch>();
  launch->module = function->module().shared_from_this();
  launch->function = function;
  launch->grid = shape.grid;
  launch->block = shape.block;
  launch->dynamic_shared = shape.dynamic_shared;
  launch->cooperative = shape.cooperative;
  launch->parameters = pack_parameters(function->info(), parameters, extra);
  launch->point_to_parameters();
  return launch;
}

Operation make_launch(std::shared_ptr<const KernelLaunch> launch) {
  return {CU_GRAPH_NODE_TYPE_KERNEL, launch, [launch] { launch->run(); }};
}

int blocks_per_multiprocessor(const Function& function, unsigned threads_per_block,
                              std::size_t dynamic_shared) {
  return active_blocks(function.module().context().device().limits(), function.needs(), threads_per_block,
                       dynamic_shared);
}

}  // namespace softgpu::driver

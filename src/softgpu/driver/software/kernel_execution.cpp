// Launches go to the engine, which interprets them.
#include "softgpu/driver/program/kernel_execution.h"

#include <string>

#include "softgpu/driver/backing/allocation_table.h"
#include "softgpu/driver/base/error.h"
#include "softgpu/driver/base/fault_report.h"
#include "softgpu/driver/device/driver.h"
#include "softgpu/driver/graph/conditional.h"
#include "softgpu/driver/memory/neighbours.h"
#include "softgpu/driver/memory/texture.h"
#include "softgpu/driver/memory/virtual_memory.h"
#include "softgpu/driver/program/module.h"
#include "softgpu/driver/software/running_kernels.h"
#include "softgpu/driver/stream/context.h"
#include "softgpu/driver/stream/launch_help.h"
#include "softgpu/exec/program/engine.h"
#include "softgpu/exec/run/helper_threads.h"
#include "softgpu/libraries/execute.h"

namespace softgpu::driver {
namespace {

// Made by the first launch; like the driver itself it outlives the end of main().
softgpu::Executor& executor() {
  static auto* const made = new softgpu::Executor(Driver::get().settings.threads);
  return *made;
}

constexpr const char* longer_time_hint =
    " (GPUPOOL_SOFTGPU_WATCHDOG_SECONDS sets how long a kernel may take; 0: any time)";

CUresult result_of(softgpu::Fault fault) {
  switch (fault) {
    case softgpu::Fault::none:
      return CUDA_SUCCESS;
    case softgpu::Fault::illegal_address:
      return CUDA_ERROR_ILLEGAL_ADDRESS;
    case softgpu::Fault::misaligned_address:
      return CUDA_ERROR_MISALIGNED_ADDRESS;
    case softgpu::Fault::illegal_instruction:
      return CUDA_ERROR_ILLEGAL_INSTRUCTION;
    case softgpu::Fault::trap:
      return CUDA_ERROR_LAUNCH_FAILED;
    case softgpu::Fault::assert_failed:
      return CUDA_ERROR_ASSERT;
    case softgpu::Fault::launch_out_of_resources:
      return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
    case softgpu::Fault::timeout:
      return CUDA_ERROR_LAUNCH_TIMEOUT;
    case softgpu::Fault::stack_overflow:
      return CUDA_ERROR_HARDWARE_STACK_ERROR;
    case softgpu::Fault::check_failed:
      return CUDA_ERROR_LAUNCH_FAILED;
  }
  return CUDA_ERROR_LAUNCH_FAILED;
}

// The engine checks one range inline and asks about everything else. The best one is where most memory is:
// the arena of ordinary allocations, or the largest mapped reservation for programs that place their memory
// themselves.
softgpu::MemoryMap memory_of(Context& context) {
  Device& device = context.device();
  const AllocationTable& allocations = AllocationTable::of_process();
  softgpu::MemoryMap map;
  map.primary_begin = device.arena().begin();
  map.primary_end = device.arena().end();
  const VirtualMemory::Window window = VirtualMemory::of_process().busiest();
  if (window.mapped > device.used_memory() / 2) {
    map.primary_begin = window.begin;
    map.primary_end = window.end;
  }
  map.contains = [&allocations, &context](std::uint64_t address, std::size_t size) {
    return allocations.covers(address, size) || context.heap_covers(address, size);
  };
  map.describe = describe_neighbours;
  return map;
}

}  // namespace

void execute(const KernelLaunch& what) {
  Context& context = what.module->context();
  softgpu::Launch launch;
  launch.image = &what.module->image();
  launch.kernel = what.function->index();
  launch.grid = what.grid;
  launch.block = what.block;
  launch.dynamic_shared_bytes = what.dynamic_shared;
  launch.parameters = what.parameters;
  launch.cooperative = what.cooperative;
  launch.stack_bytes = context.limit(CU_LIMIT_STACK_SIZE);
  launch.cancel = &context.cancel();
  launch.time_limit = Driver::get().settings.watchdog;
  softgpu::DeviceServices services;
  services.texture = view_of_texture;
  services.print = [&context](std::string_view text) { context.print(text); };
  services.heap_allocate = [&context](std::size_t size) { return context.heap_allocate(size); };
  services.set_conditional = set_conditional;
  const softgpu::libraries::Memory operands([](std::uint64_t address, std::size_t size) {
    return AllocationTable::of_process().covers(address, size);
  });
  services.operation = [&operands](const softgpu::OperationPart& part) {
    return softgpu::libraries::execute(part, operands);
  };
  services.heap_free = [&context](std::uint64_t address) { return context.heap_free(address); };
  const RunningKernels::Run running(what.function->info().name);
  const softgpu::LaunchResult result = executor().run(launch, memory_of(context), services);
  if (result.fault == softgpu::Fault::none) return;
  context.flush_printf();
  const CUresult code = result_of(result.fault);
  std::string detail = result.detail;
  if (context.cancel()) {
    detail = "kernel " + what.function->info().name + " was still running when its context ended";
  } else if (result.timed_out) {
    detail += longer_time_hint;
  }
  report_fault(code, detail);
  fail(code);
}

bool help_wanted() {
  return executor().helpers().wanted();
}

bool help(std::thread::id owner) {
  return executor().helpers().help(owner);
}

bool in_a_moment(std::function<void()> call) {
  return executor().helpers().in_a_moment(std::move(call));
}

}  // namespace softgpu::driver

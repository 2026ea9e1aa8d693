#include "softgpu/driver/program/module.h"

#include <algorithm>

#include "softgpu/driver/base/error.h"
#include "softgpu/driver/base/registry.h"
#include "softgpu/driver/memory/memory.h"
#include "softgpu/driver/stream/context.h"

namespace softgpu::driver {
namespace {

// A module's variables are ordinary device memory of its context, so copies and pointer queries know them.
softgpu::GlobalStorage storage_in(const std::shared_ptr<Context>& context) {
  return {[context](std::size_t size, std::size_t alignment) -> std::uint64_t {
            try {
              return allocate_device(*context, size, MemoryKind::device, nullptr, alignment);
            } catch (const Error&) {
              return 0;
            }
          },
          [context](std::uint64_t address, std::size_t) {
            // The end of the context took its memory: the address may be somebody else's now.
            if (context->destroyed()) return;
            try {
              free_device(address);
            } catch (const Error&) {
              // The program has freed the variable by itself.
            }
          }};
}

}  // namespace

const softgpu::KernelInfo& Function::info() const {
  return module_.program().program->kernels()[index_];
}

int Function::registers() const {
  // As if compiled for the largest block that may be launched: an estimate must not forbid one.
  const int most = most_registers(module_.context().device().limits(), info().max_threads_per_block);
  const int limit = module_.program().max_registers;
  return std::min({static_cast<int>(info().registers), limit > 0 ? limit : most, most});
}

KernelNeeds Function::needs() const {
  return {registers(), info().max_threads_per_block, info().static_shared_bytes, dynamic_shared_limit()};
}

int Function::Setting::value(SetFor whom, int otherwise) const {
  if (const int set = of_function; whom == SetFor::function && set != not_set) return set;
  const int set = of_kernel;
  return set != not_set ? set : otherwise;
}

std::size_t Function::dynamic_shared_limit() const {
  return dynamic_shared_limit(SetFor::function);
}

std::size_t Function::dynamic_shared_limit(SetFor whom) const {
  if (const int optin = dynamic_shared_optin_.value(whom, -1); optin >= 0)
    return static_cast<std::size_t>(optin);
  const auto most = static_cast<std::size_t>(module_.context().device().limits().shared_per_block);
  return most - std::min(most, info().static_shared_bytes);
}

int Function::attribute(CUfunction_attribute attribute, SetFor whom) const {
  const softgpu::KernelInfo& kernel = info();
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      return static_cast<int>(kernel.max_threads_per_block);
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
      return static_cast<int>(kernel.static_shared_bytes);
    case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
      return static_cast<int>(module_.program().constant_bytes);
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
      return static_cast<int>(kernel.local_bytes);
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
      return registers();
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
      return module_.program().target;
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
      return module_.program().machine_code ? module_.program().machine_code
                                            : module_.context().device().capability();
    case CU_FUNC_ATTRIBUTE_CACHE_MODE_CA:
      return 0;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      return static_cast<int>(dynamic_shared_limit(whom));
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      return carveout_.value(whom, -1);
    case CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
      return 0;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
      return non_portable_cluster_.value(whom, 0);
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      return cluster_policy_.value(whom, 0);
    default:
      fail(CUDA_ERROR_INVALID_VALUE);
  }
}

void require_settable(CUfunction_attribute attribute, int value, const softgpu::KernelInfo& kernel,
                      const Device& device) {
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: {
      const auto most = static_cast<std::size_t>(device.limits().shared_per_block_optin);
      require(value >= 0 && kernel.static_shared_bytes + static_cast<std::size_t>(value) <= most);
      return;
    }
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      require(value >= -1 && value <= 100);
      return;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      return;
    default:
      fail(CUDA_ERROR_INVALID_VALUE);
  }
}

void Function::set_attribute(CUfunction_attribute attribute, int value, SetFor whom) {
  require_settable(attribute, value, info(), module_.context().device());
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      return dynamic_shared_optin_.set(whom, value);
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      return carveout_.set(whom, value);
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
      return non_portable_cluster_.set(whom, value);
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      return cluster_policy_.set(whom, value);
    default:
      fail(CUDA_ERROR_INVALID_VALUE);
  }
}

Module::Module(std::shared_ptr<Context> context, LoadedProgram program)
    : context_(std::move(context)), program_(std::move(program)) {}

Module::~Module() = default;

std::shared_ptr<Module> Module::create(std::shared_ptr<Context> context, LoadedProgram program) {
  std::shared_ptr<Module> module(new Module(std::move(context), std::move(program)));
  module->image_ = softgpu::Image::create(module->program_.program, storage_in(module->context_));
  require(module->image_ != nullptr, CUDA_ERROR_OUT_OF_MEMORY);
  for (std::size_t index = 0; index < module->program_.program->kernels().size(); ++index) {
    module->functions_.push_back(std::make_shared<Function>(*module, index));
    registry<Function>().add<CUfunction>(module->functions_.back());
  }
  return module;
}

std::shared_ptr<Function> Module::function(std::string_view name) const {
  const auto index = program_.program->find_kernel(name);
  return index ? functions_[*index] : nullptr;
}

}  // namespace softgpu::driver

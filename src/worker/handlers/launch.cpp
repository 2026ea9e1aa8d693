// The handler of kernel launches.
#include <array>
#include <cstring>
#include <vector>

#include "generated/handlers.h"
#include "protocol/launch_attributes.h"
#include "worker/conversation/call.h"
#include "worker/handlers/launch_attributes.h"

namespace gpupool::worker {

CUresult read_launch_attributes(Call& x, std::span<const std::byte> bytes,
                                std::vector<CUlaunchAttribute>& out) {
  wire::Reader in(bytes);
  while (!in.rest().empty()) {
    const auto id = in.get<std::int32_t>();
    const auto value = in.get<std::array<std::byte, sizeof(CUlaunchAttributeValue)>>();
    if (!in.ok() || out.size() >= max_launch_attributes) return CUDA_ERROR_INVALID_VALUE;
    CUlaunchAttribute attribute{};
    attribute.id = static_cast<CUlaunchAttributeID>(id);
    std::memcpy(&attribute.value, value.data(), sizeof(attribute.value));
    switch (launch_attribute_class(id)) {
      case LaunchAttribute::plain:
        break;
      case LaunchAttribute::event: {
        std::uint64_t event = 0;
        std::memcpy(&event, value.data(), sizeof(event));
        CUevent found = nullptr;
        if (!x.handles.find(wire::Kind::event, event, found)) return CUDA_ERROR_INVALID_HANDLE;
        const auto address = reinterpret_cast<std::uintptr_t>(found);
        std::memcpy(&attribute.value, &address, sizeof(address));
        break;
      }
      case LaunchAttribute::refused:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    out.push_back(attribute);
  }
  return CUDA_SUCCESS;
}

namespace {

/// Launches of one kernel with one grid take about the same time.
std::uint64_t key_of(CUfunction function, const messages::Launch& m) {
  std::uint64_t key = reinterpret_cast<std::uintptr_t>(function);
  for (const std::uint64_t part : {m.grid_x, m.grid_y, m.grid_z, m.block_x, m.block_y, m.block_z})
    key = (key ^ part) * 0x100000001b3U;
  return key;
}

/// An operation of a math library: NVIDIA's executes it, where the driver does not do that itself. The
/// session has the turn.
CUresult execute_operation(Call& x, const KernelInfo& kernel, std::span<const std::byte> parameters,
                           CUstream stream, std::uint64_t key) {
  MathLibraries& libraries = *x.equipment.math_libraries;
  const OperationPlace place{x.current(), stream, x.session.captures(stream),
                             !x.session.graphs.captures.empty()};
  libraries.preparation.begins = [&x] { x.waits(); };
  // A lease that ends meanwhile changes nothing: the call was admitted under it, as if the library had been
  // there.
  libraries.preparation.ends = [&] { static_cast<void>(x.submits(stream, 0, key, kernel.name)); };
  const CUresult result = libraries.execute(kernel.name, parameters, place);
  libraries.preparation.begins = libraries.preparation.ends = nullptr;
  if (result != CUDA_SUCCESS && !libraries.why().empty()) {
    x.equipment.driver_log->add(kernel.name + ": " + libraries.why());
  }
  return result;
}

}  // namespace

CUresult run_Launch(Call& x, const messages::Launch& m, replies::Launch&) {
  CUfunction function = nullptr;
  CUstream stream = nullptr;
  const auto* info = static_cast<const KernelInfo*>(x.handles.note(m.function));
  if (info == nullptr || !x.handles.find(wire::Kind::function, m.function, function) ||
      !x.handles.find(wire::Kind::stream, m.stream, stream)) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  // The driver copies parameters by its own layout: fewer bytes than that would be read past the frame.
  if (m.parameters.size() < info->parameter_bytes()) return CUDA_ERROR_INVALID_VALUE;
  alignas(16) static thread_local std::array<std::byte, KernelInfo::max_parameter_bytes + 1> block;
  static thread_local std::vector<void*> parameters;
  if (m.parameters.size() > block.size()) return CUDA_ERROR_INVALID_VALUE;
  if (!m.parameters.empty()) std::memcpy(block.data(), m.parameters.data(), m.parameters.size());
  parameters.clear();
  for (const KernelParameter& p : info->parameters) parameters.push_back(block.data() + p.offset);

  const std::uint64_t key = key_of(function, m);
  if (const CUresult bad = x.submits(stream, 1, key, info->name); bad != CUDA_SUCCESS) return bad;
  if (x.equipment.math_libraries && MathLibraries::is_operation(info->name)) {
    return execute_operation(x, *info, std::span(block).first(info->parameter_bytes()), stream, key);
  }
  if (m.attributes.empty()) {
    return x.api.cuLaunchKernel_(function, m.grid_x, m.grid_y, m.grid_z, m.block_x, m.block_y, m.block_z,
                                 m.shared_bytes, stream, parameters.data(), nullptr);
  }
  std::vector<CUlaunchAttribute> attributes;
  if (const CUresult bad = read_launch_attributes(x, m.attributes, attributes); bad != CUDA_SUCCESS)
    return bad;
  const CUlaunchConfig config = launch_config(m, stream, attributes);
  return x.api.cuLaunchKernelEx_(&config, function, parameters.data(), nullptr);
}

}  // namespace gpupool::worker

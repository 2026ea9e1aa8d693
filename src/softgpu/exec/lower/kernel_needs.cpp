#include "softgpu/exec/lower/kernel_needs.h"

#include <algorithm>

namespace softgpu {
namespace {

struct Reached {
  std::vector<uint8_t> state;   // by function: 0 not reached, 1 being walked, 2 done
  std::vector<uint64_t> depth;  // of the stack from it on, when it is done
};

// The deepest chain of frames below a function; marks the kernel when there is no bound.
uint64_t stack_of(const ProgramParts& parts, std::span<const PlacedFunction> functions, uint32_t function,
                  Reached& reached, Kernel& kernel) {
  // Iterative: a call chain may be as long as the program.
  struct Visit {
    uint32_t function;
    size_t next;
  };
  std::vector<Visit> stack{{function, 0}};
  reached.state[function] = 1;
  while (!stack.empty()) {
    Visit& top = stack.back();
    const PlacedFunction& place = functions[top.function];
    if (top.next < place.calls.size()) {
      const uint32_t callee = place.calls[top.next++];
      if (reached.state[callee] == 1) kernel.unbounded_stack = true;
      if (reached.state[callee] == 0) {
        reached.state[callee] = 1;
        stack.push_back({callee, 0});
      }
      continue;
    }
    uint64_t below = 0;
    for (const uint32_t callee : place.calls) {
      // A frame ends at a multiple of 16: so much may be lost before the next one begins.
      const uint64_t gap = parts.functions[callee].local_alignment - 16;
      below = std::max(below, reached.depth[callee] + gap);
    }
    reached.depth[top.function] = below + parts.functions[top.function].local_bytes;
    if (place.indirect) kernel.unbounded_stack = true;
    reached.state[top.function] = 2;
    stack.pop_back();
  }
  return reached.depth[function];
}

}  // namespace

void add_kernel(ProgramParts& parts, std::span<const PlacedFunction> functions,
                const std::set<uint32_t>& address_taken, uint32_t entry) {
  const ptx::Function& syntax = *functions[entry].syntax;
  Kernel kernel;
  KernelInfo info;
  kernel.function = entry;
  Reached reached{std::vector<uint8_t>(functions.size(), 0), std::vector<uint64_t>(functions.size(), 0)};
  uint64_t stack = stack_of(parts, functions, entry, reached, kernel);
  // An indirect call may reach every function whose address is known.
  if (kernel.unbounded_stack) {
    for (const uint32_t f : address_taken) {
      if (reached.state[f] == 0) stack_of(parts, functions, f, reached, kernel);
    }
  }
  kernel.stack_bytes = static_cast<uint32_t>(std::min<uint64_t>(stack, 512 * 1024));
  std::set<uint32_t> shared;
  uint64_t dynamic_alignment = 16;
  for (uint32_t f = 0; f < functions.size(); ++f) {
    kernel.reached.push_back(reached.state[f] != 0);
    if (!kernel.reached[f]) continue;
    info.uses_dynamic_shared |= functions[f].dynamic_shared;
    info.uses_grid_sync |= functions[f].grid_sync;
    info.registers = std::max(info.registers, parts.functions[f].registers);
    kernel.local_alignment = std::max<uint64_t>(kernel.local_alignment, parts.functions[f].local_alignment);
    for (const uint32_t variable : functions[f].shared) shared.insert(variable);
  }
  uint64_t offset = 0;
  for (const uint32_t index : shared) {
    const SharedVariable& variable = parts.shared_variables[index];
    const uint64_t alignment = std::max<uint64_t>(variable.alignment, 1);
    if (variable.dynamic) {
      dynamic_alignment = std::max(dynamic_alignment, alignment);
      continue;
    }
    offset = (offset + alignment - 1) / alignment * alignment;
    kernel.shared_offsets.emplace(index, offset);
    offset += variable.bytes;
  }
  kernel.shared_alignment = dynamic_alignment;
  for (const uint32_t index : shared)
    kernel.shared_alignment = std::max(kernel.shared_alignment, parts.shared_variables[index].alignment);
  kernel.static_shared_bytes = offset;
  kernel.dynamic_shared_offset =
      info.uses_dynamic_shared ? (offset + dynamic_alignment - 1) / dynamic_alignment * dynamic_alignment
                               : offset;
  info.name = syntax.name;
  for (const Formal& formal : functions[entry].signature.parameters) {
    info.parameters.push_back(ParameterInfo{formal.offset, formal.bytes});
  }
  info.parameter_bytes = functions[entry].signature.bytes;
  info.static_shared_bytes = offset;
  info.local_bytes = kernel.stack_bytes;
  info.registers = std::clamp<uint32_t>(info.registers, 16, 255);
  info.required_block = syntax.required_block;
  auto threads = [](const Dim3& d) { return std::min<uint64_t>(1024, uint64_t{d.x} * d.y * d.z); };
  if (syntax.max_block.x != 0) info.max_threads_per_block = static_cast<uint32_t>(threads(syntax.max_block));
  if (syntax.required_block.x != 0)
    info.max_threads_per_block = static_cast<uint32_t>(threads(syntax.required_block));
  parts.kernel_by_name.emplace(info.name, parts.kernels.size());
  parts.kernels.push_back(std::move(kernel));
  parts.kernel_infos.push_back(std::move(info));
}

}  // namespace softgpu

#include "softgpu/exec/program/program.h"

namespace softgpu {

Program::Program(std::unique_ptr<const ProgramParts> parts) : parts_(std::move(parts)) {}
Program::~Program() = default;
std::span<const KernelInfo> Program::kernels() const {
  return parts_->kernel_infos;
}
std::span<const GlobalInfo> Program::globals() const {
  return parts_->visible_globals;
}
std::optional<size_t> Program::find_kernel(std::string_view name) const {
  const auto found = parts_->kernel_by_name.find(std::string(name));
  if (found == parts_->kernel_by_name.end()) return std::nullopt;
  return found->second;
}

}  // namespace softgpu

#include <cstring>

#include "softgpu/exec/program/program.h"

namespace softgpu {

std::unique_ptr<Image> Image::create(std::shared_ptr<const Program> program, GlobalStorage storage) {
  auto parts = std::make_unique<ImageParts>();
  parts->program = std::move(program);
  parts->storage = std::move(storage);
  const std::vector<GlobalVariable>& globals = parts->program->parts().globals;
  parts->addresses.reserve(globals.size());
  for (const GlobalVariable& global : globals) {
    const uint64_t address =
        parts->storage.allocate(std::max<size_t>(global.info.size, 1), global.info.alignment);
    if (address == 0) {
      for (size_t i = 0; i < parts->addresses.size(); ++i) {
        parts->storage.free(parts->addresses[i], std::max<size_t>(globals[i].info.size, 1));
      }
      return nullptr;
    }
    parts->addresses.push_back(address);
  }
  for (size_t i = 0; i < globals.size(); ++i) {
    auto* const memory = reinterpret_cast<std::byte*>(parts->addresses[i]);
    const std::vector<std::byte>& initial = globals[i].initial;
    if (!initial.empty()) std::memcpy(memory, initial.data(), initial.size());
    std::memset(memory + initial.size(), 0, globals[i].info.size - initial.size());
    for (const GlobalVariable::Relocation& relocation : globals[i].relocations) {
      uint64_t value = relocation.is_function ? function_address_tag | relocation.symbol
                                              : parts->addresses[relocation.symbol];
      value += relocation.addend;
      if (relocation.mask != ~uint64_t{0}) {
        value = (value & relocation.mask) >> __builtin_ctzll(relocation.mask);
      }
      std::memcpy(memory + relocation.offset, &value, std::min<uint32_t>(relocation.bytes, 8));
    }
  }
  return std::unique_ptr<Image>(new Image(std::move(parts)));
}

Image::Image(std::unique_ptr<ImageParts> parts) : parts_(std::move(parts)) {}

Image::~Image() {
  const std::vector<GlobalVariable>& globals = parts_->program->parts().globals;
  for (size_t i = 0; i < globals.size(); ++i) {
    parts_->storage.free(parts_->addresses[i], std::max<size_t>(globals[i].info.size, 1));
  }
}

const std::shared_ptr<const Program>& Image::program_pointer() const {
  return parts_->program;
}
const Program& Image::program() const {
  return *parts_->program;
}

std::optional<GlobalAddress> Image::global(std::string_view name) const {
  const ProgramParts& program = parts_->program->parts();
  const auto found = program.global_by_name.find(std::string(name));
  if (found == program.global_by_name.end()) return std::nullopt;
  return GlobalAddress{parts_->addresses[found->second], program.globals[found->second].info.size};
}

}  // namespace softgpu

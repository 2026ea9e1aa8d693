// An opcode's full name in its parts.
#pragma once

#include <string_view>
#include <vector>

namespace softgpu::jit {

class OpcodeName {
 public:
  explicit OpcodeName(std::string_view full) {
    for (;;) {
      const size_t dot = full.find('.');
      parts_.push_back(full.substr(0, dot));
      if (dot == std::string_view::npos) return;
      full.remove_prefix(dot + 1);
    }
  }
  [[nodiscard]] std::string_view part(size_t k) const {
    return k < parts_.size() ? parts_[k] : std::string_view{};
  }
  [[nodiscard]] std::string_view last() const { return parts_.back(); }
  [[nodiscard]] size_t size() const { return parts_.size(); }
  [[nodiscard]] bool has(std::string_view part) const {
    for (const std::string_view mine : parts_) {
      if (mine == part) return true;
    }
    return false;
  }
  // Begins with these parts ("mul.lo") and has so many in all.
  [[nodiscard]] bool is(std::string_view begin, size_t count) const {
    if (parts_.size() != count) return false;
    const OpcodeName wanted(begin);
    for (size_t k = 0; k < wanted.size(); ++k) {
      if (parts_[k] != wanted.parts_[k]) return false;
    }
    return true;
  }

 private:
  std::vector<std::string_view> parts_;
};

struct IntegerType {
  char size = 0;  // 0: no integer of 16, 32 or 64 bits
  bool is_signed = false;
};
inline IntegerType integer_type(std::string_view name) {
  if (name.size() != 3 || (name[0] != 's' && name[0] != 'u' && name[0] != 'b')) return {};
  const std::string_view bits = name.substr(1);
  return {bits == "16" ? 'h' : bits == "32" ? 'w' : bits == "64" ? 'x' : char{0}, name[0] == 's'};
}

}  // namespace softgpu::jit

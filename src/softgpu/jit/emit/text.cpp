// The intermediate language's words.
#include "softgpu/jit/emit/emitter.h"

namespace softgpu::jit {
namespace {

std::string bits_of(char size) {
  return size == 'p' ? "1" : std::to_string(8 * lane_bytes(size));
}

}  // namespace

std::string Emitter::Form::integer(char size) const {
  return scalar ? "i" + bits_of(size) : "<32 x i" + bits_of(size) + ">";
}
std::string Emitter::Form::floating(char size) const {
  const std::string one = size == 'x' ? "double" : size == 'h' ? "half" : "float";
  return scalar ? one : "<32 x " + one + ">";
}
std::string Emitter::Form::boolean() const {
  return scalar ? "i1" : "<32 x i1>";
}
std::string Emitter::Form::name(char kind, char size) const {
  return (scalar ? "" : "v32") + std::string(1, kind) + bits_of(size);
}
std::string Emitter::Form::literal(char size, uint64_t value) const {
  const std::string one = size == 'p'   ? (value & 1 ? "true" : "false")
                          : size == 'h' ? std::to_string(value & 0xffff)
                          : size == 'w' ? std::to_string(value & 0xffffffff)
                                        : std::to_string(value);
  if (scalar) return one;
  if (value == 0) return "zeroinitializer";
  std::string text = "<";
  for (uint32_t i = 0; i < warp_lanes; ++i) text += (i ? ", i" : "i") + bits_of(size) + " " + one;
  return text + ">";
}

std::string Emitter::fresh(const std::string& prefix) {
  return prefix + std::to_string(names_++);
}
std::string Emitter::set(const std::string& expression) {
  const std::string name = "%t" + std::to_string(names_++);
  text_ += "  " + name + " = " + expression + "\n";
  return name;
}
void Emitter::line(const std::string& text) {
  text_ += "  " + text + "\n";
}
void Emitter::label(const std::string& name) {
  text_ += name + ":\n";
}
// Declares it; its name.
std::string Emitter::intrinsic(const std::string& result, const std::string& name,
                               const std::string& parameters) {
  declarations_.insert("declare " + result + " @llvm." + name + "(" + parameters + ")");
  return "@llvm." + name;
}

}  // namespace softgpu::jit

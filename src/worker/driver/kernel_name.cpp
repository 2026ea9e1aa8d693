#include "worker/driver/kernel_name.h"

#include <cxxabi.h>

#include <cstdlib>
#include <memory>

namespace gpupool::worker {
namespace {

constexpr std::size_t most = 80;
/// A name that a program made up may be of any length, and demangling may make it much longer.
constexpr std::size_t longest_mangled = 4096;

std::string demangled(std::string_view name) {
  if (!name.starts_with("_Z") || name.size() > longest_mangled) return std::string(name);
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(
      abi::__cxa_demangle(std::string(name).c_str(), nullptr, nullptr, &status), &std::free);
  return status == 0 && text ? std::string(text.get()) : std::string(name);
}

/// Without what stands between the brackets, which may be nested.
std::string without(std::string_view text, char open, char close) {
  std::string left;
  int depth = 0;
  for (const char c : text) {
    if (c == open) ++depth;
    if (depth == 0) left += c;
    if (c == close && depth > 0) --depth;
  }
  return left;
}

bool allowed(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("_.:<>~-").find(c) != std::string_view::npos;
}

}  // namespace

std::string short_kernel_name(std::string_view name) {
  std::string text = demangled(name);
  for (const auto& [open, close] : {std::pair{'<', '>'}, {'(', ')'}, {'[', ']'}}) {
    text = without(text, open, close);
  }
  if (const auto end = text.find_last_not_of(' '); end != std::string::npos) text.erase(end + 1);
  if (text.ends_with(" const")) text.erase(text.size() - 6);
  if (const auto space = text.rfind(' '); space != std::string::npos) text.erase(0, space + 1);
  if (const auto scope = text.rfind("::"); scope != std::string::npos) text.erase(0, scope + 2);
  std::erase_if(text, [](char c) { return !allowed(c); });
  if (text.size() > most) text.resize(most);
  return text;
}

}  // namespace gpupool::worker

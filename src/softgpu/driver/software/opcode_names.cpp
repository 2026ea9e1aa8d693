// A list of what the engine knows, for the tests that hold it against PTX's manual.
#include <cstddef>
#include <cstring>
#include <string>

#include "softgpu/exec/program/opcode_table.h"

// Copies "name<tab>signature<newline>" of every opcode, sorted, as much as fits into `into`, and returns how
// many bytes there are. Names that begin with '@' are internal steps.
extern "C" [[gnu::visibility("default")]] size_t cuGpupoolOpcodeNames(char* into, size_t bytes);

size_t cuGpupoolOpcodeNames(char* into, size_t bytes) {
  std::string text;
  const softgpu::OpcodeTable& table = softgpu::opcode_table();
  for (const std::string_view name : table.names()) {
    text += name;
    text += '\t';
    text += table.find(name)->signature;
    text += '\n';
  }
  if (into != nullptr) std::memcpy(into, text.data(), bytes < text.size() ? bytes : text.size());
  return text.size();
}

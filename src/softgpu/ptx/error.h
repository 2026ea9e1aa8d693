// How the front end refuses a source.
#pragma once

#include <stdexcept>
#include <string>

namespace softgpu {

enum class CompileStatus {
  ok,
  syntax_error,
  unsupported_opcode,  // an opcode, suffix or type outside the table; the log names it and its line
  unresolved_symbol,
  duplicate_symbol,
};

struct CompileError : std::runtime_error {
  CompileError(CompileStatus why, int at_line, const std::string& message)
      : std::runtime_error(message), status(why), line(at_line) {}
  CompileStatus status;
  int line;
};

[[noreturn]] inline void syntax_error(int line, const std::string& message) {
  throw CompileError(CompileStatus::syntax_error, line, message);
}
[[noreturn]] inline void unsupported(int line, const std::string& message) {
  throw CompileError(CompileStatus::unsupported_opcode, line, message);
}

}  // namespace softgpu

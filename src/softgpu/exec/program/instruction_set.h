// Which instruction set's handlers programs are compiled with, where the best one shall not be.
#pragma once

#include <string>
#include <vector>

#include "softgpu/exec/program/opcode_table.h"

namespace softgpu {

// The names of those that were built and that this processor runs, the best last.
std::vector<std::string> instruction_sets();

// While it lives, this thread compiles programs with that set's handlers.
class InstructionSetScope {
 public:
  explicit InstructionSetScope(const std::string& name);
  ~InstructionSetScope();
  InstructionSetScope(const InstructionSetScope&) = delete;
  InstructionSetScope& operator=(const InstructionSetScope&) = delete;

 private:
  const OpcodeTable* before_;
};

}  // namespace softgpu

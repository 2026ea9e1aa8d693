// Accesses under checks: lowering puts run_checked() in the place of an access's handler, which looks at the
// access and then does it.
#pragma once

#include <cstdint>
#include <string_view>

#include "softgpu/exec/program/access_kind.h"

namespace softgpu {

struct Warp;
struct Instruction;
using Handler = void (*)(Warp&, const Instruction&);

// Function::checked, by the last of the instruction's operands.
inline constexpr uint32_t checked_operand = 5;

struct CheckedAccess {
  Handler handler = nullptr;
  AccessKind kind;
  bool strong = false;  // volatile or with a memory order
};

void run_checked(Warp& warp, const Instruction& in);
// Whether the opcode as written in PTX orders memory between threads.
[[nodiscard]] bool is_strong(std::string_view opcode);

}  // namespace softgpu

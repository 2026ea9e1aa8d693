// Integer constant expressions as PTX allows them where a number is expected.
#pragma once

#include <cstdint>

#include "softgpu/ptx/lexer.h"

namespace softgpu::ptx {

// Reads one expression (64-bit arithmetic) from the lexer. `taken` is a unary operator that the caller has
// read already: it belongs to the first operand alone. Throws CompileError.
uint64_t parse_constant_expression(Lexer& lexer, char taken = '\0');

}  // namespace softgpu::ptx

// Integer constant expressions as PTX allows them where a number is expected.
#pragma once

#include <cstdint>

#include "softgpu/ptx/lexer.h"

namespace softgpu::ptx {

// Reads one expression (64-bit arithmetic) from the lexer. Throws CompileError.
uint64_t parse_constant_expression(Lexer& lexer);

}  // namespace softgpu::ptx

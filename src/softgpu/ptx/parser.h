// PTX text -> Module. Throws CompileError.
#pragma once

#include <string_view>

#include "softgpu/ptx/syntax.h"

namespace softgpu::ptx {

Module parse(std::string_view source);

}  // namespace softgpu::ptx

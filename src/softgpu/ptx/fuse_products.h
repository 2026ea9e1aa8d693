// Products and the sums behind them as one operation, as NVIDIA's assembler makes them (-fmad=true).
//
// PTX leaves open whether `mul` and `add` or `sub` without a rounding modifier round twice or once; every GPU
// rounds once where it can. What becomes a `fma`: a `mul` without .rn, .rz, .rm, .rp and .sat, and an `add`
// or `sub` without the four, both of the same type (f32, f64, f16, bf16, f16x2, bf16x2) with the same .ftz,
// both without a guard, in the same stretch of code without labels and jumps, where the sum is the one use of
// the product and the product's factors still have their values. Of two products that are added, the first is
// fused.
#pragma once

#include "softgpu/ptx/syntax.h"

namespace softgpu::ptx {

void fuse_products(Module& module);

}  // namespace softgpu::ptx

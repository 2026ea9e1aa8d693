"""The Triton kernel of ``gpupool bench softgpu``. Triton 3.9 made matmul_triton.ptx of it, for compute capability 12.0:

TRITON_DISABLE_LINE_INFO=1 python matmul_triton.py > matmul_triton.ptx
"""

import sys

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def matmul(
    a, b, c, n, TILE_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr
):  # A tile of C, n x n: f16 factors, f32 sums.
    rows = tl.program_id(0) * TILE_M + tl.arange(0, TILE_M)
    columns = tl.program_id(1) * TILE_N + tl.arange(0, TILE_N)
    inner = tl.arange(0, TILE_K)
    from_a = a + rows[:, None] * n + inner[None, :]
    from_b = b + inner[:, None] * n + columns[None, :]
    total = tl.zeros((TILE_M, TILE_N), dtype=tl.float32)
    for _ in range(0, n, TILE_K):
        total = tl.dot(tl.load(from_a), tl.load(from_b), total)
        from_a += TILE_K
        from_b += TILE_K * n
    tl.store(c + rows[:, None] * n + columns[None, :], total)


if __name__ == "__main__":
    made = triton.compile(
        ASTSource(
            fn=matmul,
            signature={
                "a": "*fp16",
                "b": "*fp16",
                "c": "*fp32",
                "n": "i32",
                "TILE_M": "constexpr",
                "TILE_N": "constexpr",
                "TILE_K": "constexpr",
            },
            constexprs={(4,): 64, (5,): 64, (6,): 32},
            attrs={(i,): [["tt.divisibility", 16]] for i in range(4)},
        ),
        target=GPUTarget("cuda", 120, 32),
        options={"num_warps": 4, "num_stages": 3},
    )
    sys.stdout.write(f"// shared {made.metadata.shared}\n{made.asm['ptx']}")

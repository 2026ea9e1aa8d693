"""The software GPU's compiled kernels: numba programs give the same bytes as interpreted ones, now and from the cache."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from gpupool.client.native import native_file

from tests.support.softgpu_programs import OPENING, PTX_HEADER, command, environment

PROGRAM: Final = """
import hashlib, math
import numpy as np
from numba import cuda, float32

@cuda.jit
def saxpy(n, a, x, y):
    i = cuda.grid(1)
    if i < n:
        y[i] = a * x[i] + y[i]

@cuda.jit
def block_sums(x, sums):
    part = cuda.shared.array(128, float32)
    t = cuda.threadIdx.x
    part[t] = x[cuda.grid(1)]
    cuda.syncthreads()
    width = 64
    while width > 0:
        if t < width:
            part[t] += part[t + width]
        cuda.syncthreads()
        width //= 2
    if t == 0:
        sums[cuda.blockIdx.x] = part[0]

@cuda.jit
def steps(limit, image):
    row, column = cuda.grid(2)
    if row < image.shape[0] and column < image.shape[1]:
        c = complex(-2.0 + 3.0 * column / image.shape[1], -1.0 + 2.0 * row / image.shape[0])
        z = 0j
        k = 0
        while k < limit and z.real * z.real + z.imag * z.imag < 4.0:
            z = z * z + c
            k += 1
        image[row, column] = k

@cuda.jit
def histogram(x, counts, roots):
    i = cuda.grid(1)
    cuda.atomic.add(counts, int(x[i]) % 16, 1)
    roots[i] = math.sqrt(x[i]) + math.sin(x[i]) / (1.0 + x[i] % 7)

digest = hashlib.sha256()
n = 1 << 12
x = (np.arange(n) * 7919 % 1009).astype(np.float32)
for _ in range(4):
    y = cuda.to_device(np.arange(n, dtype=np.float32))
    saxpy[n // 128, 128](n - 5, np.float32(0.5), x, y)
    sums = cuda.device_array(n // 128, np.float32)
    block_sums[n // 128, 128](x, sums)
    image = cuda.device_array((50, 70), np.int32)
    steps[(4, 5), (16, 16)](60, image)
    counts, roots = cuda.to_device(np.zeros(16, np.int64)), cuda.device_array(n, np.float64)
    histogram[n // 128, 128](x, counts, roots)
    for array in (y, sums, image, counts, roots):
        digest.update(array.copy_to_host().tobytes())
assert counts.copy_to_host().sum() == n
print(digest.hexdigest())
"""


def run(mode: str, cache: Path) -> tuple[str, str]:
    """The program's digest, and what the compiler says."""
    environment = os.environ | {
        "LD_LIBRARY_PATH": str(native_file("softgpu", "libcuda.so.1").parent),
        # Without NVIDIA's linker numba hands over PTX.
        "LD_PRELOAD": str(native_file("compat", "libnvJitLink.so.13")),
        "GPUPOOL_SOFTGPU_JIT": mode,
        "GPUPOOL_SOFTGPU_JIT_CACHE": str(cache),
        "GPUPOOL_SOFTGPU_LOG": "jit",
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), done.stderr


def test_compiled_kernels_give_the_same_bytes_and_are_kept(tmp_path: Path) -> None:
    pytest.importorskip("numba.cuda")
    cache = tmp_path / "machine code"
    interpreted, _ = run("off", cache)
    compiled, said = run("always", cache)
    if "jit: off:" in said:
        pytest.skip(said)
    assert compiled == interpreted
    assert said.count(" compiled in ") >= 4
    again, said = run("always", cache)
    assert again == interpreted
    assert " compiled in " not in said
    assert said.count(" from the cache\n") >= 4
    assert all(path.stat().st_mode & 0o077 == 0 for path in [cache, *cache.iterdir()])


#: Kernels `long0` to `long3`, with so many instructions that LLVM works on each for a while, and `short`.
IN_A_QUEUE: Final = f"""{OPENING}
def entry(name, steps, first=0):
    # Of numbers of its own: equal kernels are compiled once.
    body = "".join(f"mad.lo.u32 %r{{k % 30}}, %r{{(k + 7) % 30}}, %r{{(k + 11) % 30}}, {{first + k}};" for k in range(steps))
    return f".visible .entry {{name}}() {{{{ .reg .b32 %r<31>; .reg .b64 %rd; mov.u32 %r30, %tid.x; {{body}} " \\
           "cvt.u64.u32 %rd, %r3; st.volatile.shared.u32 [tile], %r3; ret; }}\\n"

PTX = {PTX_HEADER!r} + ".shared .b32 tile[1];\\n" + "".join(
    entry(f"long{{n}}", 3000, 5000 * n) for n in range(4)
) + entry("short", 1)
context = ctypes.c_void_p()
call("cuInit", 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
call("cuCtxSetCurrent", context)
module = ctypes.c_void_p()
call("cuModuleLoadData", ctypes.byref(module), PTX.encode())
for name in (b"long0", b"long1", b"long2", b"long3", b"short"):
    kernel = ctypes.c_void_p()
    call("cuModuleGetFunction", ctypes.byref(kernel), module, name)
    for _ in range(3):
        call("cuLaunchKernel", kernel, 1, 1, 1, 32, 1, 1, 0, None, None, None)
call("cuCtxSynchronize")
print("launched", file=sys.stderr, flush=True)
sys.stdin.read()
"""


def test_a_short_kernel_does_not_wait_until_all_long_ones_are_compiled() -> None:
    with subprocess.Popen(
        command("--", sys.executable, "-c", IN_A_QUEUE),
        env=environment(GPUPOOL_SOFTGPU_LOG="jit", GPUPOOL_SOFTGPU_JIT_CACHE="off"),
        stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as program:  # fmt: skip
        assert program.stderr is not None
        order = []
        for line in program.stderr:
            if " jit: off:" in line:
                program.kill()
                pytest.skip(line)
            order += re.findall(r"kernel (\w+) for blocks of .* compiled in", line)
            if len(order) == 5:
                break
        program.kill()
    assert sorted(order) == ["long0", "long1", "long2", "long3", "short"]
    assert order[-1] != "short"

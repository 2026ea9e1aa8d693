"""The kernels of ``gpupool bench softgpu`` in numba's own simulator: a program, run with NUMBA_ENABLE_CUDASIM=1.

Small sizes, because it starts a Python thread for each CUDA thread. Prints JSON: seconds for each unit of work (an
element, a pixel, a multiplication), by key, and ``launch``: seconds for a launch of one empty thread.
"""

from __future__ import annotations

import importlib
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any, Final

import numpy as np

cuda: Any = importlib.import_module("numba.cuda")

_REPEATS: Final = 3
_THREADS: Final = 256


# The simulator puts its own `cuda` among the globals of a kernel while it runs it.


def empty() -> None:
    pass


def saxpy(a: float, x: Any, y: Any) -> None:
    i = cuda.grid(1)
    if i < x.size:
        y[i] = a * x[i] + y[i]


def total(x: Any, sums: Any) -> None:
    part = cuda.shared.array(_THREADS, np.float32)
    thread = cuda.threadIdx.x
    own = np.float32(0)
    for i in range(cuda.grid(1), x.size, cuda.gridDim.x * cuda.blockDim.x):
        own += x[i]
    part[thread] = own
    cuda.syncthreads()
    width = _THREADS // 2
    while width > 0:
        if thread < width:
            part[thread] += part[thread + width]
        cuda.syncthreads()
        width //= 2
    if thread == 0:
        sums[cuda.blockIdx.x] = part[0]


def mandelbrot(limit: int, image: Any) -> None:
    column, row = cuda.grid(2)
    cx, cy = -2.0 + 3.0 * column / image.shape[1], -1.0 + 2.0 * row / image.shape[0]
    x = y = 0.0
    steps = 0
    while steps < limit and x * x + y * y < 4.0:
        x, y = x * x - y * y + cx, 2.0 * x * y + cy
        steps += 1
    image[row, column] = steps


def matmul(a: Any, b: Any, c: Any) -> None:
    tile_a = cuda.shared.array((16, 16), np.float32)
    tile_b = cuda.shared.array((16, 16), np.float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.grid(2)
    own = np.float32(0)
    for k in range(0, a.shape[1], 16):
        tile_a[ty, tx] = a[row, k + tx]
        tile_b[ty, tx] = b[k + ty, column]
        cuda.syncthreads()
        for i in range(16):
            own += tile_a[ty, i] * tile_b[i, tx]
        cuda.syncthreads()
    c[row, column] = own


def _seconds(run: Callable[[], None]) -> float:
    times = []
    for _ in range(_REPEATS):
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def measure() -> dict[str, float]:
    """Seconds per unit of work, by key."""
    random = np.random.default_rng(1)
    x, y = (random.random(2 * _THREADS, dtype=np.float32) for _ in range(2))
    long = random.random(32 * _THREADS, dtype=np.float32)
    image = np.zeros((4, 64), dtype=np.int32)
    a, b, c = (random.random((32, 32), dtype=np.float32) for _ in range(3))
    return {
        "launch": _seconds(lambda: cuda.jit(empty)[1, 1]()),
        "saxpy": (element := _seconds(lambda: cuda.jit(saxpy)[2, _THREADS](0.5, x, y)) / x.size),
        "saxpy_cache": element,
        "reduction": _seconds(lambda: cuda.jit(total)[2, _THREADS](long, np.zeros(2, np.float32)))
        / long.size,
        "barrier": _seconds(lambda: cuda.jit(total)[2, _THREADS](x, np.zeros(2, np.float32))) / x.size,
        "mandelbrot": _seconds(lambda: cuda.jit(mandelbrot)[(1, 4), (64, 1)](256, image)) / image.size,
        "matmul": _seconds(lambda: cuda.jit(matmul)[(2, 2), (16, 16)](a, b, c)) / 32**3,
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(measure()) + "\n")

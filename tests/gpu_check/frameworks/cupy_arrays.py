"""CuPy: element-wise work, sums, sorting, a matrix product, a transform, random numbers and a kernel of one's own."""

from __future__ import annotations

import json
import time

import cupy as cp
import numpy as np

SAXPY = r"""
extern "C" __global__ void saxpy(float a, const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i] + y[i];
}
"""


def main() -> None:
    began = time.monotonic()
    host = np.random.default_rng(7).standard_normal((512, 512)).astype(np.float32)
    x = cp.asarray(host)
    y = cp.ones(x.size, cp.float32)
    cp.RawKernel(SAXPY, "saxpy")((x.size // 256,), (256,), (np.float32(2), x.ravel(), y, np.int32(x.size)))
    generator = cp.random.default_rng(3)
    result = {
        "elements": float(cp.asnumpy(cp.sqrt(cp.abs(x)) + x).astype(np.float64).sum()),
        "sum": float(x.sum(dtype=cp.float64)),
        "sorted": [float(v) for v in cp.asnumpy(cp.sort(x.ravel())[::50_000])],
        "product": bool(np.abs(cp.asnumpy(x @ x) - host @ host).max() < 1e-2),
        "transform": bool(np.abs(cp.asnumpy(cp.fft.fft(x)) - np.fft.fft(host)).max() < 1e-2),
        "random": float(cp.asnumpy(generator.random(1000)).sum()),
        "kernel": bool(np.allclose(cp.asnumpy(y), 2 * host.ravel() + 1)),
    }
    seconds = round(time.monotonic() - began, 2)
    print(json.dumps({"result": result, "figures": {"seconds": seconds}, "version": cp.__version__}))


if __name__ == "__main__":
    main()

"""Copies, one launch, copies back."""

import json

import numpy as np
from numba import cuda


@cuda.jit
def add(a, b, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = a[i] + b[i]


a = np.arange(1_000_003, dtype=np.float32)
b = a * 2
out = cuda.device_array_like(a)
add[(a.size + 255) // 256, 256](cuda.to_device(a), cuda.to_device(b), out)
host = out.copy_to_host()
assert np.array_equal(host, a + b)
print(json.dumps({"result": float(host.astype(np.float64).sum())}))

"""Shared memory, barriers, atomics and several streams with events."""

import json

import numpy as np
from numba import cuda, int64


@cuda.jit
def total(values, out):
    part = cuda.shared.array(128, dtype=int64)
    thread, i = cuda.threadIdx.x, cuda.grid(1)
    part[thread] = values[i] if i < values.size else 0
    cuda.syncthreads()
    half = 64
    while half > 0:
        if thread < half:
            part[thread] += part[thread + half]
        cuda.syncthreads()
        half //= 2
    if thread == 0:
        cuda.atomic.add(out, 0, part[0])


values = np.random.default_rng(0).integers(-1000, 1000, 500_000)
streams = [cuda.stream() for _ in range(4)]
outs = [cuda.to_device(np.zeros(1, np.int64)) for _ in streams]
for chunk, stream, out in zip(np.array_split(values, len(streams)), streams, outs, strict=True):
    start, end = cuda.event(), cuda.event()
    start.record(stream)
    total[(chunk.size + 127) // 128, 128, stream](cuda.to_device(chunk, stream=stream), out)
    end.record(stream)
    end.synchronize()
    assert cuda.event_elapsed_time(start, end) >= 0
cuda.synchronize()
found = sum(int(out.copy_to_host()[0]) for out in outs)
assert found == int(values.sum())
print(json.dumps({"result": found}))

"""The cells that browser tests run: small CUDA programs whose results are known."""

#: Defines a kernel, runs it, keeps the array on the device. Prints `sum 768.0`.
ADD = """\
import numpy as np
from numba import cuda

@cuda.jit
def add(values, amount):
    i = cuda.grid(1)
    if i < values.size:
        values[i] += amount

kept = cuda.to_device(np.ones(256, dtype=np.float32))
add[2, 128](kept, 2.0)
print("sum", kept.copy_to_host().sum())
"""

#: Goes on with the array of `ADD`. Prints `sum 1024.0`.
ADD_AGAIN = """\
add[2, 128](kept, 1.0)
print("sum", kept.copy_to_host().sum())
"""

#: Holds the cell open for so many seconds, using the device all the time.
USE_FOR = """\
import time
until = time.monotonic() + {seconds}
while time.monotonic() < until:
    add[2, 128](kept, 0.0)
    cuda.synchronize()
    time.sleep(0.05)
print("used")
"""

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

#: Runs for ever, and waits for that.
FOREVER = """\
import numpy as np
from numba import cuda

@cuda.jit
def forever(values):
    while values[0] < 1.0:
        values[1] += 1.0
        cuda.nanosleep(1_000_000)

spun = cuda.to_device(np.zeros(2))
forever[1, 1](spun)
cuda.synchronize()
print("ended")
"""

#: Writes far behind its array: the session can do nothing after it.
OUT_OF_BOUNDS = """\
import numpy as np
from numba import cuda

@cuda.jit
def bad(values):
    values[1 << 40] = 1.0

bad[1, 1](cuda.to_device(np.zeros(2)))
cuda.synchronize()
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

#: Makes {mib} MiB of device arrays of random numbers and a kernel, and uses both. Prints `made …`.
ARRAYS = """\
import hashlib
import numpy as np
from numba import cuda

@cuda.jit
def add_to_all(values, amount):
    for i in range(cuda.grid(1), values.size, cuda.gridsize(1)):
        values[i] += amount

kept = []
cuda.current_context().deallocations.clear()
random = np.random.default_rng(20261121)
kept = [cuda.to_device(random.integers(0, 2**31, {mib} << 16, dtype=np.int32)) for _ in range(4)]
small = cuda.to_device(np.zeros(1024, dtype=np.int32))
add_to_all[4, 256](small, 1)

def digest():
    whole = hashlib.sha256()
    for array in kept:
        whole.update(array.copy_to_host())
    return whole.hexdigest()

before = digest()
print("made", sum(array.nbytes for array in kept) >> 20, "MiB")
"""

#: Goes on with all of it. Prints `identical True 2 MADE MiB`.
ARRAYS_AGAIN = """\
same = digest() == before
add_to_all[4, 256](small, 1)
values = set(small.copy_to_host().tolist())
print("identical", same, *values, sum(array.nbytes for array in kept) >> 20, "MiB")
"""

#: Needs nearly all of a device's memory. Prints `has all but … MiB of …`.
WHOLE_DEVICE = """\
from numba import cuda
import numpy as np
large = None
cuda.current_context().deallocations.clear()
free, total = cuda.current_context().get_memory_info()
large = cuda.device_array(free - (256 << 20), np.uint8)
print("has all but", (total - large.nbytes) >> 20, "MiB of", total >> 20)
"""

"""A client of MPS that says how fast it fills memory and computes, as often as a line comes; one line of JSON each time.

Everything is made once, and many kernels run between two moments at which the host waits: otherwise calls are measured, and
not the device.
"""

from __future__ import annotations

import ctypes
import json
import sys
import time
from collections.abc import Callable
from typing import Final

from tests.gpu_check.cuda_by_hand import Cuda

_MIB: Final = 1 << 20
_FILLED_MIB: Final = 768
_FILLS: Final = 200
#: As many blocks as fill a GPU several times, each for about a millisecond, whatever part of it there is.
_BLOCKS: Final = 4096
_ROUNDS: Final = 4096
_KERNELS: Final = 50


def main() -> int:
    cuda = Cuda()
    size = ctypes.c_size_t(_FILLED_MIB * _MIB // 4)
    memory = cuda.allocated(_FILLED_MIB * _MIB)

    def fill() -> None:
        cuda.do("cuMemsetD32Async", memory, ctypes.c_uint(1), size, None)

    def compute() -> None:
        cuda.work(_BLOCKS, _ROUNDS)

    def seconds(do: Callable[[], None], times: int) -> float:
        do()
        cuda.synchronize()
        began = time.monotonic()
        for _ in range(times):
            do()
        cuda.synchronize()
        return round(time.monotonic() - began, 4)

    sys.stdout.write("{}\n")
    sys.stdout.flush()
    for _ in sys.stdin:
        found = {"fill": seconds(fill, _FILLS), "compute": seconds(compute, _KERNELS)}
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())

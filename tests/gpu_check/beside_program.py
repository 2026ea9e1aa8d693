"""One of several programs that share a device: prints what it found as JSON.

Arguments: what it does with what that needs, then the file that it writes when it is ready, the file that then names the
moment to begin, and the seconds.
"""

from __future__ import annotations

import ctypes
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.gpu_check.cuda_by_hand import Cuda
from tests.gpu_check.moment import begin_together, device_seconds, since

Found = dict[str, Any]

MIB: Final = 1 << 20
#: For a rehearsal without a GPU: little work, and memory that is taken and not written to.
SMALL: Final = bool(os.environ.get("GPU_CHECK_SMALL"))
#: Of a kernel that computes: as many as fill a GPU several times.
BLOCKS: Final = 16 if SMALL else 4096
#: How long such a kernel takes at least when the device is its own, and how many are launched before one is waited for.
_KERNEL_SECONDS: Final = 0.002
_LAUNCHES: Final = 10
_MOST_ROUNDS: Final = 1 << 20
#: Between two kernels of somebody who waits for each.
_PAUSE: Final = 0.05
#: So much later than the long kernel the short ones begin, and so much earlier they end.
_LATER: Final = 0.5
_EARLIER: Final = 1.0


@dataclass(frozen=True, slots=True)
class Start:
    """When it begins, and for how long.

    Attributes:
        ready: what it writes when it could begin.
        start: what then names the moment.
        seconds: how long it goes on.
    """

    ready: Path
    start: Path
    seconds: float

    def begin(self) -> tuple[float, bool]:
        return begin_together(self.ready, self.start)


def fill(cuda: Cuda, start: Start, piece_mib: str, value: str, mine: str, others: str) -> Found:
    """Takes memory until there is none, and holds it until the other one has done so, too.

    ``mine`` is written when this one is full, ``others`` when the other one is.
    """
    piece, byte = int(piece_mib) * MIB, int(value)
    touched = ctypes.c_size_t(4096 if SMALL else piece)
    _, early = start.begin()
    free, total = cuda.memory()
    held: list[ctypes.c_uint64] = []
    error = 0
    while error == 0:
        address = ctypes.c_uint64()
        error = cuda.status("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(piece))
        if error == 0:
            held.append(address)
            cuda.do("cuMemsetD8_v2", address, ctypes.c_ubyte(byte), touched)
    cuda.synchronize()
    Path(mine).touch()
    deadline = time.monotonic() + start.seconds
    while not Path(others).exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    return {
        "result": early,
        "both_full": Path(others).exists(),
        "same": all(cuda.byte(address) == byte for address in held),
        "error": "" if error == 2 else f"the last allocation returned {error}",
        "figures": {
            "total_mib": total // MIB,
            "free_mib": free // MIB,
            "taken_mib": len(held) * piece // MIB,
            "piece_mib": piece // MIB,
        },
    }


def long(cuda: Cuda, start: Start) -> Found:
    """One kernel that runs for all of the time."""
    _, early = start.begin()
    began = time.monotonic()
    cuda.spin(start.seconds)
    cuda.synchronize()
    return {"result": early, "figures": {"kernel_seconds": round(time.monotonic() - began, 2)}}


def tick(cuda: Cuda, start: Start) -> Found:
    """A tiny kernel again and again, as somebody launches them who looks at each result; how long each is waited for.

    From a moment on at which the long kernel runs for certain, and not until it has ended.
    """
    cuda.spin(0.0)
    cuda.synchronize()
    begin, early = start.begin()
    time.sleep(_LATER)
    waits: list[float] = []
    while not waits or time.time() < begin + start.seconds - _EARLIER:
        began = time.monotonic()
        cuda.spin(0.0)
        cuda.synchronize()
        waits.append(time.monotonic() - began)
        time.sleep(_PAUSE)
    return {
        "result": early,
        "figures": {
            "kernels": len(waits),
            "first_s": round(waits[0], 4),
            "longest_s": round(max(waits), 4),
            "median_of_the_rest_s": round(statistics.median(waits[1:] or waits), 4),
        },
    }


def work(cuda: Cuda, start: Start) -> Found:
    """Computes in steps that the device has much to do with, as training does; how much of it in a second."""
    rounds = _rounds(cuda)
    before = device_seconds()
    begin, early = start.begin()
    launches = 0
    while time.time() < begin + start.seconds:
        for _ in range(_LAUNCHES):
            cuda.work(BLOCKS, rounds)
        cuda.synchronize()
        launches += _LAUNCHES
    took = time.time() - begin
    return {
        "result": early,
        "figures": {
            "rounds_per_s": round(launches * rounds / took, 1),
            "launches": launches,
            "device_seconds": since(before),
        },
    }


def upload(cuda: Cuda, start: Start, mib: str) -> Found:
    """Copies host memory to the device, again and again."""
    size = int(mib) * MIB
    host, device = ctypes.create_string_buffer(size), cuda.allocated(size)
    ctypes.memset(host, 0x5A, size)  # pages that were never touched would be all one page
    begin, early = start.begin()
    uploads = 0
    while time.time() < begin + start.seconds:
        cuda.do("cuMemcpyHtoD_v2", device, host, ctypes.c_size_t(size))
        uploads += 1
    took = time.time() - begin
    return {
        "result": early,
        "figures": {"uploads": uploads, "gib_per_s": round(uploads * size / (MIB << 10) / took, 3)},
    }


def _rounds(cuda: Cuda) -> int:
    """So many that a kernel takes its time on this device."""
    cuda.work(BLOCKS, 1)  # the first one is loaded, or compiled
    cuda.synchronize()
    rounds, taken = 8, 0.0
    while taken < _KERNEL_SECONDS and rounds < _MOST_ROUNDS:
        rounds *= 2
        began = time.monotonic()
        cuda.work(BLOCKS, rounds)
        cuda.synchronize()
        taken = time.monotonic() - began
    return rounds


PROGRAMS: Final[Mapping[str, Callable[..., Found]]] = {
    "fill": fill,
    "long": long,
    "tick": tick,
    "work": work,
    "upload": upload,
}


def main() -> None:
    name, *needed = sys.argv[1:-3]
    ready, start, seconds = sys.argv[-3:]
    found = PROGRAMS[name](Cuda(), Start(Path(ready), Path(start), float(seconds)), *needed)
    print(json.dumps(found))


if __name__ == "__main__":
    main()

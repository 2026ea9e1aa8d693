"""What a driver takes of a share for a context itself.

It differs with card and driver, from 200 to 600 MiB on present ones, and nothing tells it beforehand. So a node makes a
context on each device when it starts, in a process of its own, and looks at what the device has in use before and after.
Other programs may take memory in that moment, such as workers that an earlier agent has left. So it looks more than once.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import structlog

from gpupool.node.health import device_handle

logger = structlog.get_logger(__name__)

#: Where it cannot be measured: an H200 with driver 580 takes 525 MiB.
NVIDIA_CONTEXT_MIB: Final = 550
#: For what a worker's own modules and streams take.
_MORE_MIB: Final = 25
#: Less is no context, and more was taken by others at the same time.
_LEAST_MIB: Final = 32
_MOST_MIB: Final = 2048
_SECONDS: Final = 60.0
#: How often it is measured; the node starts late by all of it, so after so many seconds no further time.
_TIMES: Final = 3
_ALL_SECONDS: Final = 20.0
_MIB: Final = 1 << 20


async def context_reserve_mib(
    asked: int | None, driver: str, environment: Mapping[str, str], *, software: bool
) -> int:
    """``asked``; else none for software GPUs, what was measured for others, or a round figure.

    Args:
        asked: by the administrator.
        driver: the driver's library.
        environment: of workers, on top of this process's: a client of MPS takes less.
        software: whether its devices are software GPUs.
    """
    if asked is not None:
        return asked
    if software:
        return 0
    command = (sys.executable, "-m", "gpupool.node.context_reserve", driver)
    measured, why = await _least_measured(command, environment)
    if measured is None:
        logger.warning("what a context takes was not measured", reason=why, assumed_mib=NVIDIA_CONTEXT_MIB)
        return NVIDIA_CONTEXT_MIB
    logger.info("what a context takes", mib=measured)
    return measured + _MORE_MIB


async def _least_measured(command: Sequence[str], environment: Mapping[str, str]) -> tuple[int | None, str]:
    """The least of some figures in MiB, and else why there is none.

    What others take beside a measurement would be taken from every share, for as long as the node runs.
    """
    began = time.monotonic()
    least, why = await _measured(command, environment)
    for _ in range(_TIMES - 1):
        if time.monotonic() - began >= _ALL_SECONDS:
            break
        mib, reason = await _measured(command, environment)
        if mib is None:
            why = reason
        else:
            least = mib if least is None else min(least, mib)
    return least, why


async def _measured(command: Sequence[str], environment: Mapping[str, str]) -> tuple[int | None, str]:
    """In MiB, and else why it is not known."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=os.environ | environment,
        )
    except OSError as error:
        return None, str(error)
    try:
        async with asyncio.timeout(_SECONDS):
            output, errors = await process.communicate()
    except TimeoutError:
        return None, f"no answer in {_SECONDS:g} s"
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    said = errors.decode(errors="replace").strip().splitlines()
    if process.returncode != 0 or not output.strip().isdigit():
        return None, said[-1] if said else f"status {process.returncode}"
    mib = int(output)
    if not _LEAST_MIB <= mib <= _MOST_MIB:
        return None, f"{mib} MiB more were in use than before"
    return mib, ""


def _taken_mib(library: str, nvml: Any) -> int:
    """By a context on the device on which it takes most. Raises OSError, RuntimeError, NVMLError."""
    cuda = ctypes.CDLL(library)

    def do(name: str, *arguments: object) -> None:
        if status := getattr(cuda, name)(*arguments):
            raise RuntimeError(f"{name} returned {status}")

    do("cuInit", 0)
    count, most = ctypes.c_int(), 0
    do("cuDeviceGetCount", ctypes.byref(count))
    for device in range(count.value):
        uuid, context = (ctypes.c_ubyte * 16)(), ctypes.c_void_p()
        do("cuDeviceGetUuid_v2", uuid, device)
        handle = device_handle(nvml, bytes(uuid).hex())
        before = nvml.nvmlDeviceGetMemoryInfo(handle).used
        do("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        most = max(most, nvml.nvmlDeviceGetMemoryInfo(handle).used - before)
        do("cuDevicePrimaryCtxRelease_v2", device)
    return -(-most // _MIB)


def main(arguments: Sequence[str]) -> int:
    """Prints the figure in MiB."""
    try:
        import pynvml

        pynvml.nvmlInit()
        sys.stdout.write(f"{_taken_mib(arguments[0], pynvml)}\n")
    except Exception as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

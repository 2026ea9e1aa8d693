"""Makes ipykernel load the magics at its start, where its interpreter has them.

Other kernels are left alone: an unknown argument would keep them from starting.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

KERNEL_EXTENSION: Final = "jupyter_gpupool.kernel"
#: In place of all else that a kernel is told: why it gets no GPU, whatever it asks.
PROBLEM_VARIABLE: Final = "GPUPOOL_PROBLEM"
_ARGUMENT: Final = f"--InteractiveShellApp.extra_extensions={KERNEL_EXTENSION}"
_PROBE_SECONDS: Final = 10.0
# find_spec of the package alone: importing it here would cost each kernel start a second.
_PROBE: Final = "import importlib.util as u, sys; sys.exit(u.find_spec('jupyter_gpupool') is None)"

#: Interpreters, with their modification times, that have this package. One that has not may get it at any time.
_known: set[tuple[str, float]] = set()


def is_ipykernel(command: Sequence[str]) -> bool:
    """Whether a kernel command runs stock ipykernel, whose arguments are known."""
    return any(
        flag == "-m" and module in ("ipykernel", "ipykernel_launcher") for flag, module in pairwise(command)
    )


async def with_magics(command: Sequence[str], environment: dict[str, str]) -> list[str]:
    """The kernel command, extended if that kernel can load the magics."""
    extended = list(command)
    if is_ipykernel(extended) and await _has_package(extended[0], environment):
        extended.append(_ARGUMENT)
    return extended


async def _has_package(interpreter: str, environment: dict[str, str]) -> bool:
    path = shutil.which(interpreter, path=environment.get("PATH"))
    if path is None:
        return False
    # Not resolved: a virtual environment's python is a link to the system's.
    if path == sys.executable and environment.get("PYTHONPATH") == os.environ.get("PYTHONPATH"):
        return True
    key = (path, _modified(path))
    if key not in _known and await _probe(path, environment):
        _known.add(key)
    return key in _known


def _modified(path: str) -> float:
    try:
        return Path(path).lstat().st_mtime
    except OSError:
        return 0.0


async def _probe(path: str, environment: dict[str, str]) -> bool:
    try:
        process = await asyncio.create_subprocess_exec(
            path,
            "-c",
            _PROBE,
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except OSError:
        return False
    try:
        return await asyncio.wait_for(process.wait(), _PROBE_SECONDS) == 0
    except TimeoutError:
        process.kill()
        await process.wait()
        return False

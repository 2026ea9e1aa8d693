"""What NVIDIA's Multi-Process Service (MPS) wants of those who start its clients: how many there may be, and how one ends.

All clients reach a device through one server. A client that a signal ends while its kernels run can leave the server in
any state, and with it all other clients: they may hang, or compute something else (NVIDIA's guide to MPS, early
termination of clients). So the server is asked first to take the client's work off the device.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
from typing import Final

from gpupool.engines.mps import MpsDaemon, MpsUnusableError

#: Passes commands to the daemon, one a line of its standard input.
CONTROL: Final = "nvidia-cuda-mps-control"
#: Within which the server has ended a client; a daemon that hangs must not keep a share for longer.
END_SECONDS: Final = 5.0
#: Contexts that a server has for one device, up to CUDA 13.0 and from 13.1 on.
MOST_CLIENTS: Final = 48
_MORE_CLIENTS: Final = 60
_CUDA_WITH_MORE: Final = 13010
# NVIDIA documents that terminate_client returns CUDA_SUCCESS or another CUDA error, but not as what: status or text.
_FAILED: Final = re.compile(r"error|fail|invalid|not found|unknown|cannot", re.IGNORECASE)


def most_clients(cuda: int) -> int:
    """How many clients of one device a server has at once; ``cuda`` is the driver's version, such as 13000."""
    return _MORE_CLIENTS if cuda >= _CUDA_WITH_MORE else MOST_CLIENTS


async def end_client(daemon: MpsDaemon, pid: int) -> None:
    """Takes all work of a client off its devices; its process may be ended then, and can only be ended.

    A process that is no client (yet) is left alone. Takes at most :data:`END_SECONDS`.

    Raises:
        MpsUnusableError: the daemon could not do that, or did not answer.
    """
    try:
        async with asyncio.timeout(END_SECONDS):
            for server in _numbers(await _told(daemon, "get_server_list")):
                if pid in _numbers(await _told(daemon, f"get_client_list {server}")):
                    said = await _told(daemon, f"terminate_client {server} {pid}")
                    if _FAILED.search(said):
                        raise MpsUnusableError(f"terminate_client: {said[-200:]}")
    except TimeoutError:
        raise MpsUnusableError(f"the MPS control daemon did not answer within {END_SECONDS:g} s") from None


async def _told(daemon: MpsDaemon, command: str) -> str:
    """What the daemon says to a command. Raises MpsUnusableError: nothing, or the command failed."""
    try:
        process = await asyncio.create_subprocess_exec(
            CONTROL,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=os.environ | daemon.environment(),
        )
    except OSError as error:
        raise MpsUnusableError(f"{CONTROL} cannot be run: {error.strerror}") from None
    try:
        output, _ = await process.communicate(f"{command}\n".encode("ascii"))
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    said = output.decode(errors="replace").strip()
    if process.returncode != 0:
        raise MpsUnusableError(f"{command}: {said[-200:] or f'status {process.returncode}'}")
    return said


def _numbers(said: str) -> list[int]:
    """The lines that are process ids."""
    lines = (line.strip() for line in said.splitlines())
    return [int(line) for line in lines if line.isascii() and line.isdigit() and len(line) <= 10]

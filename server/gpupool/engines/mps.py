"""NVIDIA's Multi-Process Service (MPS): whether its control daemon serves this user, and what workers are told of it.

A CUDA process becomes a client of MPS when it finds the daemon's pipes, which without ``CUDA_MPS_PIPE_DIRECTORY`` are
looked for at a place that is the same for everybody. So workers are always told: of the daemon that was chosen, or of a
place where there is none. Clients of MPS run beside each other on a device; what the driver's process checkpoint
does with them is not documented, so a worker that is one says that its memory cannot be parked.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

#: Where the daemon's pipes are when nothing else is said.
DEFAULT_PIPES: Final = Path("/tmp/nvidia-mps")  # noqa: S108 (NVIDIA's place; owners are checked)
_PIPES: Final = "CUDA_MPS_PIPE_DIRECTORY"
_PERCENTAGE: Final = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
#: Set for the agent, they would say for all workers what is said for each.
OF_EACH_CLIENT: Final = (
    _PERCENTAGE,
    "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
    "CUDA_MPS_ENABLE_PER_CTX_DEVICE_MULTIPROCESSOR_PARTITIONING",
)
_PID_FILE: Final = "nvidia-cuda-mps-control.pid"
#: The kernel keeps 15 characters of a process's name.
_PROCESS_NAME: Final = "nvidia-cuda-mps"


class MpsUnusableError(Exception):
    """There is no daemon that this user can use; ``str()`` says why."""


@dataclass(frozen=True, slots=True)
class MpsDaemon:
    """A control daemon that runs.

    Attributes:
        pipes: the folder with its pipes.
        pid: its process.
    """

    pipes: Path
    pid: int

    def environment(self) -> dict[str, str]:
        """Makes a worker its client."""
        return {_PIPES: str(self.pipes)}


def pipes_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Where programs with this environment look for the daemon."""
    return Path(environment.get(_PIPES) or DEFAULT_PIPES)


def find_daemon(pipes: Path, *, uid: int | None = None, proc: Path = Path("/proc")) -> MpsDaemon:
    """The daemon that serves ``uid`` (this process's user) at ``pipes``.

    It and its files must be this user's or root's: whoever answers there gets all work of all sessions.

    Raises:
        MpsUnusableError: none does.
    """
    trusted = {0, os.geteuid() if uid is None else uid}
    try:
        folder = pipes.lstat()
        control = (pipes / "control").lstat()
    except OSError as error:
        raise MpsUnusableError(f"no MPS control daemon at {pipes}: {error.strerror}") from None
    if not stat.S_ISDIR(folder.st_mode) or not (
        stat.S_ISSOCK(control.st_mode) or stat.S_ISFIFO(control.st_mode)
    ):
        raise MpsUnusableError(f"{pipes} is not the folder of an MPS control daemon")
    if {folder.st_uid, control.st_uid} - trusted:
        raise MpsUnusableError(f"the MPS control daemon at {pipes} belongs to another user")
    try:
        number = _first_bytes(pipes / _PID_FILE).decode("ascii", errors="replace").strip()
    except OSError as error:
        raise MpsUnusableError(f"no MPS control daemon at {pipes}: {error.strerror}") from None
    if not number.isascii() or not number.isdigit() or len(number) > 10:
        raise MpsUnusableError(f"{pipes / _PID_FILE} names no process")
    try:
        owner = (proc / number).stat().st_uid
        name = (proc / number / "comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        raise MpsUnusableError(f"the MPS control daemon at {pipes} does not run any more") from None
    if name != _PROCESS_NAME or owner not in trusted:
        raise MpsUnusableError(
            f"the process that {pipes} names is no MPS control daemon of this user or root"
        )
    return MpsDaemon(pipes, int(number))


def _first_bytes(path: Path) -> bytes:
    """Of a file that may be anything: neither a pipe nor a device keeps the reader."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        return os.read(file, 64)
    finally:
        os.close(file)


def without_mps(folder: Path) -> dict[str, str]:
    """Makes a worker no client of any daemon: it looks in a place below ``folder`` where nothing is."""
    return {_PIPES: str(folder / "no-mps")}


def partition(milli: int) -> dict[str, str]:
    """Gives a client a part of the multiprocessors: whole percent, of which a hard cap rounds none up."""
    return {_PERCENTAGE: str(max(milli // 10, 1))}


def start_record(*, strict: bool) -> bytes:
    """What a client of MPS is told of that: a strict share is kept to by MPS, others by turns."""
    return b"mps partition\n" if strict else b"mps beside\n"

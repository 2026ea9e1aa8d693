"""A directory for session files, which hold tokens, and what lies beside them. It goes with its process.

A process that is killed cannot remove its directory, so the next one removes what was left. A directory is left if

* its ``lock`` names this host: on a shared home, other hosts' locks need not be seen here; and
* the process that it is named after has ended; and
* nobody holds the lock. The process that has made the directory holds it, and each child that has inherited the descriptor,
  which may outlive it: by a bare fork, or by a start with all descriptors open, as that of the command of ``gpupool run``.
  ``subprocess`` closes them where it is not told otherwise. So the kernels of a Jupyter server hold no lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from gpupool.client.endpoint import private_directory

_LOCK: Final = "lock"


@contextlib.contextmanager
def own_directory(parent: Path, process: int) -> Iterator[Path]:
    """A new one in ``parent``, removed at the end by the process that has made it.

    Args:
        parent: has nothing but such directories that are named like a process; private to the user.
        process: the one whose end is the directory's.

    Raises:
        DirectoryUnusableError: it cannot be made.
    """
    lock, maker = None, os.getpid()
    with _alone(parent):
        _remove_left(parent)
        directory = private_directory(parent / f"{process}-{secrets.token_hex(4)}")
        with contextlib.suppress(OSError):  # a file system without locks, or full: it may stay then
            lock = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.write(lock, socket.gethostname().encode())
            os.set_inheritable(lock, True)
    try:
        yield directory
    finally:
        # At the end of a forked child Python ends this generator there as well, and its parent still uses the files.
        if os.getpid() == maker:
            shutil.rmtree(directory, ignore_errors=True)
        if lock is not None:
            os.close(lock)


@contextlib.contextmanager
def _alone(parent: Path) -> Iterator[None]:
    """Nobody looks for left directories while one is made whose lock is not held yet."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            descriptor = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            stack.callback(os.close, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield


def _remove_left(parent: Path) -> None:
    for directory in parent.iterdir():
        process, _, _ = directory.name.partition("-")
        if process.isdecimal() and _has_ended(process) and _is_free(directory / _LOCK):
            shutil.rmtree(directory, ignore_errors=True)


def _has_ended(process: str) -> bool:
    # In a container that starts again, this process has the number of the one that was killed.
    return process == str(os.getpid()) or not Path("/proc", process).exists()


def _is_free(lock: Path) -> bool:
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        if os.read(descriptor, 256).decode(errors="replace") != socket.gethostname():
            return False
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True

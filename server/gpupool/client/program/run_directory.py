"""The directory of one program that has a GPU share: its session file, which holds the token, and its log.

A process that is killed cannot remove its directory, so the next program removes what was left. A directory is left if

* its ``lock`` names this host: on a shared home, other hosts' locks need not be seen here; and
* the program that it is named after has ended; and
* nobody holds the lock: whoever has made the directory, and what it has started, which may outlive it.
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

from gpupool.client.endpoint import HOME_VARIABLE, home, private_directory

_LOCK: Final = "lock"


@contextlib.contextmanager
def run_directory(program: int) -> Iterator[Path]:
    """A new one, removed at the end.

    Args:
        program: the process whose end is the directory's.

    Raises:
        DirectoryUnusableError: there is no private place for it.
    """
    # Below the default home they are this program's own, as that is. A volume may come back open to its group.
    own = not os.environ.get(HOME_VARIABLE)
    clients = private_directory(private_directory(home() / "run", tighten=own) / "clients", tighten=own)
    lock = None
    with _alone(clients):
        _remove_left(clients)
        directory = private_directory(clients / f"{program}-{secrets.token_hex(4)}")
        with contextlib.suppress(OSError):  # a file system without locks, or full: it may stay then
            lock = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.write(lock, socket.gethostname().encode())
            os.set_inheritable(lock, True)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        if lock is not None:
            os.close(lock)


@contextlib.contextmanager
def _alone(clients: Path) -> Iterator[None]:
    """Nobody looks for left directories while one is made whose lock is not held yet."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            descriptor = os.open(clients, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            stack.callback(os.close, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield


def _remove_left(clients: Path) -> None:
    for directory in clients.iterdir():
        program, _, _ = directory.name.partition("-")
        if program.isdecimal() and not Path("/proc", program).exists() and _is_free(directory / _LOCK):
            shutil.rmtree(directory, ignore_errors=True)


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

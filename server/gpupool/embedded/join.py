"""Finds the embedded pool of this user, or starts one. What is returned holds it: see :mod:`gpupool.embedded.keeper`."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from gpupool.client.endpoint import HOME_VARIABLE, private_directory
from gpupool.client.errors import GpupoolError
from gpupool.embedded import messages, paths
from gpupool.embedded.messages import BadMessageError, Told
from gpupool.embedded.options import EmbeddedOptions
from gpupool.embedded.service import log_end
from gpupool.text import printable

#: A pool and its node have so long to start, seconds.
START_SECONDS: Final = 240.0
#: What was started has so long to end, seconds.
STOP_SECONDS: Final = 60.0
#: A keeper that ends has so long, and one that starts until it says so.
_TURN_SECONDS: Final = 90.0
_LOOK_SECONDS: Final = 0.05
#: A keeper on another machine is alive if it has shown so in this time, seconds.
_ALIVE: Final = 4 * paths.SIGN_OF_LIFE_SECONDS
#: sun_path has 108 bytes with its final zero.
_MOST_SOCKET_PATH: Final = 107
#: The extra `pool` brings these.
_NEEDED: Final = ("grpc_health", "numpy", "prometheus_client", "sqlalchemy", "stamina", "structlog", "typer")


class EmbeddedError(GpupoolError):
    """No pool can be started here; ``str()`` says why."""


class LostError(EmbeddedError):
    """The keeper is gone, and what it started ends."""


class Lifeline:
    """A hold on an embedded pool: it lives at least as long as this object's socket.

    Attributes:
        ready: what the keeper said of the pool.
        started: this call has started it, it did not run before.
    """

    def __init__(self, connection: socket.socket, *, started: bool) -> None:
        self._socket = connection
        self._read = b""
        self.started = started
        self.ready = Told(messages.STARTING)

    def fileno(self) -> int:
        return self._socket.fileno()

    def told(self, seconds: float) -> Told | None:
        """The next message; None: none came in time. Raises LostError and EmbeddedError."""
        deadline = time.monotonic() + seconds
        while b"\n" not in self._read:
            left = deadline - time.monotonic()
            if left < 0:
                return None
            self._socket.settimeout(max(left, 0.001))
            try:
                received = self._socket.recv(4096)
            except TimeoutError:
                return None
            except OSError as error:
                raise LostError(f"The embedded pool has ended ({error.strerror}).") from None
            if not received or len(self._read) > messages.MOST_BYTES:
                raise LostError("The embedded pool has ended.")
            self._read += received
        line, _, self._read = self._read.partition(b"\n")
        try:
            told = Told.parse(line)
        except BadMessageError as error:
            raise EmbeddedError(
                f"What runs the embedded pool is of another version ({error}); end it first."
            ) from None
        if told.state in (messages.READY, messages.RESTARTED):
            self.ready = told
        return told

    def leave(self, seconds: float = STOP_SECONDS) -> int:
        """Lets go, and waits for the end of what was started; how many others go on using it."""
        others = 0
        with contextlib.suppress(OSError, EmbeddedError):
            self._socket.settimeout(seconds)
            self._socket.sendall(messages.LEAVE)
            deadline = time.monotonic() + seconds
            while (told := self.told(deadline - time.monotonic())) is not None:
                if told.state == messages.STAYS:
                    others = told.users
                    break
        self.close()
        return others

    def close(self) -> None:
        """Lets go at once."""
        self._socket.close()


def missing_packages() -> list[str]:
    """What a pool server needs and is not installed here."""
    return [name for name in _NEEDED if find_spec(name) is None]


def is_kept(home: Path) -> bool:
    """Whether a keeper runs a pool in ``home``."""
    return _is_held(paths.keeper_lock(home))


def runs_by_itself(home: Path) -> bool:
    """Whether a pool answers in ``home`` that no keeper has started."""
    return _answers(paths.pool_socket(home)) and not _is_held(paths.keeper_lock(home))


def join(
    home: Path, options: EmbeddedOptions, said: Callable[[str], None] = lambda text: None
) -> Lifeline | None:
    """Holds the pool in ``home``, started if it does not run. Blocks until it lends its GPUs.

    Args:
        home: a directory of its user alone; made if it is missing.
        options: what a new pool is made of; one that runs stays as it is.
        said: called with what is done.

    Returns:
        None: a pool runs there that somebody started otherwise, such as by ``gpupool pool serve``.

    Raises:
        EmbeddedError: it cannot be started.
        DirectoryUnusableError: ``home`` is not private.
    """
    private_directory(home)
    if len(os.fsencode(paths.lifeline_socket(home))) > _MOST_SOCKET_PATH:
        raise EmbeddedError(
            f"The path {home} is too long for sockets, whose paths have {_MOST_SOCKET_PATH} bytes at most; name a shorter one "
            f"with --home or ${HOME_VARIABLE}."
        )
    deadline = time.monotonic() + START_SECONDS
    while True:
        lifeline = _found_or_started(home, options)
        if lifeline is None:
            return None
        try:
            if _becomes_ready(lifeline, deadline, said):
                return lifeline
        except BaseException:
            lifeline.close()
            raise
        # It was just ending.
        lifeline.close()


def _becomes_ready(lifeline: Lifeline, deadline: float, said: Callable[[str], None]) -> bool:
    while True:
        try:
            told = lifeline.told(max(0.0, deadline - time.monotonic()))
        except LostError:
            if lifeline.started:
                raise
            return False
        if told is None:
            raise EmbeddedError(f"The embedded pool did not start within {START_SECONDS:g} s.")
        match told.state:
            case messages.READY:
                return True
            case messages.STARTING:
                said(f"Starting {told.text} …")
            case messages.FAILED:
                raise EmbeddedError(told.text)
            case messages.ENDED:
                return False


def _found_or_started(home: Path, options: EmbeddedOptions) -> Lifeline | None:
    """One at a time of each user, so that two who come together find one keeper."""
    with _turn(paths.start_lock(home)):
        deadline = time.monotonic() + _TURN_SECONDS
        while True:
            found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                found.connect(str(paths.lifeline_socket(home)))
                return Lifeline(found, started=False)
            except OSError:
                found.close()
            if host := _on_another_machine(home):
                raise EmbeddedError(
                    f"Your pool in {home} runs on {host}: use it there, end it there, or name another home with --home "
                    f"or ${HOME_VARIABLE}."
                )
            if not _is_held(paths.keeper_lock(home)):
                break
            if time.monotonic() > deadline:
                raise EmbeddedError(f"The embedded pool in {home} neither answers nor ends.")
            time.sleep(_LOOK_SECONDS)
        if _answers(paths.pool_socket(home)):
            return None
        return _start(home, options)


def _on_another_machine(home: Path) -> str:
    """The machine on which the pool in ``home`` runs; empty: on none, or on this one."""
    lock = paths.keeper_lock(home)
    try:
        host = printable(lock.read_text(errors="replace"))[:255]
        if not host or host == socket.gethostname():
            return ""
        # The file server's clock tells both times.
        mark = paths.start_lock(home)
        os.utime(mark)
        silent = mark.stat().st_mtime - lock.stat().st_mtime
    except FileNotFoundError:
        return ""
    return host if _is_held(lock) or silent < _ALIVE else ""


def _start(home: Path, options: EmbeddedOptions) -> Lifeline:
    missing = missing_packages()
    if missing:
        raise EmbeddedError(
            f"The parts of a pool server are not installed here ({', '.join(missing)}). "
            "Run: pip install 'jupyter-gpupool[pool]'"
        )
    ours, theirs = socket.socketpair()
    logs = paths.logs(home)
    logs.mkdir(mode=0o700, exist_ok=True)
    log = logs / "keeper.log"
    with theirs, log.open("ab") as output:
        begin = output.tell()
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "gpupool.embedded", str(theirs.fileno()), options.to_json()],
            env={**os.environ, HOME_VARIABLE: str(home)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=(theirs.fileno(),),
            # Ctrl-C reaches whoever started it, which then lets go.
            start_new_session=True,
        )
    lifeline = Lifeline(ours, started=True)
    try:
        # Its first word says that it listens: whoever looks for a keeper from now on finds this one.
        ours.settimeout(_TURN_SECONDS)
        first = ours.recv(1, socket.MSG_PEEK)
    except OSError:
        first = b""
    if not first:
        lifeline.close()
        process.wait(5)
        raise EmbeddedError(f"The embedded pool cannot be started. The end of {log}:\n{log_end(log, begin)}")
    return lifeline


@contextlib.contextmanager
def _turn(path: Path) -> Iterator[None]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + _TURN_SECONDS
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise EmbeddedError(
                        f"Somebody else has been starting a pool in {path.parent} for {_TURN_SECONDS:g} s."
                    ) from None
                time.sleep(_LOOK_SECONDS)
        yield
    finally:
        os.close(descriptor)


def _is_held(lock: Path) -> bool:
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True

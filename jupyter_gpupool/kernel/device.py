"""The client runtime as the magics use it: one seam to :mod:`gpupool.client.runtime`."""

from __future__ import annotations

import contextlib
import os
import re
import threading

from gpupool.client import runtime
from gpupool.client.errors import GpupoolError
from gpupool.client.runtime import Counters as Reading
from gpupool.client.session_file import (
    SESSION_FILE_VARIABLE,
    SessionFile,
    SessionFileError,
    SessionRecord,
)

from jupyter_gpupool.kernel.errors import GpuError

__all__ = [
    "Reading",
    "attach",
    "detach",
    "drain",
    "flush",
    "notice_changes",
    "prepare",
    "read",
    "session",
    "stopped_waiting",
    "why_unavailable",
    "wish_for_leases",
]

#: Generation of the session file when the last cell started.
_seen = 0

#: How numba, cuda-core, cupy and PyTorch name CUDA_ERROR_DEVICE_UNAVAILABLE (46).
_UNAVAILABLE = re.compile(r"DEVICE_?UNAVAILABLE|device\(s\) is/are busy or unavailable", re.IGNORECASE)


def prepare() -> None:
    """At the start of a kernel, before anybody imports PyTorch or numba.

    PyTorch keeps the runtime API that it finds when it is imported; our own needs no GPU until it is
    called. numba decides once, when it is imported, whether it hands over machine code or PTX. On a
    failure nothing is said here: most kernels never attach, and the attach says it.
    """
    with contextlib.suppress(GpupoolError, OSError):
        runtime.load_runtime_api()
        if session().software:
            runtime.load(True)


def attach(*, software: bool) -> None:
    """Makes this process use the lease that its session file names.

    Raises:
        GpuError: the runtime is missing, came too late, or cannot reach the worker.
    """
    try:
        runtime.load(software)
        runtime.attach()
    except GpupoolError as error:
        raise GpuError(str(error), "runtime") from None


def wish_for_leases(on: bool) -> None:
    """Whether a CUDA call that finds no GPU attached wishes for one, and waits for it.

    Raises:
        GpuError: the runtime is missing, or came too late.
    """
    try:
        if on:
            runtime.load(session().software)
        if runtime.loaded():
            runtime.wish_for_leases(on)
    except GpupoolError as error:
        raise GpuError(str(error), "runtime") from None


def stopped_waiting() -> bool:
    """Whether the last that a CUDA call of this thread was told is that the user would not wait."""
    return runtime.loaded() and runtime.last_message().startswith("Stopped waiting")


def drain(seconds: float) -> str | None:
    """Waits for all submitted work; a deferred error of it comes back as one sentence.

    Raises KeyboardInterrupt when the user will not wait; the work goes on meanwhile.
    """
    if not runtime.loaded():
        return None
    problems: list[str] = []

    def wait() -> None:
        try:
            runtime.drain(seconds)
        except GpupoolError as error:
            problems.append(str(error))

    # In a thread of its own: a blocking call of C code could not be interrupted by the user.
    waiting = threading.Thread(target=wait, name="gpupool drain", daemon=True)
    waiting.start()
    while waiting.is_alive():
        waiting.join(1.0)
    return problems[0] if problems else None


def read(*, reset_peak: bool = False) -> Reading | None:
    """The counters of this process, None when they cannot be read."""
    if not runtime.loaded():
        return None
    try:
        return runtime.counters(reset_peak=reset_peak)
    except (GpupoolError, ValueError, KeyError):
        # Figures are an extra: a runtime of another version must not fail the cell.
        return None


def notice_changes() -> None:
    """At the start of a cell: forgets a lease that is not the one of the session file any more.

    The runtime reads the file when a call is refused; but what it sends without waiting for
    an answer would be lost with the refusal. So a lease that was changed from outside since
    the last cell (in the sidebar, by the pool) is forgotten before the first call.
    """
    global _seen
    if not runtime.loaded():
        return
    generation = session().generation
    if generation != _seen:
        _seen = generation
        detach()


def flush() -> None:
    """At the end of a cell under a hold: what it submitted has reached the worker.

    The hold can be dropped from outside, in the sidebar; what is still on its way then would
    be refused. Reading the counters is a question that travels behind all submitted work.
    """
    if runtime.loaded() and session().state == "attached":
        read()


def why_unavailable(error: BaseException) -> str | None:
    """What to say below the traceback of a CUDA call that found no GPU attached.

    Frameworks show only the code of CUDA_ERROR_DEVICE_UNAVAILABLE; the reason is in the session file.
    """
    if not _UNAVAILABLE.search(str(error)):
        return None
    found = session()
    return found.message or None if found.state != "attached" else None


def session() -> SessionRecord:
    """What the session file says now; ``none`` where there is none."""
    path = os.environ.get(SESSION_FILE_VARIABLE)
    try:
        return SessionFile(path).read() if path else SessionRecord()
    except (SessionFileError, OSError):
        return SessionRecord()


def detach() -> None:
    """Forgets the lease; the next CUDA call reads the session file again."""
    with contextlib.suppress(GpupoolError):
        runtime.detach()

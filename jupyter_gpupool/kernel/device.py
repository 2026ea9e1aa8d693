"""The client runtime as the magics use it: one seam to :mod:`gpupool.client.runtime`."""

from __future__ import annotations

import contextlib
import re

from gpupool.client import runtime, stale_handles
from gpupool.client.errors import GpupoolError
from gpupool.client.runtime import Counters as Reading
from gpupool.client.session_file import SessionRecord, session_now

from jupyter_gpupool.kernel.errors import GpuError

__all__ = [
    "Reading",
    "attach",
    "detach",
    "drain",
    "end_session",
    "flush",
    "forget_session",
    "is_of_cuda",
    "leave_refusals",
    "notice_changes",
    "prepare",
    "read",
    "refusal",
    "session",
    "stopped_waiting",
    "why_unavailable",
    "wish_for_leases",
    "work",
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
            runtime.tell_refusals(True)


def attach(*, software: bool) -> None:
    """Makes this process use the lease that its session file names.

    Raises:
        GpuError: the runtime is missing, came too late, or cannot reach the worker.
    """
    try:
        runtime.load(software)
        runtime.tell_refusals(True)
        stale_handles.look(session().session)
        runtime.attach()
    except GpupoolError as error:
        # Calls wait by themselves for a share that is being waited for.
        if not runtime.loaded() or session().state != "waiting":
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


def drain(seconds: float) -> None:
    """Waits for all submitted work. Raises GpupoolError: some of it failed, or it is not done in time."""
    if runtime.loaded():
        runtime.drain(seconds)


def work() -> runtime.Work | None:
    """What the devices of this kernel are doing; None: nobody says so now."""
    if not runtime.loaded():
        return None
    try:
        return runtime.inquire()
    except (GpupoolError, ValueError, KeyError):
        return None


def end_session() -> None:
    """Ends the GPU session at once, with what runs in it; calls that wait for it fail."""
    if runtime.loaded():
        with contextlib.suppress(GpupoolError):
            runtime.end_session()


def forget_session() -> None:
    """The session was reset: numba loads its kernels again, and an array of before says that it is lost."""
    stale_handles.look("")
    detach()


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
    found = session()
    if found.generation != _seen:
        _seen = found.generation
        stale_handles.look(found.session)
        detach()


def flush() -> Reading | None:
    """At the end of a cell under a hold: what it submitted has reached the worker; the counters then.

    The hold can be dropped from outside, in the sidebar; what is still on its way then would
    be refused. Reading the counters is a question that travels behind all submitted work.
    """
    return read() if runtime.loaded() and session().state == "attached" else None


def why_unavailable(error: BaseException) -> str | None:
    """What to say below the traceback of a CUDA call that found no GPU attached.

    Frameworks show only the code of CUDA_ERROR_DEVICE_UNAVAILABLE; the reason is in the session file.
    """
    if not _UNAVAILABLE.search(str(error)):
        return None
    found = session()
    return found.message or None if found.state != "attached" else None


def leave_refusals() -> None:
    """From now on nobody asks for them: the runtime says them itself."""
    runtime.tell_refusals(False)


def refusal() -> str:
    """Why a call of the main thread was last refused, once; empty: none was.

    It is said at the end of the cell, and by the runtime not above its output.
    """
    return runtime.take_refusal() if runtime.loaded() else ""


def is_of_cuda(error: BaseException) -> bool:
    """Whether a CUDA call has failed with it, as numba, cuda-core, cupy, Triton and PyTorch show that."""
    return "cuda" in f"{type(error).__name__} {error}".lower()


def session() -> SessionRecord:
    """What the session file says now; ``none`` where there is none."""
    return session_now()


def detach() -> None:
    """Forgets the lease; the next CUDA call reads the session file again."""
    with contextlib.suppress(GpupoolError):
        runtime.detach()

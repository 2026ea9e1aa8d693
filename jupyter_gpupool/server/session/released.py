"""What is said of the last release of a kernel's GPU: why, what was freed, what was kept, and whether it can be undone.

Pure: the shell notes a release when it happens, the words are made when they are read, because the memory
of a session moves after its lease has ended.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from gpupool.client.session.record import Session, State
from gpupool.client.types import LeaseRequest, Usage
from gpupool.device_names import device_names
from gpupool.durations import duration_text
from gpupool.sentences import param, reasons, render, say
from gpupool.shares import format_share

from jupyter_gpupool.server.session.quantities import memory_text

#: How long Undo is offered after a release, seconds.
UNDO_SECONDS: Final = 120.0
#: Releases that nobody else waits for, and that one click takes back. The others are the pool's decision.
_UNDONE: Final = frozenset({"idle", "release", "deadline"})

#: To the pool a kernel that has died has given its GPU back; a person did not ask for that.
DIED: Final = "died"
#: Ends of a lease that need no word.
_UNSAID: Final = frozenset({None, "exit", "reset"})
#: For how long work may go on after its lease has ended, seconds; the worker counts it.
GRACE_SECONDS: Final = 4

_WHEREABOUTS: Final = {
    "device": "in GPU memory until others need the room",
    "host": "in host memory",
    "image": "on disk",
}


@dataclass(frozen=True, slots=True)
class Release:
    """A release, as it was at its moment.

    Attributes:
        reason: one of the reasons of a lease's end, or :data:`DIED`.
        at: Unix time, seconds.
        session_id: whose memory was kept; None: it ended with the lease.
        milli, mib: what each of ``devices`` has got back.
        memory_bytes: what the session had in device memory.
        unused_seconds: for how long nothing had used it, when that is why.
        request: what brings the same back.
        by: who had asked for it.
        lease_id: of the lease that ended.
        software: work that goes on after the lease can be stopped, and goes on with the next.
    """

    reason: str
    at: float
    session_id: str | None
    milli: int
    mib: int
    devices: tuple[str, ...]
    memory_bytes: int
    unused_seconds: float
    request: LeaseRequest
    by: str
    lease_id: str = ""
    software: bool = False


def release_of(
    before: Session, after: Session, *, unused_seconds: float, memory_bytes: int, at: float
) -> Release | None:
    """What there is to say when ``before`` held a lease and ``after`` holds none; None: nothing.

    The end of a ``%%gpu`` cell, of the kernel, and a reset are what was asked for and need no word.
    """
    if after.state is State.CLOSED or after.reason in _UNSAID:
        return None
    return _release(
        before,
        after.reason or "",
        after.session_id,
        unused_seconds=unused_seconds,
        memory_bytes=memory_bytes,
        at=at,
    )


def release_by_death(before: Session, *, at: float) -> Release | None:
    """What there is to say when the process of a kernel that held ``before``'s lease has died; None: it held none."""
    return _release(before, DIED, None, unused_seconds=0.0, memory_bytes=0, at=at)


def _release(
    before: Session,
    reason: str,
    session_id: str | None,
    *,
    unused_seconds: float,
    memory_bytes: int,
    at: float,
) -> Release | None:
    lease, request, hold = before.lease, before.request, before.hold
    if lease is None or request is None:
        return None
    if hold is not None:
        # A cell that ran in it may have had it grow.
        request = replace(request, share=hold.share)
    return Release(
        reason=reason,
        at=at,
        session_id=session_id,
        milli=lease.shares[0].milli,
        mib=lease.shares[0].mib,
        devices=tuple(share.device_id for share in lease.shares),
        memory_bytes=memory_bytes if session_id is not None else 0,
        unused_seconds=unused_seconds,
        request=request,
        by=hold.by if hold is not None else "sidebar",
        lease_id=lease.lease_id,
        software=lease.software,
    )


def with_later_report(release: Release, session_id: str | None, usage: Usage) -> Release:
    """``release`` after a report that came later: what was made in the last second before a Detach is memory that is kept too.

    It never becomes less: a session that was moved out of device memory reports nothing there, and keeps all of it.
    """
    if release.session_id is None or release.session_id != session_id:
        return release
    return replace(release, memory_bytes=max(release.memory_bytes, sum(usage.memory_used)))


def undo_seconds(release: Release, session: Session, now: float) -> float:
    """For how long it can still be undone at Unix time ``now``; 0: it cannot."""
    wanted = release.session_id is not None and release.session_id == session.session_id
    if not wanted or session.state is not State.PARKED or release.reason not in _UNDONE:
        return 0.0
    return min(UNDO_SECONDS, max(0.0, release.at + UNDO_SECONDS - now))


def release_sentence(
    release: Release,
    session: Session,
    place: str | None,
    *,
    draining: bool = False,
    usage: Usage | None = None,
) -> str:
    """Why, what was freed, and where the memory is; of a session that has ended since, why that was.

    ``place``: ``device``, ``host``, ``image``; None: not known. ``draining``: the pool does not lend the share to others
    yet, because something of the session may still run on it. ``usage``: what the session does now.
    """
    if session.state is State.LOST and session.reason != release.reason and session.message:
        # What was kept went away later, and not for what ended the lease.
        return session.message
    running = usage is not None and usage.work in ("running", "draining")
    if draining and running and usage is not None and session.session_id is not None:
        return f"{_why(release)}: {_draining(release, usage)}"
    freed = f"{_share(release)} is going back" if draining else _freed(release)
    return f"{_why(release)}: {freed}; {_kept(release, session, place)}."


def _draining(release: Release, usage: Usage) -> str:
    """That the share is not free yet, and what becomes of what runs there."""
    name = usage.kernel or "something"
    after = (
        "then it is stopped and goes on when a GPU is attached"
        if release.software
        else "then the GPU session ends, and what is in its memory is lost"
    )
    return (
        f"{_share(release)} is not free yet: {name} has been running for {duration_text(usage.work_seconds)}. "
        f"It has {GRACE_SECONDS} s to end; {after}."
    )


def _why(release: Release) -> str:
    if release.reason == DIED:
        return render(say("released.kernel-died"))
    if release.reason == "idle":
        return render(say("reason.idle-after", time=param.text(duration_text(release.unused_seconds))))
    return reasons.headline(release.reason)


def _share(release: Release) -> str:
    devices = release.devices
    many = f"{len(devices)} × " if len(devices) > 1 else ""
    return f"{many}{format_share(release.milli)} of {device_names(devices)}"


def _freed(release: Release) -> str:
    devices, share = release.devices, _share(release)
    if release.reason in ("reclaim", "preempt", "consolidate"):
        return f"{share} went to others"
    if release.reason == "lost":
        return f"{share} cannot be reached"
    if release.reason == "drain":
        return f"{share} {'take' if len(devices) > 1 else 'takes'} no new lease"
    return f"{share} {'are' if len(devices) > 1 else 'is'} free again"


def _kept(release: Release, session: Session, place: str | None) -> str:
    if release.session_id is None or session.session_id != release.session_id:
        return "what was in its memory is gone"
    if not release.memory_bytes:
        return "nothing was in its memory"
    whereabouts = f" {_WHEREABOUTS[place]}" if place in _WHEREABOUTS else ""
    return f"{memory_text(release.memory_bytes)} of arrays are kept{whereabouts}"

"""What is said of the last release of a kernel's GPU: why, what was freed, what was kept, and whether it can be undone.

Pure: the shell notes a release when it happens, the words are made when they are read, because the memory
of a session moves after its lease has ended.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from gpupool.client.types import Ask
from gpupool.shares import format_milli

from jupyter_gpupool.quantities import duration_text, memory_text
from jupyter_gpupool.session_record import Session, State

#: How long Undo is offered after a release, seconds.
UNDO_SECONDS: Final = 120.0
#: Releases that nobody else waits for, and that one click takes back. The others are the pool's decision.
_UNDONE: Final = frozenset({"idle", "release", "deadline"})

_WHY: Final = {
    "release": "Detached",
    "deadline": "Released because the time that was asked for is over",
    "reclaim": "Taken back for a project that is entitled to it",
    "preempt": "Taken back for a request with a higher priority",
    "consolidate": "Taken back so that another request fits",
    "admin": "Taken back by an administrator",
    "lost": "Lost because the connection to it broke",
}
_WHEREABOUTS: Final = {
    "device": "in GPU memory until others need the room",
    "host": "in host memory",
    "image": "on disk",
}


@dataclass(frozen=True, slots=True)
class Release:
    """A release, as it was at its moment.

    Attributes:
        reason: one of the reasons of a lease's end.
        at: Unix time, seconds.
        session_id: whose memory was kept; None: it ended with the lease.
        milli, mib: what each of ``devices`` has got back.
        memory_bytes: what the session had in device memory.
        unused_seconds: for how long nothing had used it, when that is why.
        ask: what brings the same back.
        by: who had asked for it.
    """

    reason: str
    at: float
    session_id: str | None
    milli: int
    mib: int
    devices: tuple[str, ...]
    memory_bytes: int
    unused_seconds: float
    ask: Ask
    by: str


def release_of(
    before: Session, after: Session, *, unused_seconds: float, memory_bytes: int, at: float
) -> Release | None:
    """What there is to say when ``before`` held a lease and ``after`` holds none; None: nothing.

    The end of a ``%%gpu`` cell, and of the kernel, is what was asked for and needs no word.
    """
    lease, reason = before.lease, after.reason
    if lease is None or before.ask is None or after.state is State.CLOSED or reason in (None, "exit"):
        return None
    ask, hold = before.ask, before.hold
    if hold is not None:
        # A cell that ran in it may have had it grow.
        ask = replace(ask, share=hold.share)
    return Release(
        reason=reason or "",
        at=at,
        session_id=after.session_id,
        milli=lease.shares[0].milli,
        mib=lease.shares[0].mib,
        devices=tuple(share.device_id for share in lease.shares),
        memory_bytes=memory_bytes if after.session_id is not None else 0,
        unused_seconds=unused_seconds,
        ask=ask,
        by=hold.by if hold is not None else "sidebar",
    )


def undo_seconds(release: Release, session: Session, now: float) -> float:
    """For how long it can still be undone at Unix time ``now``; 0: it cannot."""
    wanted = release.session_id is not None and release.session_id == session.session_id
    if not wanted or session.state is not State.PARKED or release.reason not in _UNDONE:
        return 0.0
    return min(UNDO_SECONDS, max(0.0, release.at + UNDO_SECONDS - now))


def release_sentence(release: Release, session: Session, place: str | None) -> str:
    """Why, what was freed, and where the memory is: ``device``, ``host``, ``image``; None: not known."""
    return f"{_why(release)}: {_freed(release)}; {_kept(release, session, place)}."


def _why(release: Release) -> str:
    if release.reason == "idle":
        return f"Released after {duration_text(release.unused_seconds)} without use"
    return _WHY.get(release.reason, f"Released ({release.reason})")


def _freed(release: Release) -> str:
    devices = release.devices
    many = f"{len(devices)} × " if len(devices) > 1 else ""
    share = f"{many}{format_milli(release.milli)} of {' and '.join(devices)}"
    if release.reason in ("reclaim", "preempt", "consolidate"):
        return f"{share} went to others"
    if release.reason == "lost":
        return f"{share} cannot be reached"
    return f"{share} {'are' if len(devices) > 1 else 'is'} free again"


def _kept(release: Release, session: Session, place: str | None) -> str:
    if release.session_id is None or session.session_id != release.session_id:
        return "what was in its memory is gone"
    if not release.memory_bytes:
        return "nothing was in its memory"
    whereabouts = f" {_WHEREABOUTS[place]}" if place in _WHEREABOUTS else ""
    return f"{memory_text(release.memory_bytes)} of arrays are kept{whereabouts}"

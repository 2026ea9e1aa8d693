"""A gang as people see it: one lease and one session, with the shares of all its nodes."""

from __future__ import annotations

from collections.abc import Sequence

from gpupool.model.state import WORK_STATES, LeaseRecord, SessionRecord, Usage
from gpupool.scheduler.model import PlacedShare

#: Of several parts' states the first in this order is the whole's.
_WORST_FIRST = ("closed", "lost", "parked", "starting", "attached")
#: The same of what workers say of themselves.
_WORST_OF_WORKERS = ("lost", "fenced", "parked", "attached")
#: The same of the places where memory lies: what takes the longest to come back.
_FARTHEST_FIRST = ("image", "host", "device", "none")
#: The same of how compute shares are enforced: what a user can count on.
_WEAKEST_FIRST = ("none", "soft", "hard")


def shares(parts: Sequence[LeaseRecord]) -> tuple[PlacedShare, ...]:
    """In the order of the process's devices."""
    return tuple(share for part in parts for share in part.shares)


def lease_state(parts: Sequence[LeaseRecord]) -> str:
    """`attached`, `releasing` while any share is not free yet, or `ended`."""
    if all(part.live for part in parts):
        return "attached"  # a lease whose workers are still starting is the holder's already
    return "releasing" if any(part.holds for part in parts) else "ended"


def session_state(parts: Sequence[SessionRecord]) -> str:
    """The worst of the parts' states."""
    return _first(_WORST_FIRST, [part.state for part in parts])


def place(parts: Sequence[SessionRecord]) -> str:
    """The place that is farthest from the device: where some part of the memory lies."""
    return _first(_FARTHEST_FIRST, [part.place for part in parts])


def enforcement(parts: Sequence[SessionRecord]) -> str:
    """The weakest of the parts: what may be relied on everywhere."""
    return _first(_WEAKEST_FIRST, [part.enforcement for part in parts])


def usage(parts: Sequence[SessionRecord]) -> Usage:
    """Counters of all workers together; memory device by device; idle only when all are."""
    all_of = [part.usage for part in parts]
    if len(all_of) == 1:
        return all_of[0]
    at_work = _at_work(all_of)
    failed = next((u for u in all_of if u.failure), all_of[0])
    return Usage(
        device_seconds=sum(u.device_seconds for u in all_of),
        kernels=sum(u.kernels for u in all_of),
        calls=sum(u.calls for u in all_of),
        posts=sum(u.posts for u in all_of),
        asks=sum(u.asks for u in all_of),
        ask_seconds=sum(u.ask_seconds for u in all_of),
        bytes_to_device=sum(u.bytes_to_device for u in all_of),
        bytes_from_device=sum(u.bytes_from_device for u in all_of),
        memory_used=_by_device([(part, part.usage.memory_used) for part in parts]),
        memory_peak=_by_device([(part, part.usage.memory_peak) for part in parts]),
        idle_seconds=min(u.idle_seconds for u in all_of),
        in_flight=any(u.in_flight for u in all_of),
        client_connected=any(u.client_connected for u in all_of),
        state=_first(_WORST_OF_WORKERS, [u.state for u in all_of]),
        work=at_work.work,
        kernel=at_work.kernel,
        work_seconds=at_work.work_seconds,
        failure=failed.failure,
        failed_kernel=failed.failed_kernel,
        busy=sum(u.busy for u in all_of),
    )


def _at_work(all_of: Sequence[Usage]) -> Usage:
    """The worker whose work is told: what drains first, and of these what has run the longest."""
    state = _first((*WORK_STATES, ""), [u.work for u in all_of])
    return max((u for u in all_of if u.work == state), key=lambda u: u.work_seconds)


def _by_device(figures: Sequence[tuple[SessionRecord, tuple[int, ...]]]) -> tuple[int, ...]:
    """A worker that has not reported yet uses nothing, so that the next one's figures keep their place."""
    return tuple(
        values[index] if index < len(values) else 0
        for part, values in figures
        for index in range(len(part.device_ids))
    )


def _first(order: Sequence[str], found: Sequence[str]) -> str:
    return next((value for value in order if value in found), found[0])

"""Where projects stand, from the state: what their leases hold and what their asks want."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gpupool.pool.project_view import capacity
from gpupool.pool.state import AskRecord, LeaseRecord, State
from gpupool.pool.waiting import Lane
from gpupool.scheduler.fairshare.lease import HeldLease, Waiting
from gpupool.scheduler.fairshare.standings import Standings
from gpupool.scheduler.fairshare.tree import ProjectTree


def held_lease(parts: Iterable[LeaseRecord]) -> HeldLease:
    """A lease as the rules of projects see it; of several nodes, all its parts as one."""
    whole = list(parts)
    first = whole[0]
    milli = sum(share.milli for part in whole for share in part.taken())
    return HeldLease(first.id, first.project, milli, first.kind, first.priority, first.granted_at)


def expected_name(ask: AskRecord) -> str:
    return f"ask {ask.id}"


def expected_lease(ask: AskRecord, milli: int, now: float) -> HeldLease:
    """The lease that an ask is going to have: room is on its way to it."""
    return HeldLease(expected_name(ask), ask.project, milli, ask.kind, ask.priority, now)


def wholes(leases: Iterable[LeaseRecord]) -> dict[str, list[LeaseRecord]]:
    """The parts of each, by the id of the first, in the order in which they were granted."""
    found: dict[str, list[LeaseRecord]] = {}
    for lease in leases:
        found.setdefault(lease.gang or lease.id, []).append(lease)
    for parts in found.values():
        parts.sort(key=lambda part: part.part)
    return found


def wanted(name: str, lane: Lane, milli: int) -> Waiting:
    return Waiting(name, lane.project, milli, lane.priority)


def standings(state: State, tree: ProjectTree, usage: Mapping[str, float]) -> Standings:
    """A snapshot of what is held; leases that are being given back are not counted any more.

    Args:
        usage: decayed usage of projects, as parts of what the pool could have given.
    """
    live = wholes(lease for lease in state.index.holding.records() if lease.live)
    return Standings(tree, capacity(state), map(held_lease, live.values()), (), usage)

"""Where projects stand, from the state: what their leases hold and what their requests want."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from gpupool.model.state import LeaseRecord, RequestRecord, State
from gpupool.pool.model.holds import keeps_place
from gpupool.pool.model.timers import Timers
from gpupool.pool.model.waiting import Lane
from gpupool.pool.projects import accounts, live_holdings
from gpupool.pool.projects.project_rules import project_tree
from gpupool.scheduler.fairshare.lease import HeldLease, Waiting
from gpupool.scheduler.fairshare.standings import Standings
from gpupool.scheduler.fairshare.tree import ProjectTree
from gpupool.shares import least_milli, usable_mib


def capacity(state: State) -> int:
    """Milli-GPU of all devices that serve, and what is still held on others; see `LiveHoldings.capacity`."""
    return live_holdings.of(state).capacity()


def expected_name(request: RequestRecord) -> str:
    """Stands for the lease that a request is going to have; no lease is called so."""
    return f"request {request.id}"


def expected_lease(request: RequestRecord, milli: int, now: float) -> HeldLease:
    """The lease that a request is going to have: room is on its way to it."""
    return HeldLease(expected_name(request), request.project, milli, request.kind, request.priority, now)


def kept_places(state: State, now: float) -> dict[str, HeldLease]:
    """Room that is kept for sessions that were moved away for others, by session, as if it were held.

    Else others of the project could have the part of its limit that was theirs, and they would ask again in vain.
    """
    return {
        session.id: HeldLease(
            f"place {session.id}",
            session.project,
            sum(share.milli for share in session.kept_place),
            granted_at=now,
        )
        for session in state.index.with_place.records()
        if keeps_place(state, session, now)
    }


def wholes(leases: Iterable[LeaseRecord]) -> dict[str, list[LeaseRecord]]:
    """The parts of each, by the id of the first, in the order in which they were granted."""
    found: dict[str, list[LeaseRecord]] = {}
    for lease in leases:
        found.setdefault(lease.gang or lease.id, []).append(lease)
    for parts in found.values():
        parts.sort(key=lambda part: part.part)
    return found


def wanted(name: str, lane: Lane, milli: int, held_up: int = 0) -> Waiting:
    """What a lane waits for, as the rules of fair share read it; `milli` of all its devices together."""
    return Waiting(name, lane.project, milli, lane.priority, held_up)


def standings(
    state: State, tree: ProjectTree, usage: Mapping[str, float], waiting: Iterable[Waiting] = ()
) -> Standings:
    """A snapshot of what is held; leases that are being given back are not counted any more, except by limits.

    Args:
        state: the pool as it is.
        tree: the projects, which must be those of the state.
        usage: decayed usage of projects, as parts of what the pool could have given.
        waiting: what is asked beside that.
    """
    return live_holdings.of(state).standings(tree, usage, waiting)


def within_limits(state: State, tree: ProjectTree, project: str, milli: int) -> bool:
    """Whether the project, and all above it, may hold so much more by their limits; without a walk over all leases."""
    for path in tree.ancestors(tree.leaf(project)):
        limit = tree.limit(path)
        if limit is not None and _held(state, tree, path) + milli > limit:
            return False
    return True


def _held(state: State, tree: ProjectTree, path: str) -> int:
    """Milli-GPU that leases hold in a project and below it, those included that are being given back."""
    leases = state.index.holding_of_project
    below = (name for name in leases.names() if path in tree.ancestors(tree.leaf(name)))
    return sum(lease.milli for name in below for lease in leases.of(name))


def with_requests(state: State, timers: Timers, now: float) -> Standings:
    """A snapshot of everything: what is held, what all who wait ask for, and what was used lately."""
    sizes = {usable_mib(device.total_mib) for device in state.devices.values() if device.present}
    users = {x.user for x in state.requests.values() if x.decision and x.decision.reason == "quota"}
    waiting = []
    for x in state.requests.values():
        milli = least_milli(sizes, x.milli, x.mib, x.count)
        waiting.append(Waiting(x.id, x.project, milli, x.priority, milli if _is_held_up(x, users) else 0))
    usage = accounts.parts_of_pool(state, timers, now, capacity(state))
    return standings(state, project_tree(state), usage, waiting)


def _is_held_up(request: RequestRecord, users: Collection[str]) -> bool:
    """Whether no lease of others would help it, as it was told; `users`: those of whom a request waits for their quota."""
    reason = "" if request.decision is None else request.decision.reason
    return reason in ("quota", "no-node") or (reason == "turn" and request.user in users)

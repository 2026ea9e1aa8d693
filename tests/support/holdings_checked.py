"""What is said of held leases without a walk over them is what such a walk says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest
from gpupool.model.state import State
from gpupool.pool.model.timers import Timers
from gpupool.pool.projects import accounts, live_holdings, standing_view
from gpupool.scheduler.fairshare import usage as rules
from gpupool.scheduler.fairshare.lease import Waiting, seniority
from gpupool.scheduler.fairshare.standings import Standings
from gpupool.scheduler.fairshare.tree import ProjectTree
from gpupool.shares import WHOLE_DEVICE_MILLI

_standings, _decayed_usage = standing_view.standings, accounts.decayed_usage


def standings(
    state: State, tree: ProjectTree, usage: Mapping[str, float], waiting: Iterable[Waiting] = ()
) -> Standings:
    """For :func:`standing_view.standings`; compares it with one that is made anew."""
    asked = list(waiting)
    found = _standings(state, tree, usage, asked)
    nodes = {name: node for name, node in state.nodes.items() if not node.lost}
    here = [x for x in state.devices.values() if x.present and x.node in nodes]
    serving = {x.id for x in here if x.healthy and not nodes[x.node].closed}
    shares = [share for lease in state.leases.values() if lease.live for share in lease.taken()]
    others = {x.id for x in here} - serving
    capacity = WHOLE_DEVICE_MILLI * len(serving)
    capacity += sum(share.milli for share in shares if share.device_id in others)
    whole = standing_view.wholes(lease for lease in state.leases.values() if lease.live)
    fresh = Standings(tree, capacity, map(live_holdings.held_lease, whole.values()), asked, usage)
    assert found.capacity == capacity
    assert {path: found.standing(path) for path in tree.paths} == {p: fresh.standing(p) for p in tree.paths}
    held = {parts[0].id for parts in whole.values()}
    assert {name: found.lease(name) for name in held} == {name: fresh.lease(name) for name in held}
    exposed = [lease for name in held if not fresh.is_protected(name) and (lease := fresh.lease(name))]
    assert sorted(found.exposed(), key=seniority) == sorted(exposed, key=seniority)
    return found


def decayed_usage(state: State, timers: Timers, now: float) -> dict[str, float]:
    """For :func:`accounts.decayed_usage`; compares it with the sum over all leases."""
    found = _decayed_usage(state, timers, now)
    fresh: dict[str, float] = {}
    for record in state.index.accounts.of("project"):
        fresh[record.id.partition("/")[2]] = rules.decay(
            record.decayed_milli_seconds, now - record.as_of, timers.half_life
        )
    for lease in state.leases.values():
        if lease.holds:
            more = rules.held(lease.milli, now - lease.granted_at, timers.half_life)
            fresh[lease.project] = fresh.get(lease.project, 0.0) + more
    for project in {*found, *fresh}:
        assert found.get(project, 0.0) == pytest.approx(fresh.get(project, 0.0), rel=1e-9, abs=1.0)
    return found

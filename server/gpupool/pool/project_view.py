"""Where projects and users stand, for people: what they may have, hold and wait for."""

from __future__ import annotations

from gpupool.pool import accounts
from gpupool.pool.project_rules import default_project_of, project_tree
from gpupool.pool.state import LeaseRecord, LimitRecord, State
from gpupool.pool.timers import Timers
from gpupool.proto.gpupool.v1 import pool_pb2 as pb
from gpupool.scheduler.fairshare import HeldLease, Standings, Waiting
from gpupool.shares import WHOLE_DEVICE_MILLI, least_milli, usable_mib


def capacity(state: State) -> int:
    """Milli-GPU of all devices that are there; a node that is silent for a moment changes what nobody deserves."""
    here = (
        device
        for device in state.devices.values()
        if device.present and (node := state.nodes.get(device.node)) is not None and not node.lost
    )
    return WHOLE_DEVICE_MILLI * sum(1 for _ in here)


def standings(state: State, timers: Timers, now: float) -> Standings:
    """A snapshot made anew; leases that are being given back are not counted any more, as in the queue."""
    wholes: dict[str, list[LeaseRecord]] = {}
    for lease in state.leases.values():
        if lease.live:
            wholes.setdefault(lease.gang or lease.id, []).append(lease)
    held = [
        HeldLease(name, x.project, sum(map(accounts.milli_of, parts)), x.kind, x.priority, x.granted_at)
        for name, parts in wholes.items()
        for x in parts[:1]
    ]
    sizes = {usable_mib(device.total_mib) for device in state.devices.values() if device.present}
    waiting = [
        Waiting(x.id, x.project, least_milli(sizes, x.milli, x.mib, x.count), x.priority)
        for x in state.asks.values()
    ]
    size = capacity(state)
    return Standings(
        project_tree(state), size, held, waiting, accounts.parts_of_pool(state, timers, now, size)
    )


def project_list(state: State, timers: Timers, now: float, user: str = "") -> pb.ProjectList:
    """The whole tree. With a `user` it is said what is open to them, and where an ask without a project counts."""
    now_there = standings(state, timers, now)
    usage = accounts.decayed_usage(state, timers, now)
    answer = pb.ProjectList(
        projects=[_project(now_there, usage, path) for path in now_there.tree.paths],
        warnings=now_there.tree.warnings(now_there.capacity),
        capacity_milli=now_there.capacity,
    )
    if user:
        answer.default_path = default_project_of(state, user)
        open_to_user = set(now_there.tree.projects_of(user))
        for project in answer.projects:
            project.open = project.path in open_to_user
    return answer


def project(state: State, timers: Timers, now: float, path: str) -> pb.Project:
    """One of the list."""
    return _project(standings(state, timers, now), accounts.decayed_usage(state, timers, now), path)


def limit(state: State, record: LimitRecord, now: float) -> pb.Limit:
    """A limit and how much of it is used; of ``*`` nothing is."""
    message = pb.Limit(
        user=record.user,
        milli=_number(record.milli),
        shares=_number(record.shares),
        largest_milli=_number(record.largest_milli),
        gpu_seconds=_number(record.gpu_seconds),
        window_seconds=record.window_seconds,
        resets_in_seconds=-1.0,
    )
    if record.user != accounts.EVERYBODY:
        held = [lease for lease in state.leases.values() if lease.holds and lease.user == record.user]
        message.held_milli = sum(accounts.milli_of(lease) for lease in held)
        message.held_shares = sum(len(lease.shares) for lease in held)
        window = accounts.used_in_window(state, record.user, now)
        message.used_gpu_seconds = window.gpu_seconds
        if window.ends is not None:
            message.resets_in_seconds = window.ends - now
    return message


def limits_seen_by(state: State, viewer: str | None) -> list[LimitRecord]:
    """All limits for administrators (`viewer` None); else the user's own, as it comes to, and no other's."""
    if viewer is None:
        return [state.limits[user] for user in sorted(state.limits)]
    own = state.limits.get(viewer)
    if own is not None:
        return [own]
    common = state.limits.get(accounts.EVERYBODY)
    if common is None:
        return []
    return [
        LimitRecord(
            viewer,
            common.milli,
            common.shares,
            common.largest_milli,
            common.gpu_seconds,
            common.window_seconds,
        )
    ]


def _project(now_there: Standings, usage: dict[str, float], path: str) -> pb.Project:
    tree = now_there.tree
    own, standing = tree[path], now_there.standing(path)
    below = [leaf for leaf in tree.leaves if path in tree.ancestors(leaf)]
    return pb.Project(
        path=path,
        deserved_milli=_number(own.deserved),
        limit_milli=_number(own.limit),
        weight=own.weight,
        priority=own.priority,
        min_run_seconds=-1.0 if own.min_run is None else own.min_run,
        members=own.members,
        allocated_milli=standing.allocated,
        protected_milli=standing.protected,
        waiting_milli=standing.waiting,
        fair_share_milli=standing.fair_share,
        real_deserved_milli=standing.deserved,
        decayed_gpu_seconds=sum(max(0.0, usage.get(leaf, 0.0)) for leaf in below) / 1000,
    )


def _number(value: int | None) -> int:
    return -1 if value is None else value

"""The state as the scheduler sees it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from gpupool.model.state import RequestRecord, SessionRecord, State
from gpupool.pool.model import live_view
from gpupool.pool.model.holds import (
    health,
    host_share,
    keeps_place,
    kept_mib,
    left_behind,
    session_mib,
    stays,
)
from gpupool.pool.model.live_view import LiveView
from gpupool.pool.model.timers import Timers
from gpupool.pool.model.waiting import Lane
from gpupool.scheduler.model import Parked, Quota, Request
from gpupool.scheduler.pool_view import PoolView
from gpupool.sentences import NOTHING, obstacles, param, say

__all__ = [
    "health",
    "host_rooms",
    "kept_mib",
    "parked_session",
    "pool_view",
    "session_mib",
    "stays",
    "used_bytes",
    "wish_for_new_session",
]

_MIB = 1024 * 1024


def pool_view(
    state: State,
    timers: Timers,
    quotas: Mapping[str, Quota],
    now: float,
    *,
    resumed: Collection[str] = (),
    without_leases: Collection[str] = (),
) -> PoolView:
    """All devices with what is taken on them: shares of leases, and memory that parked sessions keep there.

    Args:
        state: the pool as it is.
        timers: how long everything lasts.
        quotas: limits of users.
        now: the pool's boot-time clock, seconds.
        resumed: sessions whose own parked memory is left out, because they ask for shares to hold it.
        without_leases: leases that are left out, because they are about to change their size.
    """
    live = live_view.of(state)
    if live is None or live.timers != timers:
        live = state.live_view = LiveView(state, timers)
    view = live.at(now, quotas)
    if resumed:
        view = view.resuming(resumed)
    return view.without(without_leases) if without_leases else view


def wish_for_new_session(request: RequestRecord | Lane) -> Request:
    """A request, or one of a lane, as the scheduler reads it, without the sessions that it may resume."""
    return Request(
        request.user,
        request.milli,
        request.mib,
        request.count,
        nodes=request.nodes,
        filters=request.filters,
        pools=request.pools,
        isolated=request.isolated,
    )


def host_rooms(state: State) -> dict[str, int]:
    """MiB of host memory that each node still has for memory of parked sessions."""
    room = {node.name: node.park_memory_mib for node in state.nodes.values()}
    for session in state.sessions.values():
        for node, mib in host_share(session):
            if node in room:
                room[node] -= mib
    return room


def disk_rooms(state: State) -> dict[str, int]:
    """MiB that session images may still take on each node."""
    rooms = {node.name: node.park_disk_mib for node in state.nodes.values()}
    for node in state.index.on_disk.names():
        if node in rooms:
            rooms[node] -= sum(map(session_mib, state.index.on_disk.of(node)))
    return rooms


def used_bytes(state: State) -> dict[str, int]:
    """What memory of sessions takes on each device, as last reported: none of what lies in host memory or on disk."""
    used: dict[str, int] = dict.fromkeys(state.devices, 0)

    def count(device_ids: Iterable[str], amounts: Iterable[int]) -> None:
        for device_id, amount in zip(device_ids, amounts, strict=False):
            if device_id in used:
                used[device_id] += amount

    for session in state.sessions.values():
        if session.place == "device" and not session.worker_gone:
            count(session.device_ids, session.usage.memory_used)
        for device_id, mib in left_behind(session):
            count((device_id,), (mib * _MIB,))
    return used


def parked_session(state: State, session: SessionRecord, now: float) -> Parked:
    """A session that is asked to go on, as the scheduler sees it."""
    bound = obstacles.because(session.move_obstacle) if session.move_obstacle else NOTHING
    if session.left is not None:
        bound = say("bound.worker", node=param.node(session.left.node))
    return Parked(
        session.id,
        session.device_ids,
        kept_mib(session),
        session.place if session.place in ("host", "image") else "device",
        stays(session, now),
        bound,
        kept_place=tuple(s.device_id for s in session.kept_place) if keeps_place(state, session, now) else (),
    )

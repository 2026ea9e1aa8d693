"""The state as the scheduler sees it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from gpupool.client import obstacles
from gpupool.pool.state import DeviceRecord, SessionRecord, State
from gpupool.pool.timers import Timers
from gpupool.scheduler.model import DeviceView, Held, Parked, PoolView, Quota

_MIB = 1024 * 1024


def health(state: State, device: DeviceRecord, timers: Timers, now: float) -> tuple[bool, str]:
    """Whether new shares may be placed on `device`, and why not."""
    node = state.nodes.get(device.node)
    if node is None or node.connection is None:
        return False, f"node {device.node} is not connected"
    if node.lost:
        return False, f"node {device.node} is lost"
    silent = now - node.last_answered
    if silent > timers.suspect:
        return False, f"node {device.node} has been silent for {silent:.0f} s"
    if not device.present:
        return False, "the node no longer reports this device"
    if not device.healthy:
        return False, device.health_reason or "the node reports it unhealthy"
    return True, ""


def kept_mib(session: SessionRecord) -> tuple[int, ...]:
    """MiB that the session keeps per device, rounded up, as last reported; of an image, what it kept last."""
    if session.place == "image":
        return session.parked_mib
    return tuple(-(-used // _MIB) for used in session.usage.memory_used)


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


def session_mib(session: SessionRecord) -> int:
    """What it keeps on all its devices."""
    return sum(kept_mib(session))


def stays(session: SessionRecord, now: float) -> str:
    """Why its memory cannot be moved to the host now, as a half sentence; empty: it can."""
    if session.park_obstacle:
        return obstacles.because(session.park_obstacle)
    if session.park_failure and now < session.park_retry_at:
        return f"the last try failed ({session.park_failure})"
    if session.state != "parked" or session.lease_id:
        return f"it is {session.state}"
    return ""


def host_rooms(state: State) -> dict[str, int]:
    """MiB of host memory that each node still has for memory of parked sessions."""
    room = {node.name: node.park_memory_mib for node in state.nodes.values()}
    for session in state.sessions.values():
        leaving = session.parking is not None and session.parking.place == "host"
        if session.node in room and not session.worker_gone and (session.place == "host" or leaving):
            room[session.node] -= session_mib(session)
        if session.left is not None and session.left.node in room and session.left.place == "host":
            room[session.left.node] -= sum(session.left.mib)
    return room


def left_behind(session: SessionRecord) -> Iterator[tuple[str, int]]:
    """(device, MiB) that a worker keeps from which the session was taken away, until its end is confirmed."""
    if session.left is not None and session.left.place == "device":
        yield from zip(session.left.device_ids, session.left.mib, strict=False)


def resident(state: State, session: SessionRecord) -> Iterator[tuple[str, int]]:
    """(device, MiB) of the session's memory that lies on devices and is covered by no lease."""
    lease = state.lease_of_session(session)
    covered = lease is not None and lease.node == session.node
    if session.place == "device" and not covered and not session.worker_gone:
        yield from zip(session.device_ids, kept_mib(session), strict=False)


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
        resumed: sessions whose own parked memory is left out, because they ask for shares to hold it.
        without_leases: leases that are left out, because they are about to change their size.
    """
    held: dict[str, list[Held]] = {device_id: [] for device_id in state.devices}
    for lease in state.leases.values():
        if not lease.holds or lease.id in without_leases:
            continue
        for share in lease.taken():
            if share.device_id in held:
                held[share.device_id].append(Held(lease.id, lease.user, share.milli, share.mib))
    for session in state.sessions.values():
        for device_id, mib in left_behind(session):
            if device_id in held and mib > 0:
                held[device_id].append(_kept(session, mib, "its worker is being ended", leaving=False))
        for device_id, mib in resident(state, session):
            if device_id in held and mib > 0 and session.id not in resumed:
                leaving = session.parking is not None
                why = "" if leaving else stays(session, now)
                held[device_id].append(_kept(session, mib, why, leaving=leaving))
    views = []
    for device in state.devices.values():
        healthy, why_not = health(state, device, timers, now)
        views.append(
            DeviceView(
                device.id,
                device.node,
                device.total_mib,
                healthy,
                why_not,
                tuple(held[device.id]),
                device.name,
            )
        )
    return PoolView(tuple(views), quotas, host_room=host_rooms(state))


def _kept(session: SessionRecord, mib: int, why_it_stays: str, *, leaving: bool) -> Held:
    return Held(
        "",
        session.user,
        0,
        mib,
        session_id=session.id,
        session_mib=session_mib(session),
        since=session.parked_at or 0.0,
        stays=why_it_stays,
        leaving=leaving,
    )


def parked_session(state: State, session: SessionRecord, now: float) -> Parked:
    """A session that is asked to go on, as the scheduler sees it."""
    bound = obstacles.because(session.move_obstacle) if session.move_obstacle else ""
    if session.left is not None:
        bound = f"its last worker on node {session.left.node} has not ended yet"
    return Parked(
        session.id,
        session.device_ids,
        kept_mib(session),
        session.place if session.place in ("host", "image") else "device",
        stays(session, now),
        bound,
    )

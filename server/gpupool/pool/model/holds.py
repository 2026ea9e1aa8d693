"""What is taken on devices and in host memory, record by record: shares of leases, and memory of parked sessions."""

from __future__ import annotations

import math
from collections.abc import Iterator

from gpupool.model.state import DeviceRecord, LeaseRecord, SessionRecord, State
from gpupool.pool.model.timers import Timers
from gpupool.scheduler.model import Closed, Held
from gpupool.sentences import NOTHING, Sentence, obstacles, param, say

_MIB = 1024 * 1024


def health(state: State, device: DeviceRecord, timers: Timers, now: float) -> tuple[bool, str]:
    """Whether new shares may be placed on `device`, and why not."""
    problem = unreachable(state, device, timers, now)
    if problem:
        return False, problem
    node = state.nodes[device.node]
    if node.closed:
        why = f" ({node.closed_because})" if node.closed_because else ""
        return False, f"node {device.node} is drained{why}"
    return True, ""


def closed_as(state: State, device: DeviceRecord, timers: Timers, now: float) -> Closed:
    """How its node is closed, when that is all that keeps shares away from `device`."""
    if unreachable(state, device, timers, now):
        return ""
    node = state.nodes[device.node]
    return "" if not node.closed else "drained" if node.drained else "leaving"


def is_offered(state: State, device: DeviceRecord) -> bool:
    """Whether it counts among what the pool has: its node is not lost, and reports it."""
    node = state.nodes.get(device.node)
    return device.present and node is not None and not node.lost


def is_given_back(state: State, device: DeviceRecord) -> bool:
    """Whether it was borrowed and has gone back: nobody is to look after it, though its shares may not be free yet."""
    node = state.nodes.get(device.node)
    return node is not None and node.given_back


def unreachable(state: State, device: DeviceRecord, timers: Timers, now: float) -> str:
    """Why nothing can be done on `device` now, as a phrase; empty: it can."""
    node = state.nodes.get(device.node)
    if node is None or node.connection is None:
        return f"node {device.node} is not connected"
    if node.lost:
        return f"node {device.node} is lost"
    silent = now - node.last_answered
    if silent > timers.suspect:
        return f"node {device.node} has been silent for {silent:.0f} s"
    if not device.present:
        return "the node no longer reports this device"
    if not device.healthy:
        return device.health_reason or "the node reports it unhealthy"
    return ""


def kept_mib(session: SessionRecord) -> tuple[int, ...]:
    """MiB that the session keeps per device, rounded up, as last reported; of an image, what it kept last."""
    if session.place == "image":
        return session.parked_mib
    return tuple(-(-used // _MIB) for used in session.usage.memory_used)


def session_mib(session: SessionRecord) -> int:
    """What it keeps on all its devices."""
    return sum(kept_mib(session))


def stays(session: SessionRecord, now: float) -> Sentence:
    """Why its memory cannot be moved to the host now, as a half sentence; nothing: it can."""
    if session.park_obstacle:
        return obstacles.because(session.park_obstacle)
    if session.park_failure and now < session.park_retry_at:
        return say("stays.failed", why=param.text(session.park_failure))
    if session.state != "parked" or session.lease_id:
        return say("stays.state", state=param.text(session.state))
    return NOTHING


def holds_of_lease(lease: LeaseRecord) -> tuple[tuple[str, Held], ...]:
    """(device, what the lease takes there)."""
    if not lease.holds:
        return ()
    return tuple((s.device_id, Held(lease.id, lease.user, s.milli, s.mib)) for s in lease.taken())


def holds_of_session(state: State, session: SessionRecord, now: float) -> Iterator[tuple[str, Held]]:
    """(device, what the session takes there beside its lease): memory, or room that is kept for it."""
    for device_id, mib in left_behind(session):
        if mib > 0:
            yield device_id, _kept(session, mib, say("stays.ending"), leaving=False)
    for device_id, mib in resident(state, session):
        if mib > 0:
            # A worker that is being ended takes its memory with it: that is a moment's wait, like a move.
            leaving = session.parking is not None or session.state == "closed"
            yield device_id, _kept(session, mib, NOTHING if leaving else stays(session, now), leaving=leaving)
    if keeps_place(state, session, now):
        for share in session.kept_place:
            why = say("stays.expected")
            yield (
                share.device_id,
                Held("", session.user, share.milli, share.mib, session_id=session.id, stays=why),
            )


def keeps_place(state: State, session: SessionRecord, now: float) -> bool:
    """Whether room is kept for a session that was moved away for another request and has not come there yet."""
    lease = state.lease_of_session(session)
    gone = session.state in ("closed", "lost") or (lease is not None and lease.live)
    return bool(session.kept_place) and now < session.kept_until and not gone


def turns_at(session: SessionRecord, now: float) -> float:
    """When time alone changes what `holds_of_session` says; infinite: never."""
    moments = [math.inf]
    if session.park_failure and now < session.park_retry_at:
        moments.append(session.park_retry_at)
    if session.kept_place and now < session.kept_until:
        moments.append(session.kept_until)
    return min(moments)


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


def host_share(session: SessionRecord) -> Iterator[tuple[str, int]]:
    """(node, MiB) of its host memory that the session takes, or will when what leaves has left."""
    leaving = session.parking is not None and session.parking.place == "host"
    if not session.worker_gone and (session.place == "host" or leaving):
        yield session.node, session_mib(session)
    if session.left is not None and session.left.place == "host":
        yield session.left.node, sum(session.left.mib)


def worker_nodes(state: State, session: SessionRecord) -> frozenset[str]:
    """Where the session has a worker, one that starts or whose end is not confirmed included."""
    nodes = set()
    if not session.worker_gone and session.place != "image":
        nodes.add(session.node)
    lease = state.lease_of_session(session)
    if lease is not None and lease.holds:
        nodes.add(lease.node)
    if session.left is not None:
        nodes.add(session.left.node)
    return frozenset(nodes)


def _kept(session: SessionRecord, mib: int, why_it_stays: Sentence, *, leaving: bool) -> Held:
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
        goes_to=_goes_to(session),
    )


def _goes_to(session: SessionRecord) -> str:
    if session.state == "closed":
        return ""
    return "host" if session.parking is None else session.parking.place

"""The pool in figures, as it is now."""

from __future__ import annotations

from collections import Counter

from gpupool.model.state import State
from gpupool.pool.model.holds import health, is_offered
from gpupool.pool.model.timers import Timers
from gpupool.proto.gpupool.v1 import pool_pb2 as pb
from gpupool.shares import WHOLE_DEVICE_MILLI, least_milli, usable_mib


def held_milli(state: State) -> Counter[str]:
    """Milli-GPU that leases take of each device."""
    held: Counter[str] = Counter()
    for lease in state.index.holding.records():
        for share in lease.taken():
            held[share.device_id] += share.milli
    return held


def present(state: State, timers: Timers, now: float) -> pb.StatsAnswer:
    """The figures of this moment; those of a time are left out."""
    held = held_milli(state)
    well = [device.id for device in state.devices.values() if health(state, device, timers, now)[0]]
    requests = list(state.requests.values())
    # Many may wait and many devices be there, but they have few sizes.
    sizes = {usable_mib(device.total_mib) for device in state.devices.values() if device.present}
    return pb.StatsAnswer(
        capacity_milli=WHOLE_DEVICE_MILLI
        * sum(is_offered(state, device) for device in state.devices.values()),
        held_milli=held.total(),
        free_milli=sum(max(0, WHOLE_DEVICE_MILLI - held[name]) for name in well),
        leases=sum(not lease.part for lease in state.index.holding.records()),
        parked_sessions=sum(
            session.state == "parked" and not session.part for session in state.index.unattached.records()
        ),
        waiting_requests=len(requests),
        waiting_milli=sum(least_milli(sizes, x.milli, x.mib, x.count) for x in requests),
        oldest_wait_seconds=max((now - request.since for request in requests), default=0.0),
    )

"""The state as the scheduler sees it."""

from __future__ import annotations

from collections.abc import Mapping

from gpupool.pool.state import DeviceRecord, SessionRecord, State
from gpupool.pool.timers import Timers
from gpupool.scheduler.model import DeviceView, Held, PoolView, Quota

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
    """MiB that the session's worker keeps per device, rounded up, as last reported."""
    return tuple(-(-used // _MIB) for used in session.usage.memory_used)


def pool_view(
    state: State,
    timers: Timers,
    quotas: Mapping[str, Quota],
    now: float,
    *,
    resumed: str = "",
    without_lease: str = "",
) -> PoolView:
    """All devices with what is taken on them.

    Memory of parked sessions counts as taken on real devices, where it lies. A software GPU keeps
    it in the host's memory, so it takes nothing there.

    Args:
        resumed: a session whose own parked memory is left out, because it asks for a share to hold it.
        without_lease: a lease that is left out, because it is about to change its size.
    """
    held: dict[str, list[Held]] = {device_id: [] for device_id in state.devices}
    for lease in state.leases.values():
        if not lease.holds or lease.id == without_lease:
            continue
        for share in lease.taken():
            if share.device_id in held:
                held[share.device_id].append(Held(lease.id, lease.user, share.milli, share.mib))
    for session in state.sessions.values():
        if session.lease_id or session.worker_gone or session.id == resumed:
            continue
        for device_id, mib in zip(session.device_ids, kept_mib(session), strict=False):
            device = state.devices.get(device_id)
            if device is not None and not device.software and mib > 0:
                held[device_id].append(Held("", session.user, 0, mib))
    views = []
    for device in state.devices.values():
        healthy, why_not = health(state, device, timers, now)
        views.append(
            DeviceView(device.id, device.node, device.total_mib, healthy, why_not, tuple(held[device.id]))
        )
    return PoolView(tuple(views), quotas)

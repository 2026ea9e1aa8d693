"""When devices can serve who waits for them: whoever is over by then may use them meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gpupool.scheduler.model import DeviceView
from gpupool.scheduler.pool_view import PoolView
from gpupool.scheduler.sizes import place_on
from gpupool.shares import Share


def has_room(view: PoolView, devices: Iterable[str], milli: int) -> bool:
    """Whether any of them has so much compute left."""
    return any((device := view.device(name)) is not None and device.free_milli >= milli for name in devices)


def served_at(
    view: PoolView, devices: Iterable[str], share: Share, ends_at: Callable[[str], float | None], now: float
) -> float | None:
    """When each of these devices has room for `share`, by the deadlines of the leases on it; None: no deadline makes room.

    Args:
        view: the pool as it is.
        devices: their ids.
        share: of each.
        ends_at: a lease's deadline, by its id; None: it has none.
        now: the moment of the view.
    """
    moments = [
        None if device is None else _has_room_at(device, share, ends_at, now)
        for device in map(view.device, devices)
    ]
    known = [moment for moment in moments if moment is not None]
    return max(known, default=None) if len(known) == len(moments) else None


def _has_room_at(
    device: DeviceView, share: Share, ends_at: Callable[[str], float | None], now: float
) -> float | None:
    placed = place_on(device, share)
    if placed is None:
        return None
    milli, mib, moment = device.free_milli, device.free_mib, now
    held = ((ends_at(one.lease_id), one) for one in device.held if one.lease_id)
    ending = sorted(((end, one.milli, one.mib) for end, one in held if end is not None), reverse=True)
    while milli < placed.milli or mib < placed.mib:
        if not ending:
            return None
        moment, freed_milli, freed_mib = ending.pop()
        milli, mib = milli + freed_milli, mib + freed_mib
    return moment

"""What perfect repacking would reach: every arrival is admitted if all shares, packed anew, leave room for it.

Shares may lie on any device, and CPU, memory and models of nodes are not looked at, so nothing that repacks admits more of the
same arrivals one after the other. A policy may still end above it: who had to turn a large demand away has room for others.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from typing import Final

from gpupool.scheduler.placement.cutting_stock import Packing, pack
from gpupool.scheduler.placement.model import Demand
from gpupool.shares import WHOLE_DEVICE_MILLI

_ROUNDING: Final = 1e-6
#: Bases of the program that are tried before it is solved anew: arrivals near the end go back and forth between few.
_KEPT: Final = 8


def bound_percent(demands: Sequence[Demand], devices: int) -> float:
    """Allocated part of ``devices`` devices in percent, once all of ``demands`` have arrived."""
    packing = _Repacking()
    whole = 0
    for demand in demands:
        if demand.milli == WHOLE_DEVICE_MILLI:
            if packing.fits(devices - whole - demand.count):
                whole += demand.count
        elif demand.count:
            packing.sizes[demand.milli] += demand.count
            if not packing.fits(devices - whole):
                packing.sizes[demand.milli] -= demand.count
    milli = whole * WHOLE_DEVICE_MILLI + sum(size * count for size, count in packing.sizes.items())
    return 100.0 * milli / (devices * WHOLE_DEVICE_MILLI)


class _Repacking:
    """Whether shares, packed as well as can be, fit a number of devices."""

    def __init__(self) -> None:
        self.sizes: Counter[int] = Counter()
        self._solved: deque[Packing] = deque(maxlen=_KEPT)

    def fits(self, devices: int) -> bool:
        # Each size by itself is a packing, if not the best.
        if sum(-(-count // (WHOLE_DEVICE_MILLI // size)) for size, count in self.sizes.items()) <= devices:
            return True
        for packing in self._solved:
            if packing.at_least(self.sizes) > devices + _ROUNDING:
                return False
            needed = packing.devices_for(self.sizes)
            if needed is not None:
                return needed <= devices + _ROUNDING
        self._solved.appendleft(pack(self.sizes))
        return self._solved[0].devices <= devices + _ROUNDING

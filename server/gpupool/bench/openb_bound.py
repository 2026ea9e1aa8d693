"""What perfect repacking would reach: every arrival is admitted if all shares, packed anew, leave room for it.

Shares may lie on any device, and CPU, memory and models of nodes are not looked at, so nothing that repacks admits more of the
same arrivals one after the other. A policy may still end above it: who had to turn a large request away has room for others.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from gpupool.scheduler.placement.cutting_stock import Packing, pack
from gpupool.scheduler.placement.model import Request
from gpupool.shares import WHOLE_DEVICE_MILLI


def bound_percent(requests: Sequence[Request], devices: int) -> float:
    """Allocated part of ``devices`` devices in percent, once all of ``requests`` have arrived."""
    sizes: Counter[int] = Counter()
    whole = 0
    packing: Packing = pack(sizes)
    for request in requests:
        if request.milli == WHOLE_DEVICE_MILLI:
            if whole + request.count + math.ceil(packing.devices - 1e-6) <= devices:
                whole += request.count
            continue
        if not request.count:
            continue
        sizes[request.milli] += request.count
        needed = packing.devices_for(sizes)
        if needed is None:
            packing = pack(sizes)
            needed = packing.devices
        if whole + math.ceil(needed - 1e-6) <= devices:
            packing = Packing(needed, packing.prices, packing.inverse)
        else:
            sizes[request.milli] -= request.count
    milli = whole * WHOLE_DEVICE_MILLI + sum(size * count for size, count in sizes.items())
    return 100.0 * milli / (devices * WHOLE_DEVICE_MILLI)

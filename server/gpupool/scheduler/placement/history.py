"""What a policy has learned from the demands it has seen. Nothing is known beforehand, and the past fades."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from gpupool.scheduler.placement.model import Demand, DeviceSpec
from gpupool.shares import WHOLE_DEVICE_MILLI, milli_of_mib

#: Requests before the first conclusion, and between two of them as long as few have been seen.
FIRST: Final = 32
#: Requests between two conclusions at most. Twice as many are remembered in full; older ones fade by half each time.
LONGEST: Final = 4096
#: Smaller shares count as this size, and only so many sizes are told apart: it bounds the work of a conclusion.
SMALLEST_SIZE: Final = 50
MOST_SIZES: Final = 48


class History:
    """Counts of share sizes, and the CPU that came with devices."""

    def __init__(self) -> None:
        self._sizes: Counter[int] = Counter()
        self._milli = 0
        self._cpu = 0
        self._seen = 0
        self._since = 0

    def add(self, demand: Demand, device: DeviceSpec) -> bool:
        """Notes a demand, its memory taken as a part of ``device``; True: it is time to conclude anew."""
        milli = demand.milli or _milli_of_memory(demand, device)
        if demand.count and milli:
            self._milli += milli * demand.count
            self._cpu += demand.cpu_milli
            if milli < WHOLE_DEVICE_MILLI:
                self._sizes[max(milli, SMALLEST_SIZE)] += demand.count
        self._seen += 1
        self._since += 1
        return self._since >= max(FIRST, min(self._seen - self._since, LONGEST))

    def conclude(self) -> None:
        """Begins the next interval; what is older than two long ones fades."""
        self._since = 0
        if self._seen > 2 * LONGEST:
            self._sizes = Counter({size: count // 2 for size, count in self._sizes.items() if count > 1})
            self._milli, self._cpu, self._seen = self._milli // 2, self._cpu // 2, self._seen // 2

    @property
    def sizes(self) -> Mapping[int, int]:
        """The most frequent sizes of shares below a whole device, with their counts."""
        ranked = sorted(self._sizes.items(), key=lambda row: (-row[1], row[0]))
        return dict(ranked[:MOST_SIZES])

    @property
    def cpu_per_milli(self) -> float:
        """Milli-CPU that came with a milli-GPU on average; 0: none was asked for."""
        return self._cpu / self._milli if self._milli else 0.0


def _milli_of_memory(demand: Demand, device: DeviceSpec) -> int:
    if not demand.mib or demand.mib > device.usable_mib:
        return 0
    return milli_of_mib(demand.mib, device.usable_mib)

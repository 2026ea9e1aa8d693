"""How full a pool was over time: the area under what is held, between two moments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from gpupool.scheduler.model import PlacedShare


@dataclass(slots=True)
class Meter:
    """Counts from `begin` to `end` (seconds of the trace).

    Attributes:
        bin_seconds: width of the bins of `bins`.
        bins: (milli-GPU-seconds held, device-seconds with anything on them, ask-seconds waiting, device-seconds borrowed)
            of each bin.
    """

    begin: float
    end: float
    bin_seconds: float = 3600.0
    bins: list[list[float]] = field(default_factory=list)
    milli: int = 0
    _shares: dict[str, tuple[PlacedShare, ...]] = field(default_factory=dict)
    _devices: Counter[str] = field(default_factory=Counter)

    def hold(self, lease_id: str, shares: Sequence[PlacedShare]) -> None:
        """`lease_id` holds these from now on; none: it holds nothing."""
        before = self._shares.pop(lease_id, ())
        if before is shares and before:
            self._shares[lease_id] = before  # as it was, as after most steps
            return
        for share in before:
            self.milli -= share.milli
            self._devices[share.device_id] -= share.milli
            if not self._devices[share.device_id]:
                del self._devices[share.device_id]
        if shares:
            self._shares[lease_id] = tuple(shares)
        for share in shares:
            self.milli += share.milli
            self._devices[share.device_id] += share.milli

    def advance(self, since: float, now: float, waiting: int, borrowed: int = 0) -> None:
        """Everything was as it is from `since` to `now`."""
        at, until = max(since, self.begin), min(now, self.end)
        while at < until:
            number = int((at - self.begin) // self.bin_seconds)
            upto = min(until, self.begin + (number + 1) * self.bin_seconds)
            while len(self.bins) <= number:
                self.bins.append([0.0, 0.0, 0.0, 0.0])
            held = self.bins[number]
            held[0] += (upto - at) * self.milli
            held[1] += (upto - at) * len(self._devices)
            held[2] += (upto - at) * waiting
            held[3] += (upto - at) * borrowed
            at = upto

    @property
    def seconds(self) -> float:
        return self.end - self.begin

    def mean_milli(self) -> float:
        """Milli-GPU held, on average."""
        return sum(held[0] for held in self.bins) / self.seconds if self.seconds else 0.0

    def mean_devices(self) -> float:
        """Devices with anything on them, on average."""
        return sum(held[1] for held in self.bins) / self.seconds if self.seconds else 0.0

    def borrowed_hours(self) -> float:
        """Device hours that were borrowed."""
        return sum(held[3] for held in self.bins) / 3600.0

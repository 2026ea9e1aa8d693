"""Counts of durations in fixed classes, as Prometheus wants them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

#: Upper ends of the classes, seconds: a transaction on a fast disk takes 0.1 ms, on a slow one 50.
TRANSACTION_SECONDS: Final = (
    0.0001,
    0.00025,
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    1.0,
    5.0,
)
#: Waiting for a GPU: at once, moments, minutes, half a day.
WAIT_SECONDS: Final = (
    0.1,
    1.0,
    5.0,
    15.0,
    30.0,
    60.0,
    120.0,
    300.0,
    600.0,
    1800.0,
    3600.0,
    14_400.0,
    43_200.0,
)


class Histogram:
    """How many durations were at most as long as each of some bounds."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self._counts = [0] * (len(self.bounds) + 1)
        #: All durations added up.
        self.sum = 0.0

    def observe(self, seconds: float) -> None:
        self._counts[bisect_left(self.bounds, seconds)] += 1
        self.sum += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """(upper bound, how many were not longer), the last bound ``+Inf``."""
        total = 0
        found = []
        for bound, count in zip((*map(str, self.bounds), "+Inf"), self._counts, strict=True):
            total += count
            found.append((bound, float(total)))
        return found

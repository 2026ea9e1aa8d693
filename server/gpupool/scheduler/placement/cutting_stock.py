"""How many devices shares of given sizes need at least, and what each size costs then (Gilmore and Gomory, 1961).

The linear program "cover every size with patterns of sizes that fit a device, with as few devices as possible" is solved by
the simplex method; the next pattern is found by a knapsack over the prices, so patterns are never listed.

The prices are the program's dual values: the part of a device that one more share of this size costs if all others are
packed as well as can be. They differ from the sizes themselves: 810 beside which nothing fits costs a whole device, and the 160
that fits into what it leaves costs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from gpupool.scheduler.placement.policy import Costs
from gpupool.shares import WHOLE_DEVICE_MILLI

#: An improvement below this is rounding.
_TOLERANCE: Final = 1e-9
#: Enough for hundreds of sizes; what is reached by then is valid, if not the best.
_MOST_STEPS: Final = 2_000


@dataclass(frozen=True, slots=True)
class Packing:
    """The solution for one set of counts.

    Attributes:
        devices: how many are needed, as a fraction: no packing needs fewer.
        prices: per size, in devices.
        inverse: of the basis: what each size adds to how often each of the chosen patterns is used.
    """

    devices: float
    prices: Mapping[int, float]
    inverse: Costs

    def at_least(self, counts: Mapping[int, int]) -> float:
        """What other counts cost at these prices: they need no fewer devices, however they are packed."""
        return sum(price * counts.get(size, 0) for size, price in self.prices.items())

    def devices_for(self, counts: Mapping[int, int]) -> float | None:
        """How many devices other counts need; None: not with these patterns, solve anew."""
        if any(count and size not in self.prices for size, count in counts.items()):
            return None
        demand = np.array([float(counts.get(size, 0)) for size in self.prices])
        amounts = self.inverse @ demand
        return None if (amounts < -_TOLERANCE).any() else float(amounts.sum())


def pack(counts: Mapping[int, int]) -> Packing:
    """Solves the program for ``counts`` shares per size (milli, 1..1000)."""
    sizes = sorted((size for size, count in counts.items() if count > 0), reverse=True)
    if sizes and (sizes[0] > WHOLE_DEVICE_MILLI or sizes[-1] < 1):
        raise ValueError(f"sizes are not within 1..{WHOLE_DEVICE_MILLI}: {sizes}")
    demand = np.array([float(counts[size]) for size in sizes])
    # To begin with every device holds one size only, which is a basis.
    inverse = np.diag([1.0 / (WHOLE_DEVICE_MILLI // size) for size in sizes])
    amounts = inverse @ demand
    for _ in range(_MOST_STEPS):
        worth, pattern = _best_pattern(sizes, inverse.sum(axis=0))
        if worth <= 1.0 + _TOLERANCE:
            break
        direction = inverse @ pattern
        rows = np.flatnonzero(direction > _TOLERANCE)
        leaving = int(rows[(amounts[rows] / direction[rows]).argmin()])
        step = amounts[leaving] / direction[leaving]
        amounts = np.maximum(amounts - step * direction, 0.0)
        amounts[leaving] = step
        pivot = inverse[leaving] / direction[leaving]
        inverse = inverse - np.outer(direction, pivot)
        inverse[leaving] = pivot
    prices = np.maximum(inverse.sum(axis=0), 0.0)
    return Packing(float(amounts.sum()), dict(zip(sizes, prices.tolist(), strict=True)), inverse)


def value_by_room(prices: Mapping[int, float]) -> Costs:
    """Per 0..1000 milli: the most that shares fitting into so much room are worth at these prices."""
    return np.array(_knapsack(list(prices), list(prices.values())))


def _best_pattern(sizes: list[int], prices: Costs) -> tuple[float, Costs]:
    """The sizes that fit one device and are worth the most: their worth, and how often each is taken."""
    values = prices.tolist()
    worth = _knapsack(sizes, values)
    pattern = np.zeros(len(sizes))
    room = WHOLE_DEVICE_MILLI
    while room > 0:
        for index, size in enumerate(sizes):
            rest = worth[room - size] + values[index] if size <= room and values[index] > 0 else -1.0
            if abs(rest - worth[room]) <= 1e-12:
                pattern[index] += 1
                room -= size
                break
        else:
            room -= 1
    return worth[WHOLE_DEVICE_MILLI], pattern


def _knapsack(sizes: list[int], values: list[float]) -> list[float]:
    """Per room 0..1000: the most that sizes fitting into it, each as often as one likes, are worth."""
    worth = np.zeros(WHOLE_DEVICE_MILLI + 1)
    for size, value in zip(sizes, values, strict=True):
        if value <= 0:
            continue
        # A stretch as long as the size depends on the stretch before it only: each pass allows one more of this size.
        for start in range(size, WHOLE_DEVICE_MILLI + 1, size):
            stop = min(start + size, WHOLE_DEVICE_MILLI + 1)
            np.maximum(worth[start:stop], worth[start - size : stop - size] + value, out=worth[start:stop])
    return list(worth.tolist())

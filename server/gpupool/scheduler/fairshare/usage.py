"""What was used weighs less as time passes: half after each half-life.

``U(t) = U(0) / 2^(t / half_life)`` (KAI-Scheduler, time-based fair share). Units are milli-GPU-seconds.
"""

from __future__ import annotations

import math


def decay(value: float, seconds: float, half_life: float) -> float:
    """What `value` weighs after `seconds`."""
    return value * math.exp2(-max(0.0, seconds) / half_life)


def held(milli: int, seconds: float, half_life: float) -> float:
    """What holding `milli` during the last `seconds` weighs now: the integral of :func:`decay` over that time."""
    return milli * half_life / math.log(2) * (1.0 - math.exp2(-max(0.0, seconds) / half_life))


def part_of_pool(value: float, capacity: int, half_life: float) -> float:
    """A decayed amount as a part of the pool: 1 for who has held all of `capacity` milli-GPU for ever."""
    if capacity <= 0:
        return 0.0
    return value / (capacity * half_life / math.log(2))

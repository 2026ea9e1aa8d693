"""What was used weighs less as time passes: half after each half-life.

``U(t) = U(0) / 2^(t / half_life)`` (KAI-Scheduler, time-based fair share). Units are milli-GPU-seconds.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Final

#: What one milli-GPU weighed is kept in whole numbers of this part of it.
_UNIT: Final = 1 << 40


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


class HeldUse:
    """What everything that is held weighs, without a walk over it: the sum of :func:`held` over what was added.

    What is held since ``s`` weighs ``milli · H/ln 2 · (1 − 2^((s − now)/H))``. The power is a whole number of half-lives, by
    which the sums are kept apart, and a rest, of which the sums are whole numbers: so what is taken out leaves no trace, and
    the order does not matter.
    """

    def __init__(self, half_life: float) -> None:
        self._half_life = half_life
        self._milli = 0
        self._faded: Counter[int] = Counter()

    def add(self, milli: int, since: float, sign: int = 1) -> None:
        """Something is held; `sign` -1: it is not any more."""
        rest, number = math.modf(since / self._half_life)
        self._milli += sign * milli
        self._faded[int(number)] += sign * milli * round(_UNIT * math.exp2(rest))
        if not self._faded[int(number)]:
            del self._faded[int(number)]

    def at(self, now: float) -> float:
        """Milli-GPU-seconds, as they weigh at `now`."""
        halves = now / self._half_life
        faded = sum(part * math.exp2(number - halves) for number, part in sorted(self._faded.items()))
        return max(0.0, self._half_life / math.log(2) * (self._milli - faded / _UNIT))

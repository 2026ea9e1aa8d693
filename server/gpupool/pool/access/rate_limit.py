"""How often something may be done: so many at once, then so many a second. Pure: time is passed in."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable


class RateLimit:
    """`burst` at once, then `per_second`."""

    def __init__(self, per_second: float, burst: int, now: float) -> None:
        self._per_second = per_second
        self._burst = float(burst)
        self._left = float(burst)
        self._at = now

    def admits(self, now: float) -> bool:
        """Whether once more is within the limit; then it is counted."""
        self._refill(now)
        if self._left < 1:
            return False
        self._left -= 1
        return True

    def seconds_left(self, now: float) -> float:
        """Until once more is within the limit."""
        self._refill(now)
        return max(0.0, 1.0 - self._left) / self._per_second

    def is_untouched(self, now: float) -> bool:
        """Whether as much is within the limit as ever."""
        self._refill(now)
        return self._left >= self._burst

    def take(self) -> None:
        """Counts once more, within the limit or not."""
        self._left -= 1

    def _refill(self, now: float) -> None:
        self._left = min(self._burst, self._left + max(0.0, now - self._at) * self._per_second)
        self._at = max(self._at, now)


class RateLimits:
    """The same limit for each of many; `most` of them are remembered, those seen last. Who is forgotten begins anew."""

    def __init__(self, per_second: float, burst: int, most: int) -> None:
        self._per_second = per_second
        self._burst = burst
        self._most = most
        self._of: OrderedDict[Hashable, RateLimit] = OrderedDict()

    def __len__(self) -> int:
        return len(self._of)

    def of(self, name: Hashable, now: float) -> RateLimit:
        """The limit of this one."""
        own = self._of.pop(name, None) or RateLimit(self._per_second, self._burst, now)
        self._of[name] = own
        if len(self._of) > self._most:
            self._of.popitem(last=False)
        return own

"""How often something may be done: so many at once, then so many a second. Pure: time is passed in."""

from __future__ import annotations


class RateLimit:
    """`burst` at once, then `per_second`."""

    def __init__(self, per_second: float, burst: int, now: float) -> None:
        self._per_second = per_second
        self._burst = float(burst)
        self._left = float(burst)
        self._at = now

    def admits(self, now: float) -> bool:
        """Whether once more is within the limit; then it is counted."""
        self._left = min(self._burst, self._left + max(0.0, now - self._at) * self._per_second)
        self._at = max(self._at, now)
        if self._left < 1:
            return False
        self._left -= 1
        return True

"""How busy a session has kept its devices in the last seconds, from the counters that its worker says."""

from __future__ import annotations

from collections import deque
from typing import Final

#: What is looked at: so many nanoseconds before the last line of figures.
WINDOW_NS: Final = 5_000_000_000


class BusyMeter:
    """Device time per second over the last lines of figures. Times are CLOCK_BOOTTIME, nanoseconds."""

    def __init__(self) -> None:
        self._lines: deque[tuple[int, int]] = deque()

    def add(self, now_ns: int, device_ns: int) -> None:
        """A line of figures came; one line from before the window is kept as where the window begins."""
        if self._lines and device_ns < self._lines[-1][1]:
            self._lines.clear()
        self._lines.append((now_ns, device_ns))
        while len(self._lines) > 2 and self._lines[1][0] <= now_ns - WINDOW_NS:
            self._lines.popleft()

    def busy(self, now_ns: int) -> float:
        """1 is one device all the time. Without a line for as long as the window lasts, nothing is known: 0."""
        if len(self._lines) < 2 or now_ns - self._lines[-1][0] > WINDOW_NS:
            return 0.0
        (since, before), (until, after) = self._lines[0], self._lines[-1]
        return (after - before) / (until - since) if until > since else 0.0

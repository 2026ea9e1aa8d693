"""The pool's clock: boot time for every decision, wall time only for what people read and what is stored."""

from __future__ import annotations

import time
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Clock:
    """Boot-time seconds (they go on while the machine sleeps and never jump), and their wall-clock equal.

    Attributes:
        offset: wall time minus boot time, taken once: a wall clock that is set later moves nothing.
    """

    offset: float

    @classmethod
    def start(cls) -> Clock:
        return cls(time.time() - time.clock_gettime(time.CLOCK_BOOTTIME))

    def now(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def to_unix(self, moment: float) -> float:
        return moment + self.offset

    def from_unix(self, unix: float) -> float:
        return unix - self.offset

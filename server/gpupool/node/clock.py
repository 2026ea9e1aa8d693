"""The clock of deadlines: CLOCK_BOOTTIME, which goes on while the machine sleeps.

Wall time is never compared across machines or stored in a deadline: it may jump.
"""

from __future__ import annotations

import time


def boottime_ns() -> int:
    """Nanoseconds since boot, suspend included; the same clock that workers read."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)

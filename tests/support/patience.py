"""How long tests wait for what must come.

What a test names is what a machine needs that does nothing else. A busy one needs several times as long; waiting
longer costs nothing but where a test fails.
"""

from __future__ import annotations

import time

#: How many times as long as it is named a wait may take.
BUSY = 5.0


def until_late(seconds: float) -> float:
    """The moment of the monotonic clock at which to give up what takes ``seconds`` on a quiet machine."""
    return time.monotonic() + seconds * BUSY

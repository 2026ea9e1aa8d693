"""The one deadline of a whole check: each step gets what it may take, and no more than is left."""

from __future__ import annotations

import time
from typing import Final

NO_TIME: Final = "no time is left"


class LeftOut(Exception):
    """The machine has no means for this part, or there is no time for it; ``str()`` says which."""


class TimeLeft:
    """Counts from now.

    Args:
        seconds: of the whole.
    """

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        return self._end - time.monotonic()

    def of(self, patience: float) -> float:
        """So many seconds, or as many as are left. Raises LeftOut: none."""
        left = self.left()
        if left <= 0:
            raise LeftOut(NO_TIME)
        return min(patience, left)

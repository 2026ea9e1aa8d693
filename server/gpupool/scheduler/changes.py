"""What has changed in the present view of a pool, so that columns which show another moment need not look at every device."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

#: So many changes are remembered; a view that is older is compared device by device.
_REMEMBERED: Final = 1024


class Changes:
    """The history of one :class:`~gpupool.scheduler.fleet.Fleet`; its moments are numbered from 0 on."""

    def __init__(self) -> None:
        self._log: deque[tuple[int, ...]] = deque(maxlen=_REMEMBERED)
        self._serial = 0

    def note(self, places: Iterable[int]) -> int:
        """The present changed at these positions; the serial of what it is now."""
        self._log.append(tuple(places))
        self._serial += 1
        return self._serial

    def between(self, one: int, other: int) -> set[int] | None:
        """The positions at which two moments differ; None: it is not known any more."""
        first, last = sorted((one, other))
        oldest = self._serial - len(self._log)
        if first < oldest:
            return None
        return set().union(*(self._log[number - oldest] for number in range(first, last)))

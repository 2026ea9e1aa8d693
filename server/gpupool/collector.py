"""Python's garbage collector in processes that hold many records for long."""

from __future__ import annotations

import gc
from typing import Final

#: By default a round begins after 700 new objects, and every hundredth walks over all there are: a pool of thousands of
#: leases then spends a fifth of its time on records in which there is no cycle to be found.
_YOUNG: Final = 50_000
_MIDDLE: Final = 20
_OLD: Final = 100


def collect_seldom() -> None:
    """From now on cycles are looked for less often. What is in no cycle goes at once, as ever."""
    gc.set_threshold(_YOUNG, _MIDDLE, _OLD)

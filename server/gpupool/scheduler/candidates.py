"""Where a request may ever be placed, as masks over the columns of a fleet."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpupool.scheduler.placement.cluster import Integers
from gpupool.scheduler.placement.policy import Mask


@dataclass(frozen=True, slots=True)
class Candidates:
    """The devices that a request may be placed on when they are empty and healthy.

    Attributes:
        models: names of their kinds in the cluster.
        devices: per row and column.
        per_row: how many there are.
        everywhere: whether all devices are among them.
    """

    models: frozenset[str]
    devices: Mask
    per_row: Integers
    everywhere: bool = False
    _rows_with: dict[int, tuple[bool, Mask | None]] = field(default_factory=dict, compare=False, repr=False)

    @property
    def rows(self) -> Mask:
        """Per row: whether there is any."""
        found: Mask = self.per_row > 0
        return found

    def rows_with(self, count: int) -> tuple[bool, Mask | None]:
        """Whether any row has so many of them, and per row whether it has; None: all have."""
        known = self._rows_with.get(count)
        if known is None:
            rows: Mask = self.per_row >= count
            known = self._rows_with[count] = bool(rows.any()), None if rows.all() else rows
        return known

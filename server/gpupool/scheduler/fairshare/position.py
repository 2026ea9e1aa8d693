"""Where one project stands at the moment: what it may have beside what it has."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Standing:
    """For people and reports; all in milli-GPU.

    Attributes:
        deserved: what it really deserves of the present pool.
        limit: None: none.
        fair_share: what it is entitled to, given what all want.
        allocated: what its leases hold.
        protected: the part of that which is not taken back for others.
        requested: held and waiting.
    """

    deserved: int
    limit: int | None
    fair_share: int
    allocated: int
    protected: int
    requested: int

    @property
    def waiting(self) -> int:
        return self.requested - self.allocated


@dataclass(slots=True, eq=False)
class Position:
    """A project as the rules work with it; sums are over everything below it.

    Attributes:
        parent: None at the top level.
        guaranteed: milli-GPU of leases that are never taken back.
        waiting: milli-GPU asked and not held.
        held_up: of these, what no lease of others would help, see `Waiting`.
        leaving: milli-GPU of leases that were told to go, or are being given back: not among what is allocated any more, and
            still held.
        key: its part of the order for projects below it, see :mod:`.order`; None: to be computed again.
    """

    path: str
    parent: Position | None
    priority: int
    deserved: int
    limit: int | None
    fair_share: int = 0
    allocated: int = 0
    guaranteed: int = 0
    waiting: int = 0
    held_up: int = 0
    leaving: int = 0
    key: tuple[int | str, ...] | None = field(default=None, repr=False)

    @property
    def entitled(self) -> int:
        """What it may take back from others for."""
        return max(self.fair_share, self.deserved)

    def upwards(self) -> list[Position]:
        """Itself first, then its parent, and so on to the top level."""
        found = [self]
        while (above := found[-1].parent) is not None:
            found.append(above)
        return found

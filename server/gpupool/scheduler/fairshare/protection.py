"""Which leases are protected: not taken back for anybody, as things stand.

``guaranteed`` leases always are. ``interactive`` ones are, in order of priority and then of age, as far as the project
and all its ancestors deserve them; one that is too large for what is left is passed over. ``preemptible`` ones never
are. What is deserved changes with the pool, so a lost device can end protection, the youngest first.
"""

from __future__ import annotations

from collections.abc import Iterable

from gpupool.scheduler.fairshare.lease import HeldLease, seniority
from gpupool.scheduler.fairshare.leases import Group, Leases, group_of
from gpupool.scheduler.fairshare.position import Position


class Protection:
    """Follows leases as they come and go; works only where somebody holds more than is deserved."""

    def __init__(self, positions: dict[str, Position], leases: Leases) -> None:
        self._positions = positions
        self._leases = leases
        #: Milli-GPU of interactive leases, by leaf.
        self._interactive_milli: dict[str, int] = {}
        #: Interactive leases that are *not* protected, by leaf; missing: not known at the moment.
        self._exposed: dict[str, set[str]] = {}
        self._milli: dict[str, int] = {}
        #: Projects whose guaranteed leases alone take more than is deserved; then siblings depend on each other.
        self._crowded: set[str] = set()

    def add(self, lease: HeldLease) -> None:
        if lease.kind == "interactive":
            self._count(lease.project, lease.milli)
        self._changed(lease)

    def remove(self, lease: HeldLease) -> None:
        if lease.kind == "interactive":
            self._count(lease.project, -lease.milli)
        self._changed(lease)

    def is_protected(self, lease: HeldLease) -> bool:
        if lease.kind != "interactive":
            return lease.kind == "guaranteed"
        self._settle(lease.project)
        return lease.id not in self._exposed[lease.project]

    def exposed(self, group: Group) -> Iterable[HeldLease]:
        """The leases of a group that are not protected."""
        leaf, _, kind = group
        if kind != "interactive":
            return () if kind == "guaranteed" else self._leases.of(group)
        self._settle(leaf)
        exposed = (self._leases.get(name) for name in self._exposed[leaf])
        return [lease for lease in exposed if lease is not None and group_of(lease) == group]

    def take_over(self, other: Protection) -> None:
        """The leases of another one, of whose projects the positions here say the same; what is deserved may differ."""
        self._interactive_milli = other._interactive_milli.copy()
        self._crowded = {path for path, p in self._positions.items() if p.guaranteed > p.deserved}

    def milli(self, position: Position) -> int:
        """Milli-GPU that are protected in `position` and below it."""
        inside = position.path + "/"
        total = position.guaranteed
        for leaf in self._interactive_milli:
            if leaf == position.path or leaf.startswith(inside):
                self._settle(leaf)
                total += self._milli[leaf]
        return total

    def _count(self, leaf: str, milli: int) -> None:
        self._interactive_milli[leaf] = self._interactive_milli.get(leaf, 0) + milli

    def _changed(self, lease: HeldLease) -> None:
        self._exposed.pop(lease.project, None)
        crowded = bool(self._crowded)
        if lease.kind == "guaranteed":
            for position in self._positions[lease.project].upwards():
                over = position.guaranteed > position.deserved
                (self._crowded.add if over else self._crowded.discard)(position.path)
        if crowded or self._crowded:
            self._exposed.clear()

    def _settle(self, leaf: str) -> None:
        if leaf in self._exposed:
            return
        if self._crowded:
            self._settle_all()
            return
        # What children deserve never exceeds what their parent does, so the leaf alone decides.
        position = self._positions[leaf]
        room = position.deserved - position.guaranteed
        if self._interactive_milli.get(leaf, 0) <= room:
            self._exposed[leaf] = set()
            self._milli[leaf] = self._interactive_milli.get(leaf, 0)
            return
        exposed: set[str] = set()
        left = room
        for lease in sorted(self._leases.of_leaf(leaf, "interactive"), key=seniority):
            if lease.milli <= left:
                left -= lease.milli
            else:
                exposed.add(lease.id)
        self._exposed[leaf] = exposed
        self._milli[leaf] = room - left

    def _settle_all(self) -> None:
        """Guaranteed leases take more than is deserved somewhere: ancestors must be asked too."""
        room = {path: p.deserved - p.guaranteed for path, p in self._positions.items()}
        self._exposed = {leaf: set() for leaf in self._interactive_milli}
        self._milli = dict.fromkeys(self._interactive_milli, 0)
        leases = [
            lease for leaf in self._interactive_milli for lease in self._leases.of_leaf(leaf, "interactive")
        ]
        for lease in sorted(leases, key=seniority):
            path = self._positions[lease.project].upwards()
            if all(lease.milli <= room[position.path] for position in path):
                for position in path:
                    room[position.path] -= lease.milli
                self._milli[lease.project] += lease.milli
            else:
                self._exposed[lease.project].add(lease.id)

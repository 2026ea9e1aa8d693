"""Which leases are protected: not taken back for anybody, as things stand.

``guaranteed`` leases always are. ``interactive`` ones are, in order of priority and then of age, as far as the project
and all its ancestors deserve them; one that is too large for what is left is passed over. ``preemptible`` ones never
are. What is deserved changes with the pool, so a lost device can end protection, the youngest first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gpupool.scheduler.fairshare.lease import HeldLease, seniority
from gpupool.scheduler.fairshare.position import Position


class Protection:
    """Follows leases as they come and go; works only where somebody holds more than is deserved."""

    def __init__(self, positions: dict[str, Position]) -> None:
        self._positions = positions
        self._interactive: dict[str, dict[str, HeldLease]] = {}
        self._interactive_milli: dict[str, int] = {}
        #: Interactive leases that are *not* protected, by leaf; missing: not known at the moment.
        self._exposed: dict[str, set[str]] = {}
        self._milli: dict[str, int] = {}
        #: Projects whose guaranteed leases alone take more than is deserved; then siblings depend on each other.
        self._crowded: set[str] = set()

    def add(self, lease: HeldLease) -> None:
        if lease.kind == "interactive":
            self._interactive.setdefault(lease.project, {})[lease.id] = lease
            self._count(lease.project, lease.milli)
        self._changed(lease)

    def remove(self, lease: HeldLease) -> None:
        if lease.kind == "interactive":
            del self._interactive[lease.project][lease.id]
            self._count(lease.project, -lease.milli)
        self._changed(lease)

    def is_protected(self, lease: HeldLease) -> bool:
        if lease.kind != "interactive":
            return lease.kind == "guaranteed"
        self._settle(lease.project)
        return lease.id not in self._exposed[lease.project]

    def exposed(self, leaf: str, kind: str, leases: Mapping[str, HeldLease]) -> Iterable[HeldLease]:
        """Those of some leases that are not protected; all of them are of one leaf and kind."""
        if kind != "interactive":
            return () if kind == "guaranteed" else leases.values()
        self._settle(leaf)
        return [leases[name] for name in self._exposed[leaf] if name in leases] if self._exposed[leaf] else ()

    def take_over(self, other: Protection) -> None:
        """The leases of another one, of whose projects the positions here say the same; what is deserved may differ."""
        self._interactive = {leaf: leases.copy() for leaf, leases in other._interactive.items()}
        self._interactive_milli = other._interactive_milli.copy()
        self._crowded = {path for path, p in self._positions.items() if p.guaranteed > p.deserved}

    def milli(self, position: Position) -> int:
        """Milli-GPU that are protected in `position` and below it."""
        inside = position.path + "/"
        total = position.guaranteed
        for leaf in self._interactive:
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
        for lease in sorted(self._interactive[leaf].values(), key=seniority):
            if lease.milli <= left:
                left -= lease.milli
            else:
                exposed.add(lease.id)
        self._exposed[leaf] = exposed
        self._milli[leaf] = room - left

    def _settle_all(self) -> None:
        """Guaranteed leases take more than is deserved somewhere: ancestors must be asked too."""
        room = {path: p.deserved - p.guaranteed for path, p in self._positions.items()}
        self._exposed = {leaf: set() for leaf in self._interactive}
        self._milli = dict.fromkeys(self._interactive, 0)
        leases = [lease for leaf in self._interactive.values() for lease in leaf.values()]
        for lease in sorted(leases, key=seniority):
            path = self._positions[lease.project].upwards()
            if all(lease.milli <= room[position.path] for position in path):
                for position in path:
                    room[position.path] -= lease.milli
                self._milli[lease.project] += lease.milli
            else:
                self._exposed[lease.project].add(lease.id)

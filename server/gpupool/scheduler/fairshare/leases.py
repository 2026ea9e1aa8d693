"""The leases of projects at one moment, by id and by what decides whether they may be taken back.

A look at the queue begins with what is held now and goes its own way from there, a few leases more or less. So it reads what it
began with where that is, and keeps only what differs; a copy is made when that changes while the look is still in use.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias
from weakref import WeakSet

from gpupool.scheduler.fairshare.lease import HeldLease

#: Leaf, priority and kind: leases that agree in these are taken back alike.
Group: TypeAlias = tuple[str, int, str]


def group_of(lease: HeldLease) -> Group:
    """The group that a lease is in."""
    return lease.project, lease.priority, lease.kind


class Leases:
    """What is held.

    Args:
        like: what is held at the beginning, too.
    """

    def __init__(self, like: Leases | None = None) -> None:
        #: Own ones; of those of `like` only which are gone is known here.
        self._rows: dict[str, HeldLease] = {}
        self._groups: dict[Group, dict[str, HeldLease]] = {}
        self._gone: set[str] = set()
        self._like = like
        #: Those that read this one.
        self._readers: WeakSet[Leases] = WeakSet()
        if like is not None:
            if like._like is not None:
                like._stand_alone()  # so that nobody has to look further than into one other
            like._readers.add(self)

    def get(self, name: str) -> HeldLease | None:
        found = self._rows.get(name)
        if found is None and self._like is not None and name not in self._gone:
            found = self._like._rows.get(name)
        return found

    def add(self, lease: HeldLease) -> None:
        """One of whose id there is none."""
        self._changes()
        self._rows[lease.id] = lease
        self._groups.setdefault(group_of(lease), {})[lease.id] = lease

    def pop(self, name: str) -> HeldLease | None:
        lease = self.get(name)
        if lease is None:
            return None
        self._changes()
        if name in self._rows:
            key = group_of(lease)
            del self._rows[name], self._groups[key][name]
            if not self._groups[key]:
                del self._groups[key]
        else:
            self._gone.add(name)
        return lease

    def groups(self) -> list[Group]:
        """All groups that somebody may be in."""
        below = () if self._like is None else self._like._groups
        return list({**dict.fromkeys(below), **dict.fromkeys(self._groups)})

    def of(self, group: Group) -> Iterator[HeldLease]:
        """In no order, like the next."""
        yield from self._groups.get(group, {}).values()
        if self._like is not None:
            below = self._like._groups.get(group, {})
            yield from (lease for name, lease in below.items() if name not in self._gone)

    def of_leaf(self, leaf: str, kind: str) -> Iterator[HeldLease]:
        """Those of a leaf and a kind, whatever their priority."""
        for group in self.groups():
            if (group[0], group[2]) == (leaf, kind):
                yield from self.of(group)

    def _changes(self) -> None:
        """Before it does: whoever reads this one has what it read for its own from now on."""
        if self._readers:
            for reader in list(self._readers):
                reader._stand_alone()

    def _stand_alone(self) -> None:
        if self._like is None:
            return
        groups = {group: {lease.id: lease for lease in self.of(group)} for group in self.groups()}
        self._groups = {group: leases for group, leases in groups.items() if leases}
        self._rows = {name: lease for leases in self._groups.values() for name, lease in leases.items()}
        self._like._readers.discard(self)
        self._like, self._gone = None, set()

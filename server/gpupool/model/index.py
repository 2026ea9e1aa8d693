"""Records of a table that have something in common, without a walk over the table.

An index is told by its table which records were touched, and looks at these again when it is asked; so an answer costs what
has changed since the last one and what is found, however many records there are. It says at every moment what a walk over the
table would say, in the same order, also after a step was taken back. Nothing of it is stored.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from gpupool.model.table import Table

Record = TypeVar("Record")
Name = TypeVar("Name", bound=Hashable)


class Group(Generic[Record]):
    """Some records of a table, by their place in it."""

    def __init__(self) -> None:
        self._rows: dict[int, Record] = {}
        self._places: list[int] = []

    def put(self, place: int, record: Record) -> None:
        if place not in self._rows:
            insort(self._places, place)
        self._rows[place] = record

    def drop(self, place: int) -> None:
        del self._rows[place]
        del self._places[bisect_left(self._places, place)]

    def __len__(self) -> int:
        return len(self._rows)

    def records(self) -> list[Record]:
        return [self._rows[place] for place in self._places]


class Index(Generic[Record, Name]):
    """The records of a table by a name that each of them has.

    Args:
        name_of: what a record is found by; None: it is not found at all.
    """

    def __init__(self, table: Table[Record], name_of: Callable[[Record], Name | None]) -> None:
        self._table = table
        self._name_of = name_of
        self._groups: dict[Name, Group[Record]] = {}
        self._known: dict[str, tuple[Name, int]] = {}
        self._touched = table.watch()
        self._touched.update(table)

    def of(self, name: Name) -> list[Record]:
        """Those of this name, in the table's order."""
        self.follow()
        group = self._groups.get(name)
        return [] if group is None else group.records()

    def count(self, name: Name) -> int:
        self.follow()
        return len(self._groups.get(name, ()))

    def names(self) -> list[Name]:
        """All names that some record has; in no order."""
        self.follow()
        return list(self._groups)

    @property
    def behind(self) -> int:
        """Number of records that were touched since it was asked or told to follow."""
        return len(self._touched)

    def follow(self) -> None:
        """Takes note of what was touched. To be called now and then for one that is asked rarely: else it piles up."""
        for key in self._touched:
            record = self._table.get(key)
            name = None if record is None else self._name_of(record)
            known = self._known.get(key)
            if known is not None and (name != known[0] or self._table.place(key) != known[1]):
                self._drop(key, *known)
            if record is not None and name is not None:
                place = self._table.place(key)
                self._known[key] = name, place
                self._groups.setdefault(name, Group()).put(place, record)
        self._touched.clear()

    def _drop(self, key: str, name: Name, place: int) -> None:
        del self._known[key]
        group = self._groups[name]
        group.drop(place)
        if not group:
            del self._groups[name]


class Subset(Generic[Record]):
    """The records of a table for which something holds."""

    def __init__(self, table: Table[Record], holds: Callable[[Record], bool]) -> None:
        self._index: Index[Record, bool] = Index(table, lambda record: True if holds(record) else None)

    def records(self) -> list[Record]:
        """All of them, in the table's order."""
        return self._index.of(True)

    def __len__(self) -> int:
        return self._index.count(True)

    @property
    def behind(self) -> int:
        """As that of an `Index`, like the next."""
        return self._index.behind

    def follow(self) -> None:
        self._index.follow()


class Moments(Generic[Record]):
    """The records of a table by a time that some of them have."""

    def __init__(self, table: Table[Record], moment_of: Callable[[Record], float | None]) -> None:
        self._table = table
        self._moment_of = moment_of
        self._order: list[tuple[float, str]] = []
        self._known: dict[str, float] = {}
        self._touched = table.watch()
        self._touched.update(table)

    def all(self) -> list[tuple[float, str]]:
        """(time, key) of all that have one, the earliest first."""
        self.follow()
        return list(self._order)

    def before(self, moment: float) -> list[Record]:
        """Those whose time is earlier, in the table's order."""
        self.follow()
        return self._records(bisect_left(self._order, (moment, "")))

    def until(self, moment: float) -> list[Record]:
        """Those whose time is this one or earlier, in the table's order."""
        self.follow()
        return self._records(bisect_right(self._order, moment, key=lambda entry: entry[0]))

    def _records(self, number: int) -> list[Record]:
        keys = [key for _, key in self._order[:number]]
        return [self._table[key] for key in sorted(keys, key=self._table.place)]

    @property
    def behind(self) -> int:
        """As that of an `Index`, like the next."""
        return len(self._touched)

    def follow(self) -> None:
        for key in self._touched:
            record = self._table.get(key)
            moment = None if record is None else self._moment_of(record)
            known = self._known.get(key)
            if moment == known:
                continue
            if known is not None:
                del self._known[key]
                del self._order[bisect_left(self._order, (known, key))]
            if moment is not None:
                self._known[key] = moment
                insort(self._order, (moment, key))
        self._touched.clear()

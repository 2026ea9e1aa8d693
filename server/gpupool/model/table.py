"""A dictionary of records that knows what changed since the last commit, and can take it back."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView, MutableMapping, ValuesView
from typing import Generic, TypeVar, overload

Record = TypeVar("Record")
Other = TypeVar("Other")


class Table(MutableMapping[str, Record], Generic[Record]):
    """Records by id. Records are frozen, so remembering the old one is enough to undo a step."""

    def __init__(self) -> None:
        self._rows: dict[str, Record] = {}
        #: Grows with each key that is new, so its order is that of the rows.
        self._places: dict[str, int] = {}
        self._last_place = 0
        #: The record before the first change since the last commit; None: there was none.
        self._before: dict[str, Record | None] = {}
        #: The same since :meth:`begin_group`; None: there is no group of steps.
        self._group: dict[str, Record | None] | None = None
        self._watchers: list[set[str]] = []

    def watch(self) -> set[str]:
        """A set that grows by each key that is touched from now on, undone changes included. The caller empties it."""
        touched: set[str] = set()
        self._watchers.append(touched)
        return touched

    def __getitem__(self, key: str) -> Record:
        return self._rows[key]

    def __setitem__(self, key: str, record: Record) -> None:
        self._before.setdefault(key, self._rows.get(key))
        self._put(key, record)
        for touched in self._watchers:
            touched.add(key)

    def __delitem__(self, key: str) -> None:
        if key not in self._rows:
            raise KeyError(key)
        self._before.setdefault(key, self._rows[key])
        del self._rows[key], self._places[key]
        for touched in self._watchers:
            touched.add(key)

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    # What `MutableMapping` would put together from the above takes five times as long, and everything walks over tables.

    def __contains__(self, key: object) -> bool:
        return key in self._rows

    @overload
    def get(self, key: str) -> Record | None: ...

    @overload
    def get(self, key: str, default: Record | Other) -> Record | Other: ...

    def get(self, key: str, default: object = None) -> object:
        return self._rows.get(key, default)

    def keys(self) -> KeysView[str]:
        return self._rows.keys()

    def values(self) -> ValuesView[Record]:
        return self._rows.values()

    def items(self) -> ItemsView[str, Record]:
        return self._rows.items()

    def __len__(self) -> int:
        return len(self._rows)

    def place(self, key: str) -> int:
        """A number that tells where the record stands among the others: higher for each that follows.

        Raises:
            KeyError: there is no such record.
        """
        return self._places[key]

    def changes(self) -> dict[str, tuple[Record | None, Record | None]]:
        """(before, now) of every key that was touched; None: the record does not exist."""
        return {key: (before, self._rows.get(key)) for key, before in self._before.items()}

    def commit(self) -> None:
        if self._group is not None:
            for key, before in self._before.items():
                self._group.setdefault(key, before)
        self._before.clear()

    def rollback(self) -> None:
        self._restore(self._before)
        self._before.clear()

    def begin_group(self) -> None:
        """From here on steps can be taken back together, those that were committed included."""
        self._group = {}

    def end_group(self, *, keep: bool) -> None:
        """Keeps all steps of the group, or takes them back."""
        group, self._group = self._group, None
        if not keep:
            self.rollback()
            self._restore(group or {})

    def _restore(self, rows: dict[str, Record | None]) -> None:
        for key, before in rows.items():
            if before is not None:
                self._put(key, before)
            elif key in self._rows:
                del self._rows[key], self._places[key]
        for touched in self._watchers:
            touched.update(rows)

    def _put(self, key: str, record: Record) -> None:
        if key not in self._places:
            self._last_place += 1
            self._places[key] = self._last_place
        self._rows[key] = record

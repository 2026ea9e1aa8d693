"""Where the devices of a pool stand in columns: a row for each node, its devices side by side; and which are of one class.

It is made anew whenever a device comes or goes. What has not changed is taken from before: where nodes are borrowed they come and
go all the time, and a pool has thousands of devices.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import chain

import numpy as np

from gpupool.scheduler.model import DeviceView
from gpupool.scheduler.placement.cluster import Integers


class Layout:
    """See the module.

    Attributes:
        ids: of the devices, by position.
        positions: by id.
        nodes: names by row.
        rows: by node.
        columns: per row, the positions of its devices.
        where: row and column, by position.
        number_of: the class, by position. The first device is of class 0, the first one that is different of class 1.
        firsts: position of the first device of each class.
        kinds: per row, the classes of its devices.
        renumbered: whether classes have other numbers than before.
        grown: whether the devices of before stand where they did: then others were added behind them.
        others: nodes that have not the same devices as before.
    """

    ids: list[str]
    positions: dict[str, int]
    nodes: tuple[str, ...]
    rows: dict[str, int]
    columns: tuple[tuple[int, ...], ...]
    where: list[tuple[int, int]]
    number_of: list[int]
    firsts: list[int]
    kinds: list[tuple[int, ...]]
    renumbered: bool
    grown: bool
    others: set[str]
    _keys: dict[tuple[object, ...], int]
    _numbers: dict[str, int]

    def __init__(
        self, devices: Sequence[DeviceView], before: Layout | None = None, others: Collection[str] = ()
    ) -> None:
        """Orders the devices.

        Args:
            devices: as they are now.
            before: how they stood until now; None: everything is new.
            others: ids of those that have come or gone since, or are of another class or node.
        """
        if before is None:
            before, others = _NOTHING, [device.id for device in devices]
        self.ids = [device.id for device in devices]
        self.grown = self.ids[: len(before.ids)] == before.ids
        self.positions = dict(zip(self.ids, range(len(self.ids)), strict=True))
        self.others = {before.nodes[before.where[place][0]] for place in before._places(others)}
        self.others |= {devices[place].node for place in self._places(others)}
        columns = self._columns(devices, before, others)
        self.nodes = tuple(sorted(columns))
        self.rows = {name: row for row, name in enumerate(self.nodes)}
        self.columns = tuple(columns[name] for name in self.nodes)
        missing = max(0, len(self.ids) - len(before.ids))
        self.where = [*before.where[: len(self.ids)], *[(0, 0)] * missing]
        rows_stay = self.grown and self.nodes[: len(before.nodes)] == before.nodes
        for row, all_of in enumerate(self.columns):
            if not rows_stay or self.nodes[row] in self.others:
                for column, place in enumerate(all_of):
                    self.where[place] = row, column
        self._classify(devices, before, others)
        known = {} if self.renumbered else dict(zip(before.nodes, before.kinds, strict=True))
        self.kinds = [
            known[name]
            if name in known and name not in self.others
            else tuple(self.number_of[place] for place in all_of)
            for name, all_of in zip(self.nodes, self.columns, strict=True)
        ]

    def classes(self, shape: tuple[int, ...]) -> Integers:
        """The class per row and column; 0 where there is no device."""
        found: Integers = np.zeros(shape, np.int64)
        sizes = np.array([len(all_of) for all_of in self.columns], np.int64)
        rows = np.repeat(np.arange(len(sizes)), sizes)
        columns = np.arange(len(self.ids)) - np.repeat(sizes.cumsum() - sizes, sizes)
        found[rows, columns] = np.fromiter(chain.from_iterable(self.kinds), np.int64, len(self.ids))
        return found

    def _places(self, names: Collection[str]) -> list[int]:
        return [place for name in names if (place := self.positions.get(name)) is not None]

    def _columns(
        self, devices: Sequence[DeviceView], before: Layout, others: Collection[str]
    ) -> dict[str, tuple[int, ...]]:
        """By node, the positions of its devices, by id."""
        moved = () if self.grown else [self.positions.get(name, -1) for name in before.ids]
        columns: dict[str, tuple[int, ...]] = {}
        concerned = set(others)
        for name, all_of in zip(before.nodes, before.columns, strict=True):
            if name in self.others:
                concerned.update(before.ids[place] for place in all_of)
            else:
                columns[name] = tuple([moved[place] for place in all_of]) if moved else all_of
        anew: dict[str, list[int]] = {}
        for place in sorted(self._places(concerned), key=self.ids.__getitem__):
            anew.setdefault(devices[place].node, []).append(place)
        columns.update((name, tuple(all_of)) for name, all_of in anew.items())
        return columns

    def _classify(self, devices: Sequence[DeviceView], before: Layout, others: Collection[str]) -> None:
        keys, numbers = before._keys.copy(), before._numbers.copy()
        for name in others:
            numbers.pop(name, None)
            if (place := self.positions.get(name)) is not None:
                numbers[name] = keys.setdefault(class_of(devices[place]), len(keys))
        number_of = list(map(numbers.__getitem__, self.ids))
        order = list(dict.fromkeys(number_of))
        self.renumbered = order != list(range(len(keys)))
        if self.renumbered:
            now = {number: place for place, number in enumerate(order)}
            number_of = [now[number] for number in number_of]
            numbers = dict(zip(self.ids, number_of, strict=True))
            keys = {key: now[number] for key, number in keys.items() if number in now}
        self._keys, self._numbers = keys, numbers
        self.number_of = number_of
        self.firsts = [number_of.index(number) for number in range(len(keys))]


class _Nothing(Layout):
    """The devices of a pool that has none."""

    def __init__(self) -> None:
        self.ids, self.positions, self.nodes, self.rows, self.columns = [], {}, (), {}, ()
        self.where, self.kinds, self._keys, self._numbers = [], [], {}, {}


_NOTHING = _Nothing()


def class_of(device: DeviceView) -> tuple[object, ...]:
    """Devices of one class differ in room, health and node alone."""
    return device.kind, device.total_mib, device.driver, device.software, device.sharing

"""What devices hold at one moment, for as long as somebody asks, without a copy of all of them.

The :class:`Present` is what is held now, and changes. A :class:`Snapshot` reads it, and is handed what it must go on to say of a
device before that changes. What-ifs are snapshots over a snapshot.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, overload
from weakref import WeakSet

from gpupool.records import replace

if TYPE_CHECKING:
    from gpupool.scheduler.fleet import Fleet
    from gpupool.scheduler.model import DeviceView, Held

#: (milli, number of shares) of leases.
Holding = tuple[int, int]


class Present:
    """The devices as they are now, and what each user's leases hold."""

    def __init__(
        self,
        devices: Iterable[DeviceView],
        before: Present | None = None,
        gone: Iterable[DeviceView] = (),
        come: Iterable[DeviceView] = (),
    ) -> None:
        """Counts what is held.

        Args:
            devices: as they are now.
            before: what was, of which most is the same; None: nothing.
            gone: devices of before that are not among these.
            come: those of these that were not among those of before.
        """
        self.devices = list(devices)
        self.holdings: dict[str, Holding] = {} if before is None else before.holdings.copy()
        self._readers: WeakSet[Snapshot] = WeakSet()
        for device in self.devices if before is None else come:
            self._hold_all(device, 1)
        for device in gone:
            self._hold_all(device, -1)

    def _hold_all(self, device: DeviceView, sign: int) -> None:
        for held in device.held:
            if held.lease_id:
                self.holds(held, sign)

    def read_by(self, snapshot: Snapshot) -> None:
        """From now on ``snapshot`` is told of what changes."""
        self._readers.add(snapshot)

    def change(self, place: int, device: DeviceView) -> None:
        for snapshot in self._readers:
            snapshot.past.setdefault(place, self.devices[place])
        self.devices[place] = device

    def holds(self, held: Held, sign: int) -> None:
        """A share more or less of a user."""
        before = self.holdings.get(held.user, (0, 0))
        for snapshot in self._readers:
            snapshot.past_holdings.setdefault(held.user, before)
        now = (before[0] + sign * held.milli, before[1] + sign)
        if now == (0, 0):
            self.holdings.pop(held.user, None)
        else:
            self.holdings[held.user] = now


class Snapshot(Sequence["DeviceView"]):
    """The devices of one moment, or what they would be.

    Attributes:
        fleet: the columns that serve it.
        serial: the moment of the fleet's history that it is, or starts from.
        changed: what is different from that moment, in a what-if.
        past: devices that have changed since that moment, as they were.
        past_holdings: likewise, of users.
    """

    __slots__ = ("__weakref__", "_base", "_present", "changed", "fleet", "past", "past_holdings", "serial")

    def __init__(
        self,
        present: Present,
        fleet: Fleet,
        serial: int = 0,
        changed: Mapping[int, DeviceView] | None = None,
        base: Snapshot | None = None,
    ) -> None:
        self._present = present
        self._base = base
        self.fleet = fleet
        self.serial = serial
        self.changed: Mapping[int, DeviceView] = {} if changed is None else changed
        self.past: dict[int, DeviceView] = {}
        self.past_holdings: dict[str, Holding] = {}
        if base is None:
            present.read_by(self)

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __len__(self) -> int:
        return len(self._present.devices)

    @overload
    def __getitem__(self, place: int) -> DeviceView: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[DeviceView]: ...
    def __getitem__(self, place: int | slice) -> DeviceView | Sequence[DeviceView]:
        if isinstance(place, slice):
            return tuple(self)[place]
        found = self.changed.get(place)
        if found is not None:
            return found
        return self._base._then(place) if self._base is not None else self._then(place)

    def __iter__(self) -> Iterator[DeviceView]:
        return (self[place] for place in range(len(self)))

    def _then(self, place: int) -> DeviceView:
        found = self.past.get(place)
        return self._present.devices[place] if found is None else found

    def held_by(self, user: str) -> Holding:
        """(milli, number of shares) that ``user``'s leases hold."""
        base = self._base or self
        milli, shares = base.past_holdings.get(user) or self._present.holdings.get(user, (0, 0))
        for place, device in self.changed.items():
            for sign, one in ((-1, base._then(place)), (1, device)):
                mine = [held for held in one.held if held.user == user and held.lease_id]
                milli += sign * sum(held.milli for held in mine)
                shares += sign * len(mine)
        return milli, shares

    def holding(self, held: Mapping[int, tuple[Held, ...]]) -> Snapshot:
        """The same with something else held on some devices."""
        other = {place: replace(self[place], held=now) for place, now in held.items()}
        return Snapshot(self._present, self.fleet, self.serial, {**self.changed, **other}, self._base or self)

    def aside(self) -> Snapshot:
        """The same, with columns of its own beside those of this one."""
        fleet = self.fleet.aside(self._present.devices)
        return Snapshot(self._present, fleet, self.serial, self.changed, self._base or self)

    def is_same(self, other: Snapshot) -> bool:
        """Whether both say the same of every device; False: not known."""
        return (self._base or self) is (other._base or other) and self.changed is other.changed

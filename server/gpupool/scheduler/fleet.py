"""The devices of a pool in columns, so that a decision need not look at each of them.

A :class:`Fleet` is made once for a set of devices and serves all views of them: the present one, those before and after it,
and what-ifs. Its columns describe one view at a time (:meth:`Fleet.show`); going from one view to another costs work for the
devices on which they differ. A view's :class:`~gpupool.scheduler.snapshot.Snapshot` says which these are. Views that are far
apart and asked in turns have columns each (:meth:`Fleet.aside`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import compress
from operator import is_not
from typing import Final, TypeAlias

import numpy as np

from gpupool.scheduler.candidates import Candidates
from gpupool.scheduler.changes import Changes
from gpupool.scheduler.eligible import shares_as_asked
from gpupool.scheduler.layout import Layout, class_of
from gpupool.scheduler.model import DeviceView, Held, PlacedShare, Request
from gpupool.scheduler.placement import Cluster, Demand, DeviceSpec, NodeSpec, Placement, Policy
from gpupool.scheduler.placement.cluster import Integers
from gpupool.scheduler.placement.policy import Mask
from gpupool.scheduler.sizes import place_on
from gpupool.scheduler.snapshot import Snapshot
from gpupool.shares import Share

#: Weighs milli before MiB in one number (`Fleet.left`); no device has as many MiB.
_MILLI: Final = 1 << 32
#: In that number: of a device that takes nothing new.
NO_ROOM: Final = -(1 << 62)
#: Ids of devices by a name.
Book: TypeAlias = dict[str, set[str]]
#: Wishes whose candidates are kept.
_MOST_WISHES: Final = 256


class Fleet:
    """See the module.

    A device is known by its position in a view's ``devices``, and by row and column: its node, by name, and its place among the
    devices there, by id.

    Attributes:
        cluster: what policies read: room of devices that are unhealthy or kept for somebody counts as taken.
        positions: by id.
        nodes: names by row.
        columns: per row, the positions of its devices.
        classes: one device of each class; those of one class differ in room, health and node alone.
        free_milli, free_mib: per row and column, as the shown view says; negative where too much is taken.
        healthy: likewise.
        left: both in one number, milli first; of devices that are not healthy, and where there is none, `NO_ROOM`.
        kept: likewise, whether it is reserved for somebody.
        parked: per row, devices with memory of parked sessions.
    """

    def __init__(
        self,
        devices: Sequence[DeviceView],
        policy: Policy,
        before: Fleet | None = None,
        others: Collection[str] = (),
        like: Fleet | None = None,
    ) -> None:
        """Makes the columns.

        Args:
            devices: as they are now.
            policy: where shares are placed.
            before: the fleet of the same pool until now. What it knows of nodes that have the same devices is taken from it, so
                this costs little for a node more or less; it shows nothing any more, until it is asked to.
            others: ids of the devices that have come or gone since, or are of another class or node.
            like: the fleet of the same devices beside which this one shows other views; None: it is the first.
        """
        self.policy = policy
        layout = like._layout if like else Layout(devices, None if before is None else before._layout, others)
        self._layout: Layout = layout
        self.positions, self.nodes, self.rows = layout.positions, layout.nodes, layout.rows
        self.columns, self._where = layout.columns, layout.where
        self.classes = [devices[place] for place in layout.firsts]
        class_specs = [_spec(device, number) for number, device in enumerate(self.classes)]
        # Most nodes are like others, and what is the same object need not be compared.
        of_node = {kinds: tuple(class_specs[number] for number in kinds) for kinds in set(layout.kinds)}
        specs = [NodeSpec(name, of_node[kinds]) for name, kinds in zip(self.nodes, layout.kinds, strict=True)]
        self.cluster = Cluster(specs or [NodeSpec("", ())])
        shape = self.cluster.present.shape
        self.class_of = layout.classes(shape)
        self.free_milli: Integers = np.zeros(shape, np.int64)
        self.free_mib: Integers = np.zeros(shape, np.int64)
        self.healthy: Mask = np.zeros(shape, np.bool_)
        self.left: Integers = np.full(shape, NO_ROOM, np.int64)
        self.kept: Mask = np.zeros(shape, np.bool_)
        self.parked: Integers = np.zeros(len(self.nodes), np.int64)
        self._sample = [devices[all_of[0]] for all_of in self.columns]
        self._candidates: dict[tuple[object, ...], Candidates] = like._candidates if like else {}
        #: Ids of the devices on which leases, parked sessions and users have something.
        self._leases: Book = {}
        self._sessions: Book = {}
        self._users: Book = {}
        self._changes: Changes = like._changes if like else Changes()
        self._shown: list[DeviceView | None] = [None] * len(devices)
        self._snapshot: Snapshot | None = None
        #: The moment that the columns are from, and where they differ from it; None: nothing is shown.
        self._since: tuple[int, Collection[int] | Mapping[int, DeviceView]] | None = None
        self._reserved: frozenset[str] = frozenset()
        if before is not None and before._since is not None:
            self._take_over(before, devices)
        self._aside: Fleet | None = None
        # Columns that nobody has looked at since the fleet was made last are not worth their upkeep.
        if before is not None and before._aside is not None and before._aside._snapshot is not None:
            self._aside = Fleet(devices, policy, before._aside, like=self)

    # ---- which view is shown

    def advance(self, places: Iterable[int]) -> int:
        """Notes that the present view changed there; the serial of what it is now."""
        return self._changes.note(places)

    def aside(self, devices: Sequence[DeviceView]) -> Fleet:
        """The columns for other views of these devices. They are kept for as long as they are used."""
        if self._aside is None:
            self._aside = Fleet(devices, self.policy, like=self)
        return self._aside

    def show(self, snapshot: Snapshot, reserved: frozenset[str] = frozenset()) -> None:
        """Makes the columns describe these devices, with the ``reserved`` ones kept for somebody."""
        before, kept_before = self._snapshot, self._reserved
        if snapshot is before and reserved == kept_before:
            return
        stale = set(self._between(snapshot))
        if reserved != kept_before:
            for name in reserved ^ kept_before:
                if name in self.positions:
                    stale.add(self.positions[name])
                    self.kept[self._where[self.positions[name]]] = name in reserved
        # From here on it is neither: whoever fails half way is followed by one who looks at everything.
        self._snapshot = self._since = None
        self._reserved = reserved
        for place in stale:
            self._update(place, snapshot[place])
        self._snapshot, self._since = snapshot, (snapshot.serial, snapshot.changed)

    def _between(self, after: Snapshot) -> Iterable[int]:
        if self._since is None:
            return range(len(self._shown))
        serial, before = self._since
        steps = self._changes.between(serial, after.serial)
        if steps is None:
            return range(len(self._shown))
        now = after.changed
        if serial != after.serial or not isinstance(before, Mapping):
            return steps.union(before, now)
        # A what-if is made of another one, and most of what it changes is the same there.
        steps.update(place for place, device in now.items() if before.get(place) is not device)
        steps.update(place for place in before if place not in now)
        return steps

    def _take_over(self, before: Fleet, devices: Sequence[DeviceView]) -> None:
        """Shows what ``before`` did where a node has the same devices as there. ``before`` shows nothing from then on."""
        others = self._layout.others
        alike = [(row, before.rows[name]) for row, name in enumerate(self.nodes) if name not in others]
        rows, old_rows = (np.array([pair[side] for pair in alike], np.int64) for side in (0, 1))
        width = min(self.free_milli.shape[1], before.free_milli.shape[1])
        for mine, theirs in (
            (self.free_milli, before.free_milli), (self.free_mib, before.free_mib), (self.healthy, before.healthy),
            (self.left, before.left),
        ):  # fmt: skip
            mine[rows, :width] = theirs[old_rows, :width]
        self.parked[rows] = before.parked[old_rows]
        self.cluster.take_over(before.cluster, rows, old_rows)
        if self._layout.grown:
            self._shown[: len(before._shown)] = before._shown
            for name in others & self.rows.keys():
                for place in self.columns[self.rows[name]]:
                    self._shown[place] = None
        else:
            for row, old in alike:
                for place, old_place in zip(self.columns[row], before.columns[old], strict=True):
                    self._shown[place] = before._shown[old_place]
        self._leases, self._sessions, self._users = before._leases, before._sessions, before._users
        for name in others & before.rows.keys():
            for old_place in before.columns[before.rows[name]]:
                if (was := before._shown[old_place]) is not None:
                    self._index(was.id, was.held, ())
        kept = {self.positions[name] for name in before._reserved if name in self.positions}
        self._since = (0, kept.union(compress(range(len(devices)), map(is_not, self._shown, devices))))
        before._shows_nothing()

    def _shows_nothing(self) -> None:
        self._shown = [None] * len(self._shown)
        self._snapshot = self._since = None
        self._leases, self._sessions, self._users = {}, {}, {}
        self.parked[:] = 0

    def _update(self, place: int, device: DeviceView) -> None:
        was = self._shown[place]
        row, column = self._where[place]
        if was is not device:
            self._shown[place] = device
            if was is None or was.held != device.held:
                self._index(device.id, () if was is None else was.held, device.held)
                self.parked[row] += _keeps_parked(device) - (0 if was is None else _keeps_parked(was))
            milli, mib = device.free_milli, device.free_mib
            self.free_milli[row, column] = milli
            self.free_mib[row, column] = mib
            self.healthy[row, column] = device.healthy
            self.left[row, column] = max(milli, -1) * _MILLI + max(mib, -1) if device.healthy else NO_ROOM
        if device.healthy and not self.kept[row, column]:
            mib = max(0, self.free_mib.item(row, column)) if counts_memory(device) else 0
            self.cluster.put(row, column, max(0, self.free_milli.item(row, column)), mib)
        else:
            self.cluster.put(row, column, 0, 0)

    def _index(self, device: str, was: Iterable[Held], now: Iterable[Held]) -> None:
        for book, name in self._names(was):
            if name in book:
                book[name].discard(device)
                if not book[name]:
                    del book[name]
        for book, name in self._names(now):
            book.setdefault(name, set()).add(device)

    def _names(self, all_of: Iterable[Held]) -> Iterator[tuple[Book, str]]:
        for held in all_of:
            yield self._users, held.user
            if held.lease_id:
                yield self._leases, held.lease_id
            if held.session_id:
                yield self._sessions, held.session_id

    # ---- questions about the shown view

    @property
    def keeps_parked(self) -> bool:
        """Whether memory of any parked session lies on a device."""
        return bool(self._sessions) and bool(self.parked.any())

    def places_of(
        self, *, leases: Collection[str] = (), sessions: Collection[str] = (), users: Collection[str] = ()
    ) -> set[int]:
        """Positions of devices on which these leases hold shares, these parked sessions keep memory, or these users anything."""
        found: set[int] = set()
        for book, names in ((self._leases, leases), (self._sessions, sessions), (self._users, users)):
            for name in names:
                found.update(self.positions[device] for device in book.get(name, ()))
        return found

    def where(self, name: str) -> tuple[int, int]:
        """Row and column of a device."""
        return self._where[self.positions[name]]

    def at(self, row: int, column: int) -> DeviceView:
        device = self._shown[self.columns[row][column]]
        assert device is not None
        return device

    def on_row(self, row: int, mask: Mask | None = None) -> list[DeviceView]:
        """The devices of a node, by id; ``mask``: those of them that it names, by row and column."""
        return [
            self.at(row, column)
            for column in range(len(self.columns[row]))
            if mask is None or mask[row, column]
        ]

    def among(self, mask: Mask) -> list[DeviceView]:
        """The devices that ``mask`` names, by row and column, ordered by node and id."""
        return [self.at(int(row), int(column)) for row, column in np.argwhere(mask)]

    def candidates(
        self, request: Request, share: Share, node_pool: str | None = None, like: frozenset[int] | None = None
    ) -> Candidates:
        """Where ``share`` may ever lie.

        Args:
            request: whose filters, node pools and isolation count.
            share: of each device.
            node_pool: the only node pool that is looked at; None: all that the request names.
            like: classes that will do; None: all.
        """
        pools = request.pools if node_pool is None else (node_pool,)
        key = (share, request.filters, pools, request.isolated, like)
        known = self._candidates.pop(key, None)
        if known is None:
            known = self._find_candidates(request, share, pools, like)
            if len(self._candidates) >= _MOST_WISHES:
                del self._candidates[next(iter(self._candidates))]
        self._candidates[key] = known
        return known

    def _find_candidates(
        self, request: Request, share: Share, pools: tuple[str, ...], like: frozenset[int] | None
    ) -> Candidates:
        of_devices = [wish for wish in request.filters if not wish.of_node]
        of_nodes = [wish for wish in request.filters if wish.of_node]
        will_do = [
            (like is None or number in like)
            and shares_as_asked(device.sharing, request)
            and place_on(device, share) is not None
            and all(wish.matches(device) for wish in of_devices)
            for number, device in enumerate(self.classes)
        ]
        devices = np.array(will_do)[self.class_of] & self.cluster.present
        if pools or of_nodes:
            rows = [
                (not pools or sample.pool in pools) and all(wish.matches(sample) for wish in of_nodes)
                for sample in self._sample
            ]
            devices &= np.array(rows)[:, None]
        models = frozenset(str(number) for number, good in enumerate(will_do) if good)
        everywhere = bool((devices == self.cluster.present).all())
        return Candidates(models, devices, devices.sum(axis=1), everywhere)

    def demand(self, candidates: Candidates, share: Share, count: int) -> Demand:
        """The same as the policy reads it."""
        every = len(candidates.models) == len(self.classes)
        models = frozenset() if every else candidates.models
        return Demand(share.milli or 0, share.mib or 0, count, models=models)

    def place(
        self, candidates: Candidates, share: Share, count: int, rows: Mask | None = None
    ) -> tuple[PlacedShare, ...] | None:
        """The devices of one node that the policy chooses; None: no node has room.

        Args:
            candidates: the devices to choose from.
            share: of each device.
            count: how many devices.
            rows: nodes that will do; None: all.
        """
        some, will_do = candidates.rows_with(count)
        if not some or not self._may_have_room(share, count):
            return None
        if rows is not None:
            will_do = rows if will_do is None else will_do & rows
        placement = self.policy.place(self.cluster, self.demand(candidates, share, count), will_do)
        return None if placement is None else self._shares(placement, share)

    def _may_have_room(self, share: Share, count: int) -> bool:
        """Whether any device has so much left, and any node so much in all: in a full pool that is all there is to know."""
        if share.milli is None:
            return True
        most, most_on_a_node = int(self.cluster.free_milli.max()), int(self.cluster.free_total.max())
        return share.milli <= most and share.milli * count <= most_on_a_node

    def _shares(self, placement: Placement, share: Share) -> tuple[PlacedShare, ...]:
        shares = []
        for column in placement.devices:
            device = self.at(placement.node, column)
            placed = place_on(device, share)
            if (
                placed is None
                or not device.healthy
                or placed.milli > device.free_milli
                or placed.mib > device.free_mib
            ):
                raise RuntimeError(f"placement chose {device.id} for {share}, which has no room for it")
            shares.append(placed)
        return tuple(shares)


def only(fleet: Fleet, node: str) -> Mask:
    """Per row: whether it is this node's."""
    rows: Mask = np.zeros(len(fleet.nodes), np.bool_)
    if node in fleet.rows:
        rows[fleet.rows[node]] = True
    return rows


def counts_memory(device: DeviceView) -> bool:
    """Whether memory of its shares is reserved."""
    return device.sharing != "open"


def _spec(device: DeviceView, number: int) -> DeviceSpec:
    return DeviceSpec(str(number), device.usable if counts_memory(device) else 0)


def _keeps_parked(device: DeviceView) -> int:
    return int(any(held.mib and not held.lease_id for held in device.held))


def same_device(one: DeviceView, other: DeviceView) -> bool:
    """Whether a fleet that was made for one serves the other."""
    mine, others = ((x.id, x.node, x.pool, x.labels, class_of(x)) for x in (one, other))
    return mine == others

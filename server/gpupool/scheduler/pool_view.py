"""The pool at one moment as decisions see it, and what-ifs of it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, cast

from gpupool.records import replace
from gpupool.scheduler.fleet import Fleet
from gpupool.scheduler.model import DEFAULT_NODE_POOL, DeviceView, Held, PlacedShare, Quota
from gpupool.scheduler.placement import DEFAULT_POLICY, policy_named
from gpupool.scheduler.snapshot import Present, Snapshot

_NO_QUOTA: Final = Quota()


@dataclass(frozen=True, slots=True)
class Promise:
    """What a provider can bring, as its administrator says: a node with ``count`` devices like :attr:`device`.

    Attributes:
        provider: its name.
        count: devices of one node.
        mib: physical memory of each.
        pool: their node pool.
        type: their name; empty: nobody has said it, so no request for a type counts on them.
        labels: of the node.
        sharing: what may be placed on them, one of `SHARING`.
        software: whether they are software GPUs.
    """

    provider: str
    count: int
    mib: int
    pool: str = DEFAULT_NODE_POOL
    type: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    sharing: str = "isolated"
    software: bool = False

    @property
    def device(self) -> DeviceView:
        """One of them, before there is any."""
        return DeviceView(
            f"{self.provider}/0",
            self.provider,
            self.mib,
            kind=self.type,
            pool=self.pool,
            labels=self.labels,
            software=self.software,
            sharing=self.sharing,
        )


@dataclass(frozen=True, slots=True)
class PoolView:
    """Everything a decision depends on, as it is at one moment. It stays as it is; what-ifs are views of their own.

    Attributes:
        devices: all known devices, unhealthy ones too.
        quotas: per user; ``"*"`` is for users without a row of their own.
        reserved: devices kept free for requests that wait ahead of this one.
        host_room: MiB that a node still has for memory of parked sessions.
        without_port: nodes on which no other worker finds a port, with the number of their ports.
        promised: what providers can bring besides.
    """

    devices: Sequence[DeviceView]
    quotas: Mapping[str, Quota] = field(default_factory=dict)
    reserved: frozenset[str] = frozenset()
    host_room: Mapping[str, int] = field(default_factory=dict)
    without_port: Mapping[str, int] = field(default_factory=dict)
    promised: tuple[Promise, ...] = ()

    def quota_of(self, user: str) -> Quota:
        return self.quotas.get(user) or self.quotas.get("*") or _NO_QUOTA

    def held_by(self, user: str) -> tuple[int, int]:
        """(milli, number of shares) that ``user``'s leases hold."""
        return self._snapshot().held_by(user)

    @property
    def fleet(self) -> Fleet:
        """The devices in columns, which describe this view until another one is looked at."""
        snapshot = self._snapshot()
        snapshot.fleet.show(snapshot, self.reserved)
        return snapshot.fleet

    def device(self, name: str) -> DeviceView | None:
        place = self._snapshot().fleet.positions.get(name)
        return None if place is None else self.devices[place]

    def is_same(self, other: PoolView) -> bool:
        """Whether whatever is decided in one view is decided in the other; False: not known."""
        return (
            self._snapshot().is_same(other._snapshot())
            and self.reserved == other.reserved
            and self.host_room is other.host_room
            and self.without_port is other.without_port
            and self.quotas is other.quotas
            and self.promised is other.promised
        )

    # ---- what if

    def reserving(self, devices: Iterable[str]) -> PoolView:
        """The pool when these devices, and no others, are kept free for requests that wait ahead."""
        reserved = frozenset(devices)
        return self if reserved == self.reserved else replace(self, reserved=reserved)

    def without(self, lease_ids: Collection[str]) -> PoolView:
        """The pool when these leases have ended; memory that their sessions would keep is not counted."""
        if not lease_ids:
            return self
        places = self.fleet.places_of(leases=lease_ids)
        return self._holding(places, lambda held: not held.lease_id or held.lease_id not in lease_ids)

    def resuming(self, session_ids: Collection[str]) -> PoolView:
        """The pool without what these parked sessions keep on devices: they ask for shares to hold it."""
        if not session_ids:
            return self
        places = self.fleet.places_of(sessions=session_ids)
        return self._holding(places, lambda held: not held.session_id or held.session_id not in session_ids)

    def taking(self, shares: Sequence[PlacedShare], user: str, lease_id: str = "granted") -> PoolView:
        """The pool when ``user`` has been granted these shares."""
        return self._adding({s.device_id: Held(lease_id, user, s.milli, s.mib) for s in shares})

    def parking(self, shares: Sequence[PlacedShare], kept: Held) -> PoolView:
        """The pool when a parked session keeps memory there: ``kept``, of which each share's MiB lie on its device."""
        return self._adding({s.device_id: replace(kept, milli=0, mib=s.mib) for s in shares})

    def aside(self) -> PoolView:
        """The same pool for what-ifs that are far from it: to ask in turns here and there costs nothing."""
        return replace(self, devices=self._snapshot().aside())

    def with_ports_everywhere(self) -> PoolView:
        """The pool when every node has a port for another worker."""
        return replace(self, without_port={})

    def with_host_room(self, host_room: Mapping[str, int]) -> PoolView:
        """The pool when nodes have so many MiB for memory of parked sessions."""
        return replace(self, host_room=host_room)

    def _holding(self, places: Iterable[int], stays: Callable[[Held], bool]) -> PoolView:
        return self._changed(
            {place: tuple(held for held in self.devices[place].held if stays(held)) for place in places}
        )

    def _adding(self, more: Mapping[str, Held]) -> PoolView:
        known = self._snapshot().fleet.positions
        places = {known[name]: held for name, held in more.items() if name in known}
        return self._changed({place: (*self.devices[place].held, held) for place, held in places.items()})

    def _changed(self, held: Mapping[int, tuple[Held, ...]]) -> PoolView:
        if not held:
            return self
        snapshot = self._snapshot().holding(held)
        return replace(self, devices=snapshot)

    def _snapshot(self) -> Snapshot:
        """The devices with what the scheduler works out about them; devices that were given as they are get it now."""
        if not isinstance(self.devices, Snapshot):
            object.__setattr__(self, "devices", _worked_out(self.devices))
        return cast(Snapshot, self.devices)


def _worked_out(devices: Sequence[DeviceView]) -> Snapshot:
    return Snapshot(Present(devices), Fleet(devices, policy_named(DEFAULT_POLICY)))

"""What the scheduler reads and what it answers. All quantities are integers: milli-GPU and MiB."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Literal, cast

from gpupool.filters import Filter
from gpupool.records import replace
from gpupool.sentences import NOTHING, Sentence
from gpupool.shares import usable_mib

if TYPE_CHECKING:
    from gpupool.scheduler.fleet import Fleet
    from gpupool.scheduler.snapshot import Snapshot

#: What a node's administrator lets be placed on its devices. ``isolated``: shares whose memory is theirs, and whole
#: devices; ``whole``: whole devices only; ``open``: shares without memory isolation only, which all use what there is.
SHARING = ("isolated", "whole", "open")
#: The node pool of nodes that name none.
DEFAULT_NODE_POOL = "default"


@dataclass(frozen=True, slots=True)
class Held:
    """Part of a device that is taken.

    Attributes:
        lease_id: the lease that holds it; empty for memory kept by a parked session.
        user: whose it is.
        milli: compute held; 0 for a parked session.
        mib: memory held.
        session_id: the parked session; empty for a lease.
        session_mib: what that session keeps on all its devices: it moves whole or not at all.
        since: since when it has been parked.
        stays: why its memory cannot be moved to the host, as a half sentence; nothing: it can.
        leaving: its memory is on its way off its devices.
        goes_to: where it goes: ``host``, ``image`` (disk), or empty: nowhere, it is freed because the session is being ended.
    """

    lease_id: str
    user: str
    milli: int
    mib: int
    session_id: str = ""
    session_mib: int = 0
    since: float = 0.0
    stays: Sentence = NOTHING
    leaving: bool = False
    goes_to: str = "host"

    @property
    def movable(self) -> bool:
        """Whether it could be told to leave now."""
        return bool(self.session_id) and not self.stays and not self.leaving


Closed = Literal["", "drained", "leaving"]


@dataclass(frozen=True, slots=True)
class DeviceView:
    """A device as the scheduler sees it.

    Attributes:
        id: ``<node>/<ordinal>``.
        node: the node that lends it.
        total_mib: physical memory.
        healthy: whether new shares may be placed on it.
        health_reason: why not, one short phrase.
        held: everything that is taken, leases that are being ended included.
        kind: what memory of a session must agree on to move from one device to another.
        pool: the node pool that its node belongs to.
        labels: what its node's administrator says of it.
        driver: version of its driver, ``580.65.06``; empty: not known.
        software: whether it is a software GPU.
        sharing: what may be placed on it, one of `SHARING`.
        closed: why it takes no new shares though sessions can leave it: an administrator drained its node, or its node is
            about to leave by itself; empty: it is not closed.
    """

    id: str
    node: str
    total_mib: int
    healthy: bool = True
    health_reason: str = ""
    held: tuple[Held, ...] = ()
    kind: str = ""
    pool: str = DEFAULT_NODE_POOL
    labels: Mapping[str, str] = field(default_factory=dict)
    driver: str = ""
    software: bool = False
    sharing: str = "isolated"
    closed: Closed = ""

    @property
    def usable(self) -> int:
        """MiB that shares are cut from."""
        return usable_mib(self.total_mib)

    @property
    def free_milli(self) -> int:
        return 1000 - sum(held.milli for held in self.held)

    @property
    def free_mib(self) -> int:
        """MiB left; negative when parked memory exceeds what leases leave. On ``open`` devices nothing is reserved."""
        if self.sharing == "open":
            return self.usable
        return self.usable - sum(held.mib for held in self.held)


@dataclass(frozen=True, slots=True)
class Quota:
    """The most that one user may hold at a time over the whole pool; None: no limit.

    Attributes:
        milli: sum of milli-GPU over all devices.
        shares: number of device shares.
    """

    milli: int | None = None
    shares: int | None = None


_NO_QUOTA = Quota()


@dataclass(frozen=True, slots=True)
class Parked:
    """The session that a request resumes.

    Attributes:
        session_id: its id.
        devices: where its memory lives, or lived, in its order; all on one node.
        kept_mib: what it keeps on each; a share must hold it. Empty: nothing is known to be kept.
        place: where its memory lies: ``device``, ``host`` or ``image``.
        stays: why its memory cannot be moved to the host, as a half sentence; nothing: it can.
        bound: why it cannot go on in another node, as a half sentence; nothing: it can.
        avoid: nodes that it cannot go to now: where other parts of its gang are.
        kept_place: devices where room is kept for it, because it was moved away for another; in its order.
    """

    session_id: str
    devices: tuple[str, ...]
    kept_mib: tuple[int, ...] = ()
    place: str = "device"
    stays: Sentence = NOTHING
    bound: Sentence = NOTHING
    avoid: frozenset[str] = frozenset()
    kept_place: tuple[str, ...] = ()

    @property
    def mib(self) -> int:
        return sum(self.kept_mib)

    @property
    def node(self) -> str:
        return self.devices[0].rpartition("/")[0]

    def kept_on(self, index: int) -> int:
        return self.kept_mib[index] if index < len(self.kept_mib) else 0


@dataclass(frozen=True, slots=True)
class Request:
    """A wish for ``count`` even shares on distinct devices.

    Exactly one of ``milli`` (1..1000) and ``mib`` (1..) is set; the other is derived per device.

    Attributes:
        parked: the session that is resumed; None: a new one.
        nodes: ``one`` node; ``any`` number of them, when no single one has room; ``auto``: one if there is a node
            that could ever serve it, else any number.
        parts: the sessions of a gang that is resumed, in its order, instead of `parked`; each on a node of its own.
        filters: what its devices must be like, all of them.
        pools: node pools it may be placed in, the most wanted first; empty: all, without preference.
        isolated: its memory is its own; else it goes to ``open`` devices, where its share counts for compute alone.
    """

    user: str
    milli: int | None = None
    mib: int | None = None
    count: int = 1
    parked: Parked | None = None
    nodes: str = "auto"
    parts: tuple[Parked, ...] = ()
    filters: tuple[Filter, ...] = ()
    pools: tuple[str, ...] = ()
    isolated: bool = True


@dataclass(frozen=True, slots=True)
class Help:
    """Something that would help a request that waits or was refused.

    Attributes:
        action: ``smaller``, ``fewer``, ``nodes``, ``other-device``, ``release``, ``wait``, ``grow``, ``ask-admin``, …
        said: for people, with numbers.
        request: the request that would be granted now; None: it is not a matter of asking otherwise.
        release_milli: milli-GPU of the asking user's own (or project's) leases that would have to end.
        seconds: how long to wait; None: not known.
        releases: those leases; all of a gang are named.
    """

    action: str
    said: Sentence
    request: Request | None = None
    release_milli: int = 0
    seconds: float | None = None
    releases: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """The words, with all names."""
        return str(self.said)


@dataclass(frozen=True, slots=True)
class PlacedShare:
    """One share on one device."""

    device_id: str
    milli: int
    mib: int


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
        if not hasattr(self.devices, "fleet"):
            object.__setattr__(self, "devices", _worked_out(self.devices))
        return cast("Snapshot", self.devices)


def _worked_out(devices: Sequence[DeviceView]) -> Snapshot:
    from gpupool.scheduler.fleet import Fleet  # they are made of what is defined here
    from gpupool.scheduler.placement import DEFAULT_POLICY, policy_named
    from gpupool.scheduler.snapshot import Present, Snapshot

    return Snapshot(Present(devices), Fleet(devices, policy_named(DEFAULT_POLICY)))


class Outcome(Enum):
    """REFUSE: waiting cannot help; QUEUE: it can."""

    GRANT = "grant"
    QUEUE = "queue"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer, with its explanation.

    Attributes:
        reason: id of why not: ``full quota no-node bad-share``; empty for a grant.
        said: one sentence with numbers and what would help.
        shares: what is granted; one per device, in the order of the session's ordinals. Those of one node stand
            together.
        wants: for QUEUE with reason ``full``: the devices on which the request will most likely
            fit first; kept free of later requests so that small ones cannot starve it.
        evict: for QUEUE: parked sessions whose memory must leave its devices to make room, those that are
            leaving already included. Not empty: room is on its way, so waiting is a matter of a moment.
        to_disk: those of them that go to disk, because host memory has no room for all.
        facts: the numbers behind the explanation, by name: ``asked_milli``, ``free_milli``, ``quota_milli``, …
        helps: what would help, the best first.
    """

    outcome: Outcome
    reason: str
    said: Sentence
    shares: tuple[PlacedShare, ...] = ()
    wants: tuple[str, ...] = ()
    evict: tuple[str, ...] = ()
    to_disk: frozenset[str] = frozenset()
    facts: Mapping[str, int | str] = field(default_factory=dict)
    helps: tuple[Help, ...] = ()

    @property
    def explanation(self) -> str:
        """The words, with all names."""
        return str(self.said)

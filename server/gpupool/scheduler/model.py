"""What the scheduler reads and what it answers. All quantities are integers: milli-GPU and MiB."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal

from gpupool.filters import Filter
from gpupool.sentences import NOTHING, Sentence
from gpupool.shares import usable_mib

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

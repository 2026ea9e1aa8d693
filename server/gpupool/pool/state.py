"""The records of the pool and the tables that hold them.

Records are frozen; a change is a new record. All times are seconds of the pool's boot-time clock,
as passed in with events; the ledger turns those that outlive a restart into wall-clock time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gpupool.pool.state_index import StateIndex
from gpupool.pool.table import Table
from gpupool.scheduler.filters import Filter
from gpupool.scheduler.model import DEFAULT_NODE_POOL, Decision, PlacedShare

if TYPE_CHECKING:
    from gpupool.pool.live_view import LiveView

#: Session states as stored; `queued` is what people are shown while a worker starts.
SESSION_STATES = ("starting", "attached", "parked", "lost", "closed")
#: Lease states. A `starting` lease waits for its worker; a `releasing` one is over for its holder, but
#: its share is not free yet; an `ended` one holds nothing.
LEASE_STATES = ("starting", "attached", "releasing", "ended")
#: Where a session's device memory lies; `none` before its first worker.
PLACES = ("none", "device", "host", "image")
#: Why a lease ended or a session closed.
REASONS = (
    "exit", "release", "idle", "deadline", "budget", "reclaim", "preempt", "consolidate", "lost", "admin",
)  # fmt: skip
#: What an ask says of being taken back. ``interactive``: not while its project is within what it deserves, and with
#: notice above that; ``guaranteed``: never, and refused above what is deserved; ``preemptible``: with notice, always.
KINDS = ("interactive", "guaranteed", "preemptible")
#: The project of who names none.
DEFAULT_PROJECT = "default"
#: Priority inside a project by kind, as Run:ai and KAI-Scheduler have it (build 100, train 50).
PRIORITIES = {"interactive": 100, "guaranteed": 100, "preemptible": 50}


@dataclass(frozen=True, slots=True)
class Usage:
    """A worker's counters since the session's start (proto `Usage`)."""

    device_seconds: float = 0.0
    kernels: int = 0
    calls: int = 0
    posts: int = 0
    asks: int = 0
    ask_seconds: float = 0.0
    bytes_to_device: int = 0
    bytes_from_device: int = 0
    memory_used: tuple[int, ...] = ()
    memory_peak: tuple[int, ...] = ()
    idle_seconds: float = 0.0
    in_flight: bool = False
    client_connected: bool = False
    state: str = ""


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """A machine that lends devices.

    Attributes:
        connection: the live stream's number; None: not connected. Not stored.
        last_answered: when its last heartbeat was answered. Not stored; the time of a restart
            stands for it, which can only keep shares longer.
        lost: nothing was heard for `Timers.reuse`; all its leases have ended.
        park_memory_mib: host memory that parked sessions may take. Not stored, like the next.
        park_disk_mib: disk that session images may take.
        pool: the node pool it belongs to.
        labels: what its administrator says of it.
        sharing: what may be placed on its devices, see `scheduler.model.SHARING`.
        drained: takes no new leases, because an administrator said so; `drain_reason` why.
    """

    name: str
    instance: str = ""
    advertise_host: str = ""
    connection: int | None = None
    last_answered: float = 0.0
    lost: bool = False
    park_memory_mib: int = 0
    park_disk_mib: int = 0
    pool: str = DEFAULT_NODE_POOL
    labels: tuple[tuple[str, str], ...] = ()
    sharing: str = "isolated"
    drained: bool = False
    drain_reason: str = ""


@dataclass(frozen=True, slots=True)
class DeviceRecord:
    """A device as its node described it.

    `present`: in the node's latest hello. `driver`: its version, empty when the node does not say.
    """

    id: str
    node: str
    ordinal: int
    name: str
    uuid: str
    software: bool
    total_mib: int
    profile: str
    healthy: bool = True
    health_reason: str = ""
    present: bool = True
    driver: str = ""


@dataclass(frozen=True, slots=True)
class Parking:
    """Memory on its way off the devices. Not stored: after a restart the worker says where it lies."""

    place: str
    request: int
    since: float


@dataclass(frozen=True, slots=True)
class LeftWorker:
    """The worker that a session was taken away from, until its end is confirmed: its memory still lies there."""

    node: str
    place: str
    device_ids: tuple[str, ...]
    mib: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """The GPU state of one client process, executed by one worker.

    A session that moves to another node has two workers for a moment. `node`, `device_ids` and `address` are
    of the old one until the new one has reported, which the `starting` lease on the other node tells; the old
    one then is `left` until its end is confirmed. Only the one with the highest epoch serves.

    Attributes:
        epoch: the highest lease epoch so far; strictly grows with every lease.
        token: capability for the worker's data plane, a secret.
        address: host:port of the worker; empty until it reported.
        device_ids: the devices its memory lives on, in the order of its ordinals; when it lies in the host,
            those that it lived on.
        strict: its compute share is a hard cap.
        place: where its memory lies, one of `PLACES`.
        parked_at: when its last lease was taken back.
        parked_mib: what it kept per device when it left the devices; stored for images, which nobody reports.
        source_gone: the old worker ended while a new one was being started from it.
        gone_since: since when its client has been disconnected. Not stored.
        usage: last report. Not stored, like all that follows.
        park_obstacle: why its memory cannot be moved to the host; empty: it can.
        move_obstacle: why it cannot go on in another node; empty: it can.
        park_failure: why the last try to move its memory failed; not tried again before `park_retry_at`.
        gang: the first session of the gang that it is a part of: a process with shares on several nodes has one
            session on each. Empty: it is the only one of its process.
        part: its place in the gang, from 0, which is that of its devices among the process's.
        project: the project of its last lease.
        isolated: its memory is its own; else it shares an ``open`` device. It keeps what it was started with.
        kept_place: where room is kept for it until `kept_until`, because it was moved away for another. Not stored.
    """

    id: str
    user: str
    label: str
    holder: str
    node: str
    device_ids: tuple[str, ...]
    token: str = field(repr=False)
    state: str = "starting"
    reason: str = ""
    epoch: int = 0
    address: str = ""
    lease_id: str = ""
    closed_at: float | None = None
    worker_gone: bool = False
    strict: bool = False
    place: str = "none"
    parked_at: float | None = None
    parked_mib: tuple[int, ...] = ()
    left: LeftWorker | None = None
    source_gone: bool = False
    gone_since: float | None = None
    usage: Usage = field(default_factory=Usage)
    park_obstacle: str = ""
    move_obstacle: str = ""
    enforcement: str = "none"
    parking: Parking | None = None
    park_failure: str = ""
    park_retry_at: float = 0.0
    gang: str = ""
    part: int = 0
    project: str = DEFAULT_PROJECT
    isolated: bool = True
    kept_place: tuple[PlacedShare, ...] = ()
    kept_until: float = 0.0


@dataclass(frozen=True, slots=True)
class Notice:
    """A lease will be taken back. Not stored: the ask behind it is not either.

    Attributes:
        reason: ``reclaim``, ``preempt``, ``consolidate``, ``admin`` (its node is drained) or ``budget`` (its user's
            GPU-seconds will be used up).
        until: when.
        explanation: one sentence for its holder: for whom, and what becomes of it.
        for_ask: the ask that needs the room; empty: none.
        target: where its session will go on at once; empty: it waits its turn.
    """

    reason: str
    until: float
    explanation: str
    for_ask: str = ""
    target: tuple[PlacedShare, ...] = ()


@dataclass(frozen=True, slots=True)
class Resize:
    """A size change that the worker has not confirmed yet; both sizes stay taken until then.

    `done`: it has, but not yet the workers of the other parts of its gang. Not stored.
    """

    shares: tuple[PlacedShare, ...]
    request: int
    since: float
    done: bool = False


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """The grant of shares to one holder.

    Attributes:
        key: idempotency key of the ask it answers; unique per user.
        renew_by: revoked when not renewed by then; None: held without renewals. Not stored.
        covered_at: when an answered heartbeat, or the grant itself, last covered it. Not stored.
        since: when the current state began. Not stored.
        confirm_request: number of the instruction that the worker must confirm. Not stored.
        close_session: the session closes with this lease.
        gang: the first lease of the gang that it is a part of, which stands for the whole towards the holder:
            it alone is renewed. Empty: it is the whole.
        part: its place in the gang, from 0.
        ready: of a `starting` part: its worker serves it, those of other parts may not yet. Not stored.
        address: where that worker is. Not stored.
        project: whose quota it counts against.
        kind: whether it may be taken back, one of `KINDS`.
        priority: in its project; higher is served first.
        notice: it will be taken back soon. Not stored.
    """

    id: str
    session_id: str
    user: str
    key: str
    label: str
    holder: str
    epoch: int
    shares: tuple[PlacedShare, ...]
    state: str
    granted_at: float
    new_session: bool
    reservation: bool = False
    ends_at: float | None = None
    reason: str = ""
    ended_at: float | None = None
    close_session: bool = False
    resize: Resize | None = None
    renew_by: float | None = None
    covered_at: float = 0.0
    since: float = 0.0
    confirm_request: int = 0
    gang: str = ""
    part: int = 0
    ready: bool = False
    address: str = ""
    project: str = DEFAULT_PROJECT
    kind: str = "interactive"
    priority: int = 100
    notice: Notice | None = None

    @property
    def live(self) -> bool:
        """Whether it serves its holder (or is about to)."""
        return self.state in ("starting", "attached")

    @property
    def holds(self) -> bool:
        """Whether its shares are taken."""
        return self.state != "ended"

    @property
    def node(self) -> str:
        """The node whose worker serves it; while a session moves this is not yet the session's."""
        return node_of_device(self.shares[0].device_id)

    def taken(self) -> tuple[PlacedShare, ...]:
        """What is taken per device: during a resize the larger of both sizes."""
        if self.resize is None:
            return self.shares
        return tuple(
            PlacedShare(old.device_id, max(old.milli, new.milli), max(old.mib, new.mib))
            for old, new in zip(self.shares, self.resize.shares, strict=True)
        )


@dataclass(frozen=True, slots=True)
class AskRecord:
    """An ask that waits. Not stored: its caller's stream breaks with the pool, and asks again.

    Attributes:
        number: order of arrival.
        nodes: on how many nodes its devices may lie, see `scheduler.model.Ask`.
        give_up_at: refused with reason `timeout` then; None: waits without limit.
        wants: devices kept free of later asks for this one.
        told: the last (place, reason) that the waiter was told.
        project, kind, priority: as those of the lease it will become.
        filters, pools, isolated: see `scheduler.model.Ask`.
        decision: why it waits, as the scheduler said last.
    """

    id: str
    number: int
    user: str
    key: str
    milli: int | None
    mib: int | None
    count: int
    session_id: str
    label: str
    holder: str
    since: float
    give_up_at: float | None
    duration: float
    reservation: bool
    strict: bool = False
    nodes: str = "auto"
    place: int = 0
    reason: str = ""
    eta: float | None = None
    wants: tuple[str, ...] = ()
    told: tuple[int, str] | None = None
    project: str = DEFAULT_PROJECT
    kind: str = "interactive"
    priority: int = 100
    filters: tuple[Filter, ...] = ()
    pools: tuple[str, ...] = ()
    isolated: bool = True
    decision: Decision | None = None


@dataclass(frozen=True, slots=True)
class ProjectRecord:
    """A project in the tree: ``research/vision`` is a child of ``research``. Only those without children hold leases.

    Attributes:
        deserved: milli-GPU that it always gets; None: what its siblings leave of their parent's.
        limit: milli-GPU that it never exceeds; None: no limit.
        weight: its part of what nobody deserves, against its siblings of one priority.
        priority: siblings of higher priority are served first with what nobody deserves.
        min_run: seconds that a lease of it is not taken back; None: its parent's, at last the pool's.
        members: users who may ask in its name; ``*``: everybody.
    """

    path: str
    deserved: int | None = 0
    limit: int | None = None
    weight: int = 1
    priority: int = 0
    min_run: float | None = None
    members: tuple[str, ...] = ("*",)


@dataclass(frozen=True, slots=True)
class LimitRecord:
    """What one user may have; ``*`` is for users without a record of their own. None: no limit.

    Attributes:
        milli: sum of milli-GPU held at a time.
        shares: number of device shares held at a time.
        largest_milli: milli-GPU of one ask.
        gpu_seconds: milli-GPU-seconds / 1000 within `window_seconds`, counted from the first use.
    """

    user: str
    milli: int | None = None
    shares: int | None = None
    largest_milli: int | None = None
    gpu_seconds: int | None = None
    window_seconds: int = 86_400


@dataclass(frozen=True, slots=True)
class AccountRecord:
    """What ended leases have used, of a user (``user/alice``) or a project (``project/research/vision``).

    Live leases count on top, from their grant on. Times are stored as wall-clock time.

    Attributes:
        window_from: beginning of the user's present window; None: nothing used in it yet.
        window_milli_ms: milli-GPU-milliseconds used in it.
        decayed_milli_seconds: milli-GPU-seconds, each halved once every half-life, as of `as_of`.
    """

    id: str
    window_from: float | None = None
    window_milli_ms: int = 0
    decayed_milli_seconds: float = 0.0
    as_of: float = 0.0


class State:
    """All tables. Only :class:`gpupool.pool.machine.Machine` changes them."""

    def __init__(self) -> None:
        self.nodes: Table[NodeRecord] = Table()
        self.devices: Table[DeviceRecord] = Table()
        self.sessions: Table[SessionRecord] = Table()
        self.leases: Table[LeaseRecord] = Table()
        self.asks: Table[AskRecord] = Table()
        self.projects: Table[ProjectRecord] = Table()
        self.limits: Table[LimitRecord] = Table()
        self.accounts: Table[AccountRecord] = Table()
        #: (user, key) → lease id, joined by a newline, which neither may contain.
        self.keys: Table[str] = Table()
        #: What rules look for in the tables.
        self.index = StateIndex(self)
        #: How often a step has been taken back.
        self.rollbacks = 0
        #: What the scheduler sees of it; made by who looks first (`pool.view.pool_view`).
        self.live_view: LiveView | None = None

    def commit(self) -> None:
        for table in self._tables():
            table.commit()

    def rollback(self) -> None:
        self.rollbacks += 1
        for table in self._tables():
            table.rollback()

    def begin_group(self) -> None:
        """From here on all steps can be taken back together, also those that were committed."""
        for table in self._tables():
            table.begin_group()

    def end_group(self, *, keep: bool) -> None:
        """Keeps all steps since :meth:`begin_group`, or takes all of them back."""
        if not keep:
            self.rollbacks += 1
        for table in self._tables():
            table.end_group(keep=keep)

    def leases_of_node(self, node: str) -> list[LeaseRecord]:
        """Leases whose shares are taken on `node`."""
        return self.index.holding_of_node.of(node)

    def lease_of_session(self, session: SessionRecord) -> LeaseRecord | None:
        """The lease that holds shares for `session`, a releasing one included."""
        return self.leases.get(session.lease_id) if session.lease_id else None

    def lease_parts(self, lease: LeaseRecord) -> list[LeaseRecord]:
        """All parts of the gang of a lease, in their order, as they are now; only itself when it is the whole."""
        if not lease.gang:
            return [self.leases[lease.id]]
        return sorted(self.index.leases_of_gang.of(lease.gang), key=lambda x: x.part)

    def session_parts(self, session: SessionRecord) -> list[SessionRecord]:
        """All parts of the gang of a session, in their order, as they are now; only itself when it is the only one."""
        if not session.gang:
            return [self.sessions[session.id]]
        return sorted(self.index.sessions_of_gang.of(session.gang), key=lambda x: x.part)

    def _tables(self) -> tuple[Table[Any], ...]:
        return (
            self.nodes,
            self.devices,
            self.sessions,
            self.leases,
            self.asks,
            self.projects,
            self.limits,
            self.accounts,
            self.keys,
        )


def node_of_device(device_id: str) -> str:
    return device_id.rpartition("/")[0]


def key_of(user: str, key: str) -> str:
    """The name of an ask: an idempotency key belongs to its user."""
    return f"{user}\n{key}"

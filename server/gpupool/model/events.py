"""What happens to the pool: the events that the machine takes. `now` is the pool's boot-time clock, seconds."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpupool.filters import Filter
from gpupool.model.alert import Alert
from gpupool.model.state import LimitRecord, ProjectRecord, Usage
from gpupool.scheduler.model import DEFAULT_NODE_POOL
from gpupool.sentences import Sentence


@dataclass(frozen=True, slots=True)
class Event:
    """Whatever happens, with its time."""

    now: float


@dataclass(frozen=True, slots=True)
class Restarted(Event):
    """The state was loaded from the ledger; every timer starts anew.

    Attributes:
        served_until: when the last worker stopped serving, because no pool answered its agent; None: they serve on.
    """

    served_until: float | None = None


@dataclass(frozen=True, slots=True)
class Tick(Event):
    """Time passed."""


@dataclass(frozen=True, slots=True)
class Requested(Event):
    """A holder asks for shares; the fields are those of proto `RequestLease`, checked."""

    user: str
    key: str
    milli: int | None
    mib: int | None
    count: int
    session_id: str = ""
    label: str = ""
    holder: str = ""
    wait: float | None = 0.0
    duration: float = 0.0
    reservation: bool = False
    strict: bool = False
    nodes: str = "auto"
    project: str = ""
    kind: str = "interactive"
    priority: int | None = None
    filters: tuple[Filter, ...] = ()
    pools: tuple[str, ...] = ()
    isolated: bool = True
    #: Of the user, as far as whoever knows them says (JupyterHub).
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Cancelled(Event):
    """The last caller that waited for this request went away."""

    user: str
    key: str


@dataclass(frozen=True, slots=True)
class Renewed(Event):
    """The holder of these leases is alive."""

    lease_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Released(Event):
    """A holder gives a lease back; with `close_session` its session ends, too."""

    lease_id: str
    reason: str
    close_session: bool = False


@dataclass(frozen=True, slots=True)
class Resized(Event):
    """A holder wants another size; exactly one of `milli` and `mib` is set, as in a request."""

    lease_id: str
    milli: int | None
    mib: int | None


@dataclass(frozen=True, slots=True)
class SessionClosed(Event):
    """A parked or live session is to end; its memory is lost."""

    session_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class ProjectSet(Event):
    """An administrator makes a project, or changes it."""

    project: ProjectRecord
    by: str


@dataclass(frozen=True, slots=True)
class ProjectRemoved(Event):
    """An administrator removes a project, which must be empty."""

    path: str
    by: str


@dataclass(frozen=True, slots=True)
class LimitSet(Event):
    """An administrator limits a user; `*`: all who have no limit of their own."""

    limit: LimitRecord
    by: str


@dataclass(frozen=True, slots=True)
class LimitRemoved(Event):
    """An administrator takes a limit away; the limit of `*` holds then, if there is one."""

    user: str
    by: str


@dataclass(frozen=True, slots=True)
class NodeDrained(Event):
    """An administrator wants a node to take no new leases; with `evict` its leases end, with notice. Or to take them again."""

    node: str
    drained: bool
    reason: str
    by: str
    evict: bool = False


@dataclass(frozen=True, slots=True)
class NodeForgotten(Event):
    """A node will not come back: what it ran on has been given back. It goes as soon as it is lost and nothing of it is left."""

    node: str


@dataclass(frozen=True, slots=True)
class PoolGrows(Event):
    """What providers do for requests that wait, by the requests' ids; of all others nothing is done."""

    said: tuple[tuple[str, Sentence], ...]


@dataclass(frozen=True, slots=True)
class QuotasNear(Event):
    """Quotas that are nearly used up since the last look, and those that are not any more."""

    near: tuple[Alert, ...]
    over: tuple[Alert, ...]


@dataclass(frozen=True, slots=True)
class OfferedDevice:
    """A device in a node's hello, its profile already read."""

    ordinal: int
    name: str
    uuid: str
    software: bool
    total_mib: int
    profile: str
    healthy: bool = True
    health_reason: str = ""
    driver: str = ""


@dataclass(frozen=True, slots=True)
class ReportedWorker:
    """A worker as its agent sees it; `device_ids` empty: not said."""

    session_id: str
    epoch: int
    state: str
    address: str
    usage: Usage = field(default_factory=Usage)
    place: str = "device"
    park_obstacle: str = ""
    move_obstacle: str = ""
    enforcement: str = "none"
    device_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeHello(Event):
    """A node agent connected; `connection` is the number of the stream, never used twice.

    `images`: sessions that lie on the node's disk.
    """

    node: str
    connection: int
    instance: str
    devices: tuple[OfferedDevice, ...]
    workers: tuple[ReportedWorker, ...] = ()
    advertise_host: str = ""
    park_memory_mib: int = 0
    park_disk_mib: int = 0
    worker_ports: int = 0
    images: frozenset[str] = frozenset()
    pool: str = DEFAULT_NODE_POOL
    labels: tuple[tuple[str, str], ...] = ()
    sharing: str = "isolated"


@dataclass(frozen=True, slots=True)
class FromNode(Event):
    """Base of what a connected node says; ignored when the connection is not its latest."""

    node: str
    connection: int


@dataclass(frozen=True, slots=True)
class NodeHeartbeat(FromNode):
    """A node is alive, and these workers run on it; `number` comes back in the answer."""

    number: int
    workers: tuple[ReportedWorker, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeLeaving(FromNode):
    """Its agent has been told to end, and waits so long for sessions to leave."""

    seconds: float


@dataclass(frozen=True, slots=True)
class NodeDisconnected(FromNode):
    """The stream broke; the workers may well go on."""


@dataclass(frozen=True, slots=True)
class WorkerStarted(FromNode):
    """A worker serves its client at `address`, under the lease's epoch."""

    session_id: str
    epoch: int
    address: str


@dataclass(frozen=True, slots=True)
class WorkerFailed(FromNode):
    """The worker could not be started: there is no process."""

    session_id: str
    epoch: int
    message: str


@dataclass(frozen=True, slots=True)
class WorkerExited(FromNode):
    """The process has ended; the agent saw it. `worker`: how it was when it was heard last."""

    session_id: str
    exit_status: int
    reason: str
    worker: ReportedWorker | None = None


@dataclass(frozen=True, slots=True)
class LeaseApplied(FromNode):
    """The worker's answer to ApplyLease or RevokeLease number `request`, and how it is after it.

    `used_mib`: what its session uses, when it refused because that is more than the new share; 0: it did not.
    `answered`: `ok` is the worker's own word; otherwise it has not answered, or could not be asked.
    `unsure`: it has not answered, and may have done so all the same.
    """

    session_id: str
    epoch: int
    ok: bool
    message: str
    request: int
    worker: ReportedWorker | None = None
    used_mib: int = 0
    answered: bool = False
    unsure: bool = False


@dataclass(frozen=True, slots=True)
class MemoryParked(FromNode):
    """The agent's answer to ParkMemory number `request`."""

    session_id: str
    epoch: int
    ok: bool
    message: str
    mib: int
    request: int
    place: str

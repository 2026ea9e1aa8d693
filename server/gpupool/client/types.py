"""What the pool says, as plain typed values (no protobuf reaches the callers)."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Self

from gpupool.client.usage import Usage as Usage
from gpupool.request.gpu_request import GpuRequest
from gpupool.sentences import NOTHING, Sentence
from gpupool.shares import Share


@dataclass(frozen=True, slots=True)
class LeaseRequest(GpuRequest):
    """A request as the pool takes it: who asks, for what, and how it is told from others.

    Attributes:
        session_id: resume this parked session; empty: a new one.
        on_behalf_of: the user; only admins may name another than themselves.
        label: shown to people (notebook name, command).
        holder: opaque id of the holder (kernel id, process).
        reservation: held across processes until released.
        idempotency_key: the same key always leads to the same lease.
    """

    share: Share
    session_id: str = ""
    on_behalf_of: str = ""
    label: str = ""
    holder: str = ""
    reservation: bool = False
    idempotency_key: str = field(default_factory=lambda: secrets.token_hex(16))

    @classmethod
    def of(
        cls,
        request: GpuRequest,
        *,
        label: str = "",
        holder: str = "",
        on_behalf_of: str = "",
        reservation: bool = False,
    ) -> Self:
        """A new one, for a request that names its share."""
        said: dict[str, Any] = {one.name: getattr(request, one.name) for one in fields(GpuRequest)}
        return cls(**said, label=label, holder=holder, on_behalf_of=on_behalf_of, reservation=reservation)


@dataclass(frozen=True, slots=True)
class Caller:
    """Whom the pool takes a caller for. ``role``: admin, user or node. ``groups``: those of JupyterHub."""

    name: str
    role: str
    groups: tuple[str, ...] = ()

    @property
    def is_admin(self) -> bool:
        return self.role == "admin"


@dataclass(frozen=True, slots=True)
class Help:
    """What would help a request.

    Attributes:
        arguments: of ``gpupool lease request``, for what would be granted now; empty: it is not a matter of asking otherwise.
        request: the same as a request.
    """

    action: str
    sentence: str
    arguments: str = ""
    request: GpuRequest | None = field(default=None, repr=False)
    said: Sentence = NOTHING


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a request waits or was refused: ``sentence`` is complete and for people, the rest the same for programs.

    Attributes:
        reason: an id: those of refusals, ``turn`` (others are before it), ``notice`` (room is being asked back).
        facts: the numbers behind the sentence, by name.
        said: the sentence before it was put into words.
        helps: what would help, the best first.
        place: in the queue; 0: it does not wait.
        eta_seconds: None: not known.
    """

    reason: str
    sentence: str
    facts: Mapping[str, str] = field(default_factory=dict)
    helps: tuple[Help, ...] = ()
    project: str = ""
    place: int = 0
    eta_seconds: float | None = None
    said: Sentence = NOTHING


@dataclass(frozen=True, slots=True)
class Notice:
    """A lease will be taken back: ``reason`` is ``reclaim``, ``preempt``, ``consolidate`` or ``admin``."""

    reason: str
    seconds_left: float
    explanation: str
    said: Sentence = NOTHING


@dataclass(frozen=True, slots=True)
class QueuePlace:
    """Where a request waits: ``place`` 1 is next; ``eta_seconds`` None is unknown."""

    place: int
    reason: str
    eta_seconds: float | None
    explanation: Explanation | None = None


@dataclass(frozen=True, slots=True)
class GrantedShare:
    """A share on one device, ``"<node>/<ordinal>"``."""

    device_id: str
    milli: int
    mib: int


@dataclass(frozen=True, slots=True)
class GrantedWorker:
    """The worker that serves ``devices`` of a lease's shares, those of one node."""

    session_id: str
    epoch: int
    address: str
    token: str = field(repr=False)
    devices: int = 1


@dataclass(frozen=True, slots=True)
class Grant:
    """A lease as granted, with what a client runtime needs to reach its workers: one on each node.

    ``session_id``, ``epoch``, ``worker_address`` and ``worker_token`` are those of the first.
    """

    lease_id: str
    session_id: str
    epoch: int
    shares: tuple[GrantedShare, ...]
    worker_address: str
    worker_token: str = field(repr=False)
    software: bool
    profile: str = field(repr=False)
    new_session: bool
    workers: tuple[GrantedWorker, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class LeaseStatus:
    """Answer to a renewal: ``state`` is ``attached``, ``ended`` or ``unknown``."""

    lease_id: str
    state: str
    reason: str
    usage: Usage
    notice: Notice | None = None


@dataclass(frozen=True, slots=True)
class HeldShare:
    """One holder's share of a device, as the device list shows it."""

    lease_id: str
    session_id: str
    user: str
    label: str
    holder: str
    milli: int
    mib: int
    state: str
    in_use: bool
    project: str = ""
    work: str = ""
    kernel: str = ""
    work_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Device:
    """A device of the pool; ``usable_mib`` is the total less the reserve.

    Of what is not free, parked sessions keep ``parked_mib`` in memory; ``movable_mib`` of that goes to
    host memory when somebody needs the room. ``sharing`` is ``isolated``, ``whole`` or ``open``.
    ``drained``: its node takes no new leases, and the device counts as not healthy. ``busy``: the part of the last
    seconds in which it worked for sessions.
    """

    id: str
    node: str
    ordinal: int
    name: str
    uuid: str
    software: bool
    healthy: bool
    health_reason: str
    total_mib: int
    usable_mib: int
    free_milli: int
    free_mib: int
    used_bytes: int
    shares: tuple[HeldShare, ...]
    profile: str = field(repr=False, default="")
    parked_mib: int = 0
    movable_mib: int = 0
    node_pool: str = "default"
    sharing: str = "isolated"
    driver: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    drained: bool = False
    busy: float = 0.0


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease; ``ends_unix`` None means no deadline.

    ``protected``: as things stand it will not be taken back for others. ``notice``: it will be, soon.
    ``work``, ``kernel``, ``work_seconds``: as in :class:`Usage`; one that is ``releasing`` keeps its share meanwhile.
    """

    id: str
    session_id: str
    user: str
    label: str
    holder: str
    epoch: int
    shares: tuple[GrantedShare, ...]
    state: str
    reason: str
    granted_unix: float
    ends_unix: float | None
    reservation: bool
    project: str = ""
    kind: str = "interactive"
    priority: int = 0
    notice: Notice | None = None
    protected: bool = False
    work: str = ""
    kernel: str = ""
    work_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Token:
    """A token of the pool, without its text; ``subject``: the user, or the node's name."""

    id: str
    subject: str
    role: str
    created_unix: float
    revoked_unix: float | None


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """A session; ``state`` is one of ``queued attached warned parked closed lost``.

    Attributes:
        memory_place: where its device memory lies: ``device``, ``host``, ``image`` or ``none``.
        park_obstacle: why its memory cannot be moved to host memory; empty: it can. The sentence for
            people is in :mod:`gpupool.sentences.obstacles`.
        move_obstacle: why it cannot go on in another node; empty: it can.
        enforcement: of its compute share: ``soft``, ``hard``, ``mps`` or ``none``.
        strict: its compute share is a hard cap.
        nodes: all nodes that its devices are on; ``node`` is the first.
        memory_activity: what is being done with its memory: empty, ``parking``, ``resuming`` or ``moving``.
        notice: its lease will be taken back.
        isolated: its memory is its own.
    """

    id: str
    user: str
    label: str
    holder: str
    node: str
    state: str
    reason: str
    device_ids: tuple[str, ...]
    lease_id: str
    usage: Usage
    memory_place: str = "none"
    park_obstacle: str = ""
    move_obstacle: str = ""
    enforcement: str = "none"
    strict: bool = False
    memory_activity: str = ""
    nodes: tuple[str, ...] = ()
    project: str = ""
    notice: Notice | None = None
    isolated: bool = True


@dataclass(frozen=True, slots=True)
class QueueEntry:
    """A request that waits; ``id`` names it for ``gpupool explain``, ``wants`` are the devices kept for it."""

    place: int
    user: str
    label: str
    holder: str
    milli: int
    mib: int
    count: int
    reason: str
    eta_seconds: float | None
    since_unix: float
    nodes: str = ""
    id: str = ""
    project: str = ""
    kind: str = "interactive"
    priority: int = 0
    filters: tuple[str, ...] = ()
    explanation: Explanation | None = None
    wants: tuple[str, ...] = ()


class Queue(list[QueueEntry]):
    """Those who wait, in their order. ``left_out``: so many more wait, of whom the pool's answer tells nothing."""

    def __init__(self, entries: Iterable[QueueEntry] = (), left_out: int = 0) -> None:
        super().__init__(entries)
        self.left_out = left_out


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """One line of the pool's health report; ``status`` is ``ok``, ``warn`` or ``fail``."""

    name: str
    status: str
    detail: str
    hint: str


@dataclass(frozen=True, slots=True)
class HealthReport:
    """``version`` and ``now_unix`` are the pool server's; empty and 0: it is too old to say."""

    ok: bool
    checks: tuple[HealthCheck, ...]
    version: str = ""
    now_unix: float = 0.0


@dataclass(frozen=True, slots=True)
class Node:
    """A machine that lends GPUs.

    ``address`` is what kernels dial; ``park_memory_free_mib`` of ``park_memory_mib`` is left for parked sessions.
    """

    name: str
    connected: bool
    silent_seconds: float
    lost: bool
    drained: bool
    drain_reason: str
    node_pool: str
    sharing: str
    labels: Mapping[str, str]
    address: str
    devices: int
    leases: int
    park_memory_mib: int
    park_memory_free_mib: int


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line of a node agent's log, or (``level`` ``worker``) of a worker's."""

    at_unix: float
    level: str
    text: str


@dataclass(frozen=True, slots=True)
class Meter:
    """Where the network to a node can be measured once, within ``seconds``."""

    address: str
    ticket: str = field(repr=False)
    seconds: float


@dataclass(frozen=True, slots=True)
class ExplainAnswer:
    """What is, or would be, said to a request; ``shares``: where it is, or would be, placed."""

    granted: bool
    explanation: Explanation
    shares: tuple[GrantedShare, ...]

"""Sessions: the GPU state of client processes, and where it lies."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpupool.model.project_records import DEFAULT_PROJECT
from gpupool.scheduler.model import PlacedShare

#: Session states as stored; `queued` is what people are shown while a worker starts.
SESSION_STATES = ("starting", "attached", "parked", "lost", "closed")
#: Where a session's device memory lies; `none` before its first worker.
PLACES = ("none", "device", "host", "image")
#: What the devices do for a session, where they do anything; of several nodes the first that applies.
WORK_STATES = ("draining", "stopped", "running")


@dataclass(frozen=True, slots=True)
class Usage:
    """A worker's counters since the session's start, and what its devices do now (proto `Usage`)."""

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
    work: str = ""
    kernel: str = ""
    work_seconds: float = 0.0
    failure: int = 0
    failed_kernel: str = ""
    busy: float = 0.0


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
        secret: 64 hexadecimal characters; see `pool.model.session_keys`.
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
    secret: str = field(repr=False)
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

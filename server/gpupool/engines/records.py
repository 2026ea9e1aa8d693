"""What the node agent and the engine that starts its workers say to each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

#: Of what a worker says on its connections: `wire::protocol_version` of `src/wire/hello.h`. It grows with every change by
#: which a worker of before may misunderstand its agent or its client.
WORKER_PROTOCOL: Final = 3
#: What is told as the exit status of a worker that is not adopted because it speaks another one; no worker says it itself.
OTHER_PROTOCOL_STATUS: Final = 12
#: The same of one whose status nobody could collect, because it is no child of the agent that saw its end.
UNKNOWN_STATUS: Final = 13
#: What an engine needs to find its worker again: JSON-compatible, without secrets.
WorkerState: TypeAlias = Mapping[str, Any]


class EngineError(Exception):
    """A worker could not be started or reached; ``str()`` is one sentence for people."""


class NotReadyError(EngineError):
    """A worker that was started said nothing in time."""


class StaleEpochError(EngineError):
    """The start carries an epoch that this engine has seen already for the session."""


@dataclass(frozen=True, slots=True)
class DeviceInventory:
    """One device: its ordinal on this node, its profile (text of one device), its driver's version if known."""

    ordinal: int
    uuid: str
    profile: str
    total_mib: int
    healthy: bool = True
    health_reason: str = ""
    driver: str = ""


@dataclass(frozen=True, slots=True)
class DeviceGrant:
    """A share on one device of this node."""

    ordinal: int
    uuid: str
    milli: int
    mib: int


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """What to start.

    Attributes:
        session: hexadecimal id; one session has at most one worker.
        epoch: fencing token of the lease; a start at or below one already seen is refused.
        devices: order = ordinals the client sees.
        token: what the client shows, a secret; handed over by standard input only, never stored.
        deadline_ns: CLOCK_BOOTTIME at which the worker fences itself.
        drain_seconds: so long after the end of a lease the worker stops what still computes.
        move_key: the same for another worker that takes the session over; empty: none does.
        user: whose session it is, as the pool knows them; empty: not said.
        strict: the shares of device time are hard caps.
        image: folder of the session's image, to resume from; None: a session that begins or is fetched.
        image_source: address of the session's present worker, to fetch it from; empty: nowhere.
    """

    session: str
    epoch: int
    devices: tuple[DeviceGrant, ...]
    token: str = field(repr=False)
    deadline_ns: int
    drain_seconds: float = 4.0
    move_key: str = field(default="", repr=False)
    user: str = ""
    strict: bool = False
    image: Path | None = None
    image_source: str = ""

    @property
    def resumes(self) -> bool:
        """Whether a session is brought along, which takes as long as its memory is large."""
        return self.image is not None or bool(self.image_source)


@dataclass(frozen=True, slots=True)
class Placement:
    """The asked devices can be used by a worker that is started now."""

    devices: tuple[DeviceGrant, ...]


@dataclass(frozen=True, slots=True)
class StartedWorker:
    """A worker that answers: where its data plane and its control socket are.

    ``protocol``: what it speaks, as `WORKER_PROTOCOL`; 0: it was started before that was noted.
    """

    session: str
    epoch: int
    address: str
    control: Path
    state: WorkerState
    devices: tuple[DeviceGrant, ...]
    protocol: int = WORKER_PROTOCOL


@dataclass(frozen=True, slots=True)
class WorkerExited:
    """A worker's process has ended, for certain.

    ``exit_status`` is the exit code, negative for a signal, None when nobody could collect
    it (an adopted process is not our child).
    """

    session: str
    exit_status: int | None
    reason: str

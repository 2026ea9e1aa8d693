"""The contract between a node agent and what starts worker processes.

An engine knows processes, not policy: it starts a worker where it is told, finds it again
after a restart, stops it, and tells when it ended. It never decides who gets a device
(unless it says ``places_devices``), never speaks the worker's protocol, and never frees a
share: its news is the truth about the *process*, the pool draws the conclusions.

The life of one worker, and the calls that are allowed in it::

    reserve ──> Placement ──start──> running ──stop──> ended ──forget──> (unknown)
                                        │                 ▲
                                        └── dies itself ──┘   WorkerExited in watch()

Every engine passes ``tests/integration/test_engine_conformance.py``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

#: What an engine needs to find its worker again: JSON-compatible, without secrets.
WorkerState: TypeAlias = Mapping[str, Any]


class EngineError(Exception):
    """A worker could not be started or reached; ``str()`` is one sentence for people."""


class StaleEpoch(EngineError):
    """The start carries an epoch that this engine has seen already for the session."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What this engine guarantees; the pool adapts to it, never the other way round.

    Attributes:
        places_devices: the engine's own allocation is the truth about who has which device.
        holds_until_confirmed: a device is not free before the worker's end is confirmed.
        runs_as_user: a worker runs under the operating-system user of its session.
        adopts: workers live on without the engine, and :meth:`Engine.list_owned` finds them.
    """

    places_devices: bool
    holds_until_confirmed: bool
    runs_as_user: bool
    adopts: bool


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
        token: the data plane's secret; handed over by standard input only, never stored.
        deadline_ns: CLOCK_BOOTTIME at which the worker fences itself.
        drain_seconds: so long after the end of a lease the worker stops what still computes.
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
class Pending:
    """Not now, perhaps later."""

    reason: str


@dataclass(frozen=True, slots=True)
class Never:
    """Not on this engine, whatever happens."""

    reason: str


Reservation: TypeAlias = Placement | Pending | Never


@dataclass(frozen=True, slots=True)
class StartedWorker:
    """A worker that answers: where its data plane and its control socket are."""

    session: str
    epoch: int
    address: str
    control: Path
    state: WorkerState
    devices: tuple[DeviceGrant, ...]


@dataclass(frozen=True, slots=True)
class WorkerExited:
    """A worker's process has ended, for certain.

    ``exit_status`` is the exit code, negative for a signal, None when nobody could collect
    it (an adopted process is not our child).
    """

    session: str
    exit_status: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class HostLost:
    """The engine cannot reach a host; its workers may still run there."""

    host: str
    reason: str


@dataclass(frozen=True, slots=True)
class HostUp:
    """A host can be used (again)."""

    host: str


EngineEvent: TypeAlias = WorkerExited | HostLost | HostUp


class Engine(ABC):
    """Starts, finds, stops and watches workers."""

    #: What this engine guarantees; constant over its life.
    capabilities: Capabilities

    @abstractmethod
    async def inventory(self) -> tuple[DeviceInventory, ...]:
        """The devices that workers of this engine can use.

        May be called at any time; takes up to some seconds, changes nothing. Raises
        EngineError when the driver cannot be asked.
        """

    @abstractmethod
    def watch(self) -> AsyncIterator[EngineEvent]:
        """News, in the order in which they happened, for ever.

        To be iterated by exactly one task. Every worker returned by :meth:`start` or
        :meth:`list_owned` is followed by exactly one WorkerExited, whoever ended it, also
        when it ended while nobody iterated.
        """

    @abstractmethod
    async def reserve(self, devices: tuple[DeviceGrant, ...], epoch: int) -> Reservation:
        """Whether a worker on these devices can be started now. Holds nothing by itself
        unless the engine ``places_devices``; may be called any number of times."""

    @abstractmethod
    async def start(self, placement: Placement, spec: WorkerSpec) -> StartedWorker:
        """Starts a worker and returns when it answers.

        May be called once per session and epoch, after :meth:`reserve` gave ``placement``.
        When it raises, no process of that start is left. If the caller is killed meanwhile,
        either no process is left or :meth:`list_owned` will find it.

        Raises:
            StaleEpoch: the session has a worker, or had one with this epoch or a later one.
            EngineError: the worker did not come up; the sentence says what it said.
        """

    @abstractmethod
    async def stop(
        self,
        session: str,
        grace_seconds: float,
        ask: Callable[[], Awaitable[None]] | None = None,
        *,
        at_once: bool = False,
    ) -> None:
        """Ends a worker and returns when its process has ended; idempotent.

        First ``ask`` (the caller's polite way: the control socket), then after
        ``grace_seconds`` a request to terminate, then force. ``at_once``: force comes right
        after the grace. Unknown sessions are ignored.
        Only processes that this engine started or adopted are ever signalled.
        """

    @abstractmethod
    async def list_owned(self) -> tuple[StartedWorker, ...]:
        """Workers that run, those of an earlier life of the engine included.

        To be called once after construction, before :meth:`start`. Workers that ended while
        nobody watched are reported by :meth:`watch`. A worker that never told its address is
        ended here, since nobody can have used it.
        """

    @abstractmethod
    async def record(self, session: str, epoch: int, devices: tuple[DeviceGrant, ...]) -> None:
        """Stores the lease that a running worker is about to get, so that an adopted worker is
        known by its current epoch and shares. To be called before the worker is told."""

    @abstractmethod
    async def forget(self, session: str) -> None:
        """Drops what is stored about an ended worker, once its end was passed on; idempotent.

        Ignored while the worker runs.
        """

    @abstractmethod
    async def close(self) -> None:
        """Stops watching. Workers live on when the engine ``adopts``. May be called twice."""

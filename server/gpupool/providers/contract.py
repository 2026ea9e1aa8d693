"""What a provider of nodes does: a few calls, and a small record that only the provider understands.

A job is one node agent on exactly the devices that the engine gave. The pool names jobs; a provider writes the name where it
finds it again (a job's name, a process's environment), so that a job whose answer was lost is adopted, never doubled.

All calls may be made again after a crash: `submit` is preceded by a line in the ledger, and whoever does not know what came of it
asks `list_owned`. `cancel` of a job that is over, or was cancelled already, does nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

#: What a provider wants to know of a job again, as JSON.
State: TypeAlias = Mapping[str, Any]
Phase: TypeAlias = Literal["pending", "running", "ended"]


class ProviderDownError(Exception):
    """The engine does not answer, or not with sense. Nothing is known; what was asked for may have happened."""


class ProviderSilentError(ProviderDownError):
    """The engine has not answered for as long as it is waited for; the next question would wait as long."""


class ProviderRefusedError(Exception):
    """The engine said no: a quota, an unknown partition, a wrong option. Nothing has happened."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a provider's engine can do.

    Attributes:
        time_limit_known: reports say how long a job may still run.
        holds_until_confirmed: devices of a job are lent to nobody else before its processes have ended for sure.
        pending: jobs may wait in the engine's own queue.
    """

    time_limit_known: bool = False
    holds_until_confirmed: bool = False
    pending: bool = False


@dataclass(frozen=True, slots=True)
class Description:
    """The engine, for people.

    Attributes:
        engine: its name and version.
        detail: where the jobs go.
    """

    engine: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class JobOrder:
    """One job.

    Attributes:
        job: its name in the pool, unique for ever: letters and digits.
        node: what its agent calls itself.
        devices: how many the engine is to give.
    """

    job: str
    node: str
    devices: int


@dataclass(frozen=True, slots=True)
class JobReport:
    """What the engine says of a job.

    Attributes:
        reason: in the engine's own words: why it waits, or how it ended.
        seconds_left: until the engine ends it; None: it does not say.
        starts_in: seconds until the engine expects to start it; None: it does not say.
        never: as it was asked for the engine will not start it, however long it waits.
    """

    phase: Phase
    reason: str = ""
    seconds_left: float | None = None
    starts_in: float | None = None
    never: bool = False


class Provider(Protocol):
    """An engine. Calls raise `ProviderDownError` when it does not answer."""

    capabilities: Capabilities

    async def describe(self) -> Description:
        """What engine it is."""

    async def submit(self, order: JobOrder) -> State:
        """Hands a job to the engine.

        Raises:
            ProviderRefusedError: it will not have it.
        """

    async def poll(self, jobs: Mapping[str, State]) -> Mapping[str, JobReport]:
        """What has become of these jobs. One that the engine does not know is `ended`; of all of them there is a report."""

    async def cancel(self, job: str, state: State) -> None:
        """Ends a job: its agent is asked first, and made to after a while. Returns before it has ended."""

    async def list_owned(self) -> Mapping[str, State]:
        """All living jobs of this pool, by name: also those whose `submit` was never answered."""

    async def close(self) -> None:
        """Gives back what the provider holds in this process, such as connections. Jobs go on; nothing is called after it."""

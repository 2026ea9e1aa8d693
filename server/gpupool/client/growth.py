"""Engines that lend nodes to the pool, as typed calls. For administrators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpupool.client.services import Services
from gpupool.proto import pool_pb2


@dataclass(frozen=True, slots=True)
class ProviderJob:
    """A job of an engine, as proto `ProviderJob` says; `seconds_left`, `starts_in`: None: the engine does not say."""

    id: str
    node: str
    phase: str
    engine: str
    reason: str
    why: str
    connected: bool
    engine_job: str
    seconds_left: float | None = None
    starts_in: float | None = None


@dataclass(frozen=True, slots=True)
class Provider:
    """An engine that lends nodes, as proto `Provider` says; the hours are those of the last 30 days; None: not known."""

    name: str
    engine: str
    detail: str
    problem: str
    minimum: int
    maximum: int
    idle_seconds: float
    devices: int
    node_pool: str
    time_limit_known: bool
    holds_until_confirmed: bool
    jobs: tuple[ProviderJob, ...]
    borrowed_hours: float | None = None
    lent_hours: float | None = None
    idle_hours: float | None = None


class GrowthClient:
    """The service Growth of an open connection; errors are its."""

    def __init__(self, pool: Services) -> None:
        self._pool = pool

    async def providers(self) -> list[Provider]:
        answer = await self._pool.call("Growth", "ListProviders", pool_pb2.ListRequest())
        return [_provider(item) for item in answer.providers]

    async def scale(
        self,
        provider: str,
        minimum: int | None = None,
        maximum: int | None = None,
        idle: float | None = None,
        *,
        reset: bool = False,
    ) -> Provider:
        """Changes what is not None; it stays so until it is changed again.

        `idle`: seconds. `reset`: for all others, what the file says counts again.
        """
        message = pool_pb2.ScaleRequest(
            provider=provider, minimum=minimum, maximum=maximum, idle_seconds=idle, reset=reset
        )
        return _provider(await self._pool.call("Growth", "Scale", message))


def _provider(message: Any) -> Provider:
    plain = (
        "name",
        "engine",
        "detail",
        "problem",
        "minimum",
        "maximum",
        "idle_seconds",
        "devices",
        "node_pool",
    )
    values = {name: getattr(message, name) for name in (*plain, "time_limit_known", "holds_until_confirmed")}
    for name in ("borrowed_hours", "lent_hours", "idle_hours"):
        values[name] = getattr(message, name) if message.HasField(name) else None
    return Provider(**values, jobs=tuple(map(_job, message.jobs)))


def _job(message: Any) -> ProviderJob:
    plain = ("id", "node", "phase", "engine", "reason", "why", "connected", "engine_job")
    values = {name: getattr(message, name) for name in plain}
    for name in ("seconds_left", "starts_in"):
        values[name] = getattr(message, name) if message.HasField(name) else None
    return ProviderJob(**values)

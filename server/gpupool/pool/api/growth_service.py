"""The `Growth` service: engines that lend nodes, and how much of them."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import grpc
import structlog
from sqlalchemy.exc import SQLAlchemyError

from gpupool.ledger.periods import milliseconds
from gpupool.ledger.provider_hours import DeviceHours, device_hours
from gpupool.ledger.snapshot import snapshot
from gpupool.pool.access.auth import refuse
from gpupool.pool.api.engines_said import EnginesSaid
from gpupool.pool.lifecycle.shell import PoolShell
from gpupool.proto.gpupool.v1 import pool_pb2 as pb
from gpupool.proto.gpupool.v1 import pool_pb2_grpc
from gpupool.providers.contract import Description
from gpupool.providers.grower import Grower
from gpupool.providers.jobs import node_pattern
from gpupool.providers.kinds import SettingsError
from gpupool.text import printable

logger = structlog.get_logger(__name__)

#: That hours are told of.
_DAYS: Final = 30


class GrowthService(pool_pb2_grpc.GrowthServicer):
    """Over the loop of providers; None: the pool has none."""

    def __init__(self, grower: Grower | None, pool: PoolShell) -> None:
        self._grower = grower
        self._pool = pool
        self._engines = EnginesSaid()

    async def ListProviders(self, request: pb.ListRequest, context: Any) -> pb.ProviderList:
        names = self._grower.names() if self._grower is not None else []
        return pb.ProviderList(providers=await asyncio.gather(*map(self._asked, names)))

    async def Scale(self, request: pb.ScaleRequest, context: Any) -> pb.Provider:
        name = request.provider
        if self._grower is None or name not in self._grower.names():
            known = ", ".join(self._grower.names()) if self._grower is not None else "none"
            text = f"the pool has no provider {printable(name[:64])!r}; it has {known or 'none'}"
            await refuse(context, grpc.StatusCode.NOT_FOUND, "unknown-provider", text)
            raise AssertionError("unreachable")
        named: dict[str, float] = {}
        if request.HasField("minimum"):
            named["minimum"] = request.minimum
        if request.HasField("maximum"):
            named["maximum"] = request.maximum
        if request.HasField("idle_seconds"):
            named["idle"] = request.idle_seconds
        try:
            self._grower.set_scale(name, reset=request.reset, **named)
        except SettingsError as error:
            await refuse(context, grpc.StatusCode.INVALID_ARGUMENT, "bad-request", str(error))
        except SQLAlchemyError as error:
            text = f"it cannot be stored: {type(error).__name__}"
            await refuse(context, grpc.StatusCode.UNAVAILABLE, "ledger", text)
        # It is set, whether the engine answers or not.
        return await self._provider(name, self._engines.last(name))

    async def _asked(self, name: str) -> pb.Provider:
        assert self._grower is not None
        about, problem = await self._engines.now(name, self._grower.provider(name)[0])
        return await self._provider(name, about, problem)

    async def _provider(self, name: str, about: Description, problem: str = "") -> pb.Provider:
        assert self._grower is not None
        provider, scale, trouble = self._grower.provider(name)
        problem = trouble.problem or problem
        hours = await asyncio.to_thread(self._hours, name)
        return pb.Provider(
            name=name,
            engine=printable(about.engine[:80]),
            detail=printable(about.detail[:120]),
            problem=printable(problem[:300]),
            minimum=scale.minimum,
            maximum=scale.maximum,
            idle_seconds=scale.idle,
            devices=scale.devices,
            node_pool=scale.node_pool,
            time_limit_known=provider.capabilities.time_limit_known,
            holds_until_confirmed=provider.capabilities.holds_until_confirmed,
            borrowed_hours=None if hours is None else hours.borrowed,
            lent_hours=None if hours is None else hours.lent,
            idle_hours=None if hours is None else hours.idle,
            jobs=[
                pb.ProviderJob(
                    id=job.id,
                    node=job.node,
                    phase=job.phase,
                    engine=stands.engine,
                    reason=printable(stands.reason),
                    why=printable(job.why[:200]),
                    connected=stands.connected,
                    seconds_left=stands.seconds_left,
                    starts_in=stands.starts_in,
                    engine_job=str(job.state.get("job", job.state.get("pid", "")))[:32],
                )
                for job, stands in self._grower.standing(name)
            ],
        )

    def _hours(self, name: str) -> DeviceHours | None:
        """Of the last `_DAYS` days; None: the ledger does not answer. The rest is told all the same."""
        ledger = self._pool.ledger
        now_ms = milliseconds(self._pool.clock.to_unix(self._pool.now()))
        try:
            with snapshot(ledger.engine) as connection:
                return device_hours(connection, node_pattern(name), now_ms - _DAYS * 86_400_000, now_ms)
        except SQLAlchemyError as error:
            logger.warning("the device hours of a provider cannot be read", provider=name, problem=str(error))
            return None

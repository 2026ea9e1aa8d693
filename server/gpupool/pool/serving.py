"""The services of a pool server that leads, from its first call to its clean end."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import grpc
import grpc.aio
import structlog
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health_aio
from sqlalchemy.exc import SQLAlchemyError

from gpupool.ledger.ledger import Ledger
from gpupool.pool.access import tokens
from gpupool.pool.access.auth import AuthInterceptor
from gpupool.pool.access.hub import Hub, HubOptions, HubUrlUnusableError
from gpupool.pool.access.listening import ServeError
from gpupool.pool.api.administration_service import AdministrationService
from gpupool.pool.api.explanations_service import ExplanationsService
from gpupool.pool.api.growth_service import GrowthService
from gpupool.pool.api.history_service import HistoryService
from gpupool.pool.api.identities_service import IdentitiesService
from gpupool.pool.api.maintenance_service import MaintenanceService
from gpupool.pool.api.nodes_service import NodesService
from gpupool.pool.api.pool_service import PoolService
from gpupool.pool.api.projects_service import ProjectsService
from gpupool.pool.api.reports_service import ReportsService
from gpupool.pool.ending import cancel
from gpupool.pool.growing.start import Grounds, grower, with_jobs
from gpupool.pool.leading.leadership import Leadership
from gpupool.pool.leading.servers_service import ServersService
from gpupool.pool.leading.standby import POOL_SERVICE
from gpupool.pool.lifecycle.shell import PoolShell
from gpupool.pool.options import Serving
from gpupool.pool.place import GRPC_OPTIONS, Place
from gpupool.pool.reporting import alert_watch
from gpupool.pool.reporting.history_sampler import HistorySampler
from gpupool.pool.reporting.lenders import Lender
from gpupool.proto.gpupool.v1 import pool_pb2_grpc
from gpupool.providers import settings
from gpupool.providers.grower import Grower
from gpupool.providers.kinds import SettingsError

logger = structlog.get_logger(__name__)

_GRACE_SECONDS = 2.0


class DeposedError(ServeError):
    """Another server may lead now."""


async def serve_pool(place: Place, pool: PoolShell, leadership: Leadership | None) -> None:
    """Serves calls until the server is told to stop. `leadership`: None: it is the only server of its ledger.

    Raises:
        DeposedError: another server may lead now.
        ServeError: an address cannot be bound, or a setting cannot be used.
    """
    options = place.options
    admit = None if leadership is None else leadership.admit
    servers = tuple if leadership is None else lambda: leadership.servers
    auth = AuthInterceptor(
        pool.ledger, hub_of(options.hub, pool.timers.holder), show_users=options.show_users, first=admit
    )
    server = grpc.aio.server(interceptors=[auth], options=GRPC_OPTIONS)
    pool_pb2_grpc.add_ServersServicer_to_server(ServersService(leadership), server)
    pool_pb2_grpc.add_ReportsServicer_to_server(ReportsService(pool), server)
    history = HistorySampler(pool)
    pool_pb2_grpc.add_HistoryServicer_to_server(HistoryService(pool, history), server)
    pool_pb2_grpc.add_AdministrationServicer_to_server(AdministrationService(pool), server)
    pool_pb2_grpc.add_ExplanationsServicer_to_server(ExplanationsService(pool), server)
    pool_pb2_grpc.add_ProjectsServicer_to_server(ProjectsService(pool), server)
    pool_pb2_grpc.add_IdentitiesServicer_to_server(IdentitiesService(pool.ledger, auth.forget), server)
    pool_pb2_grpc.add_MaintenanceServicer_to_server(MaintenanceService(pool), server)
    # The standard protocol, for probes: the process lives, and the pool is served here, not by another server.
    health = health_aio.HealthServicer()
    await health.set(POOL_SERVICE, health_pb2.HealthCheckResponse.SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(health, server)
    socket, port = place.socket, await place.bind(server)
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(socket.unlink, missing_ok=True)
        # Nodes are told the port, so it is known by now.
        growing = _grower(place, pool)
        pool_service = PoolService(pool, servers, lambda: _lenders(growing))
        pool_pb2_grpc.add_PoolServicer_to_server(pool_service, server)
        pool_pb2_grpc.add_GrowthServicer_to_server(GrowthService(growing, pool), server)
        leads = None if leadership is None else leadership.settled
        lends = (lambda provider, node: False) if growing is None else growing.lends
        pool_pb2_grpc.add_NodesServicer_to_server(NodesService(pool, lends, leads), server)
        metrics_port = _metrics_port(place, pool, stack)
        if leadership is not None:
            leadership.serving = True
        await server.start()
        stack.push_async_callback(_stop_server, server, pool)
        timers = asyncio.create_task(pool.run_timers(), name="pool timers")
        stack.push_async_callback(cancel, timers)
        pool.alerts.percent = options.alert_percent
        stack.push_async_callback(cancel, asyncio.create_task(alert_watch.watch(pool), name="quotas"))
        stack.push_async_callback(cancel, asyncio.create_task(history.run(), name="history"))
        if growing is not None:
            stack.push_async_callback(cancel, asyncio.create_task(growing.run(), name="providers"))
        logger.info("serving", socket=str(socket), port=port, metrics_port=metrics_port)
        if place.ready is not None:
            place.ready(Serving(socket, port, metrics_port, pool))
        await _until_stopped(place.stop, leadership)
        if growing is not None and options.return_nodes:
            await growing.give_back()
        logger.info("stopping; leases stay in the ledger")


async def _until_stopped(stop: asyncio.Event, leadership: Leadership | None) -> None:
    """Raises DeposedError: another server may lead now."""
    if leadership is None:
        await stop.wait()
        return
    events = [asyncio.create_task(event.wait()) for event in (stop, leadership.lost)]
    try:
        await asyncio.wait(events, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for event in events:
            await cancel(event)
    if not stop.is_set():
        raise DeposedError(f"this pool server does not lead any more: {leadership.why}")


async def _stop_server(server: grpc.aio.Server, pool: PoolShell) -> None:
    pool.close()
    await server.stop(_GRACE_SECONDS)


class _NodeTokens:
    """`gpupool.pool.growing.node_tokens.Tokens` over the ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def is_good(self, token: str, node: str) -> bool:
        found = tokens.verify(self._ledger, token)
        return found is not None and (found.role, found.subject) == ("node", node)

    def create(self, node: str) -> str:
        return tokens.create(self._ledger, node, "node").secret


def _grower(place: Place, pool: PoolShell) -> Grower | None:
    options = place.options
    grounds = Grounds(
        place.directory.absolute(), place.socket, _NodeTokens(pool.ledger), place.reached_at, place.own_authority,
        options.return_nodes, options.timers_scale,
    )  # fmt: skip
    try:
        if options.providers is None:
            # The nodes of a former start go on until they are empty: nobody else lets them in, or drains them.
            return grower(pool, [], grounds) if with_jobs(pool) else None
        if options.standby:
            return _grower_of_what_can_be_used(pool, options.providers, grounds)
        return grower(pool, settings.read(options.providers), grounds)
    except (ValueError, OSError, SQLAlchemyError) as error:
        raise ServeError(str(error)) from None


def _lenders(growing: Grower | None) -> list[Lender]:
    """Providers, as the health report tells of them."""
    if growing is None:
        return []
    known = {name: growing.provider(name) for name in growing.names()}
    return [Lender(name, scale.maximum > 0, trouble.problem) for name, (_, scale, trouble) in known.items()]


def _grower_of_what_can_be_used(pool: PoolShell, path: Path, grounds: Grounds) -> Grower:
    """A standby that takes over serves without a provider that is wrong, rather than nobody."""
    unusable: dict[str, str]
    try:
        found, unusable = settings.read_each(path)
    except SettingsError as error:
        # Which providers it names is not known: the nodes of all stay.
        found, unusable = [], dict.fromkeys(with_jobs(pool) or [path.name], str(error))
    growing = grower(pool, found, grounds, unusable)
    for name, why in unusable.items():
        logger.error("the pool serves without a provider", provider=name, problem=why)
        pool.left_out[f"provider {name}"] = why
    return growing


def _metrics_port(place: Place, pool: PoolShell, stack: contextlib.AsyncExitStack) -> int:
    """Where metrics are served; 0: nowhere.

    Raises:
        ServeError: the address cannot be bound, and this server is no standby.
    """
    listen = place.options.metrics_listen
    if not listen:
        return 0
    from gpupool.pool.reporting.metrics import serve_metrics

    try:
        return stack.enter_context(serve_metrics(pool, listen))
    except ServeError as error:
        if not place.options.standby:
            raise
        logger.error("the pool serves without metrics", problem=str(error))
        pool.left_out["metrics"] = str(error)
        return 0


def hub_of(options: HubOptions | None, settle: float = 0.0) -> Hub | None:
    """The Hub that knows callers; None: there is none. Raises ServeError: its URL is none.

    `settle`: see :class:`Hub`.
    """
    try:
        return None if options is None else Hub(options, settle=settle)
    except HubUrlUnusableError as error:
        raise ServeError(str(error)) from None

"""The pool server: options, sockets, start and clean end."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import socket as sockets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import structlog
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health_aio
from sqlalchemy.exc import SQLAlchemyError

from gpupool.client.agreement import own_version
from gpupool.client.endpoint import private_directory, private_home
from gpupool.ledger.database import is_url
from gpupool.ledger.ledger import Ledger, LedgerError, LedgerTakenError, LedgerVersionError
from gpupool.ledger.servers import ServerIdentity
from gpupool.model.clock import Clock
from gpupool.pool.access.auth import AuthInterceptor
from gpupool.pool.access.hub import Hub, HubOptions, HubUrlUnusableError
from gpupool.pool.access.listening import ServeError, bind_socket, bind_tcp, directory_errors
from gpupool.pool.access.tls_files import TlsFiles
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
from gpupool.pool.growing.start import grower
from gpupool.pool.leading.lead_times import LeadTimes
from gpupool.pool.leading.leadership import Leadership
from gpupool.pool.leading.servers_service import ServersService
from gpupool.pool.leading.standby import POOL_SERVICE, Standby, standby_server
from gpupool.pool.lifecycle import restore
from gpupool.pool.lifecycle.shell import PoolShell
from gpupool.pool.model.consolidation import Consolidation
from gpupool.pool.model.timers import Timers
from gpupool.pool.projects.alerts import NEAR_PERCENT
from gpupool.pool.reporting import alert_watch
from gpupool.pool.reporting.history_sampler import HistorySampler
from gpupool.proto.gpupool.v1 import pool_pb2_grpc
from gpupool.providers import settings
from gpupool.providers.grower import Grower
from gpupool.scheduler.model import Quota
from gpupool.scheduler.placement import DEFAULT_POLICY, POLICIES

logger = structlog.get_logger(__name__)

LEDGER_NAME = "pool.sqlite"
SOCKET_NAME = "pool.sock"
_GRACE_SECONDS = 2.0
#: For refusals under way when a standby begins to lead, seconds.
_FAREWELL_SECONDS = 0.1
#: Between two tries of a standby to open a ledger that it could not open, seconds.
_AGAIN_SECONDS = 1.0
_GRPC_OPTIONS = [
    # Without these gRPC sheds load above 1,000 pending calls, as CANCELLED, which clients cannot tell from a bug.
    ("grpc.server.max_pending_requests", 100_000),
    ("grpc.server.max_pending_requests_hard_limit", 200_000),
    # And calls that it could not begin to serve within 30 s, the same way: a crowd would be told that it had hung up.
    ("grpc.server_max_unrequested_time_in_server", 600),
    ("grpc.max_concurrent_streams", 100_000),
    ("grpc.max_receive_message_length", 16 * 1024 * 1024),
    # Two servers on one port would be two pools.
    ("grpc.so_reuseport", 0),
    # Find dead peers (half-open TCP) within 20 s, and allow clients to look as often.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
]


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """What `gpupool pool serve` is told.

    Attributes:
        home: directory of ledger and socket, made 0700; None: `GPUPOOL_HOME` or its default.
        socket: the Unix socket; None: `<home>/pool.sock`. Its directory is made 0700.
            Whoever may enter these directories is an admin, so existing ones must be 0700 already.
        listen: `host:port` for TCP besides the socket; every call over it needs a token. None: no TCP.
        timers: how long things may take.
        timers_scale: all of them times this; for tests.
        ledger: URL of a PostgreSQL database for the ledger; None: `<home>/pool.sqlite`.
        standby: while another server leads on that database, wait, and take over when it does not any more.
        journal_kept: days for which past moments can be rebuilt and decisions replayed; None: for ever.
        quotas: milli-GPU that a user may hold at a time; `"*"` is for all others. The ledger's own
            quotas take precedence.
        metrics_listen: `host:port` of Prometheus `/metrics`; None: none.
        tls: certificate and key of the TCP port; None: it is not encrypted.
        hub: the JupyterHub whose users may call, over TLS and on the socket only; None: none.
        providers: a file that names engines that lend nodes, see `gpupool.providers.settings`; None: there are none.
        show_users: whether users who are no admins see each other's names. What others call their notebooks they never see.
        policy: name of the placement policy, one of `gpupool.scheduler.placement.POLICIES`.
        consolidate: which leases go on elsewhere for a request that fits nowhere.
        alert_percent: of a quota, from which on it counts as nearly used up.
    """

    home: Path | None = None
    socket: Path | None = None
    listen: str | None = None
    timers: Timers = field(default_factory=Timers)
    timers_scale: float = 1.0
    quotas: Mapping[str, int] = field(default_factory=dict)
    metrics_listen: str | None = None
    ledger: str | None = None
    standby: bool = False
    journal_kept: float | None = None
    alert_percent: int = NEAR_PERCENT
    policy: str = DEFAULT_POLICY
    consolidate: Consolidation = Consolidation.IDLE
    tls: TlsFiles | None = None
    hub: HubOptions | None = None
    show_users: bool = True
    providers: Path | None = None


@dataclass(frozen=True, slots=True)
class Serving:
    """Where the server can be reached. `port`: of TCP, 0 without."""

    socket: Path
    port: int
    metrics_port: int
    pool: PoolShell


class DeposedError(ServeError):
    """Another server may lead now."""


async def serve(
    options: ServeOptions,
    *,
    ready: Callable[[Serving], None] | None = None,
    stop: asyncio.Event | None = None,
) -> None:
    """Serves until SIGTERM, SIGINT or `stop`; then ends streams cleanly. Leases live on in the ledger.

    Args:
        options: where and with what.
        ready: called when calls are served, by a standby each time that it has taken over.
        stop: when given, signals are left to the caller.

    Raises:
        ServeError: another server uses a directory or others may enter it, a socket or the ledger cannot be opened, or
            another server has taken over and this one is no standby.
    """
    _check(options)
    with directory_errors():
        directory = private_directory(options.home) if options.home else private_home()
    with only_server(directory), _told_to_stop(stop) as stopping:
        place = _Place(options, directory, stopping, ready)
        if not options.standby:
            try:
                await _lead(place)
            except LedgerError as error:
                raise ServeError(str(error)) from error
            return
        while await _stand_by(place):
            try:
                await _lead(place)
                return
            except (DeposedError, LedgerTakenError) as error:
                logger.warning("waiting again", why=str(error))
            except LedgerVersionError as error:
                raise ServeError(str(error)) from error
            except LedgerError as error:
                logger.error("this standby cannot take over", problem=str(error))
                await asyncio.sleep(_AGAIN_SECONDS)


def _check(options: ServeOptions) -> None:
    if not 0 < options.timers_scale <= 1000:
        raise ServeError(f"timers scale {options.timers_scale} is not above 0")
    if options.policy not in POLICIES:
        raise ServeError(f"{options.policy[:40]!r} is not a placement policy: {', '.join(POLICIES)}")
    if options.hub is not None and options.listen and options.tls is None:
        raise ServeError(
            "users of a JupyterHub would send their tokens to an unencrypted port; "
            "give it a certificate with --tls-certificate and --tls-key"
        )
    if options.standby and not is_url(options.ledger or ""):
        raise ServeError(
            f"--standby needs a ledger in PostgreSQL, which several servers can reach, and the ledger is "
            f"{options.ledger or 'a file'}; give its address with --ledger postgresql+psycopg://user@host/database"
        )


@dataclass(slots=True)
class _Place:
    """A server through all its times as leader and as standby. `listen`: with the port that it got, once it has one."""

    options: ServeOptions
    directory: Path
    stop: asyncio.Event
    ready: Callable[[Serving], None] | None
    times: LeadTimes = field(default_factory=LeadTimes)

    def identity(self) -> ServerIdentity:
        """A new one each time: a server that was deposed is another one when it leads again."""
        host = sockets.gethostname()
        listen = self.options.listen
        if listen is None:
            address = f"unix:{self.socket}"
        else:
            named, _, port = listen.rpartition(":")
            anywhere = named.strip("[]") in ("0.0.0.0", "::")  # noqa: S104 (compared, not bound)
            address = f"{'tls:' if self.options.tls else ''}{host if anywhere else named}:{port}"
        return ServerIdentity(host, address, own_version())

    @property
    def socket(self) -> Path:
        return (self.options.socket or self.directory / SOCKET_NAME).absolute()

    def bind(self, server: grpc.aio.Server) -> int:
        """Lets a server listen at both addresses; the TCP port, 0 without."""
        bind_socket(server, self.socket)
        listen = self.options.listen
        if listen is None:
            return 0
        port = bind_tcp(server, listen, self.options.tls)
        self.options = replace(self.options, listen=f"{listen.rpartition(':')[0]}:{port}")
        return port


async def _stand_by(place: _Place) -> bool:
    """Waits until this server may take over; False: it is to stop."""
    assert place.options.ledger is not None
    try:
        standby = Standby(place.options.ledger, place.identity(), place.times)
    except ValueError as error:
        raise ServeError(str(error)) from None
    server = await standby_server(standby, _GRPC_OPTIONS)
    place.bind(server)
    waiting = asyncio.create_task(standby.wait(), name="standby")
    stopped = asyncio.create_task(place.stop.wait(), name="stop")
    try:
        await server.start()
        logger.info("standing by", socket=str(place.socket), listen=place.options.listen)
        await asyncio.wait((waiting, stopped), return_when=asyncio.FIRST_COMPLETED)
        if waiting.done():
            waiting.result()
        return not place.stop.is_set()
    finally:
        await _cancel(waiting)
        await _cancel(stopped)
        await server.stop(_FAREWELL_SECONDS)
        place.socket.unlink(missing_ok=True)
        await asyncio.to_thread(standby.close)


async def _lead(place: _Place) -> None:
    """Leads until it is told to stop.

    Raises:
        DeposedError: another server may lead now.
        LedgerError: the ledger cannot be opened.
    """
    options = place.options
    me = place.identity()
    # In threads: the lead is confirmed meanwhile, however large the ledger is.
    with await asyncio.to_thread(_open_ledger, place.directory, options, me) as ledger:
        async with contextlib.AsyncExitStack() as stack:
            leadership = None
            if is_url(options.ledger or ""):
                leadership = Leadership(ledger.database, me, place.times)
                watch = asyncio.create_task(leadership.run(), name="leadership")
                stack.push_async_callback(_cancel, watch)
                logger.info("this server leads", epoch=leadership.epoch)
            timers = options.timers.scaled(options.timers_scale)
            await _wait_after_restore(ledger, timers, place.stop)
            quotas = {user: Quota(milli=milli) for user, milli in options.quotas.items()}
            pool = await asyncio.to_thread(
                PoolShell, ledger, Clock.start(), timers, quotas,
                policy=options.policy, consolidate=options.consolidate,
            )  # fmt: skip
            await _serve_pool(place, pool, leadership)


async def _serve_pool(place: _Place, pool: PoolShell, leadership: Leadership | None) -> None:
    options, directory = place.options, place.directory
    admit = None if leadership is None else leadership.admit
    servers = tuple if leadership is None else lambda: leadership.servers
    auth = AuthInterceptor(pool.ledger, _hub(options.hub), show_users=options.show_users, first=admit)
    server = grpc.aio.server(interceptors=[auth], options=_GRPC_OPTIONS)
    pool_pb2_grpc.add_PoolServicer_to_server(PoolService(pool, servers), server)
    pool_pb2_grpc.add_ServersServicer_to_server(ServersService(leadership), server)
    growing = _grower(options, pool, directory, place.socket)
    pool_pb2_grpc.add_GrowthServicer_to_server(GrowthService(growing), server)
    nodes = NodesService(pool) if growing is None else NodesService(pool, growing.lends)
    pool_pb2_grpc.add_NodesServicer_to_server(nodes, server)
    pool_pb2_grpc.add_ReportsServicer_to_server(ReportsService(pool), server)
    history = HistorySampler(pool)
    pool_pb2_grpc.add_HistoryServicer_to_server(HistoryService(pool, history), server)
    pool_pb2_grpc.add_AdministrationServicer_to_server(AdministrationService(pool), server)
    pool_pb2_grpc.add_ExplanationsServicer_to_server(ExplanationsService(pool), server)
    pool_pb2_grpc.add_ProjectsServicer_to_server(ProjectsService(pool), server)
    pool_pb2_grpc.add_IdentitiesServicer_to_server(IdentitiesService(pool.ledger), server)
    pool_pb2_grpc.add_MaintenanceServicer_to_server(MaintenanceService(pool), server)
    # The standard protocol, for probes: the process lives, and the pool is served here, not by another server.
    health = health_aio.HealthServicer()
    await health.set(POOL_SERVICE, health_pb2.HealthCheckResponse.SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(health, server)
    port = place.bind(server)
    socket = place.socket
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(socket.unlink, missing_ok=True)
        metrics_port = 0
        if options.metrics_listen:
            from gpupool.pool.reporting.metrics import serve_metrics

            metrics_port = stack.enter_context(serve_metrics(pool, options.metrics_listen))
        if leadership is not None:
            leadership.serving = True
        await server.start()
        stack.push_async_callback(_stop_server, server, pool)
        timers = asyncio.create_task(pool.run_timers(), name="pool timers")
        stack.push_async_callback(_cancel, timers)
        pool.alerts.percent = options.alert_percent
        stack.push_async_callback(_cancel, asyncio.create_task(alert_watch.watch(pool), name="quotas"))
        stack.push_async_callback(_cancel, asyncio.create_task(history.run(), name="history"))
        if growing is not None:
            stack.push_async_callback(_cancel, asyncio.create_task(growing.run(), name="providers"))
        logger.info("serving", socket=str(socket), port=port, metrics_port=metrics_port)
        if place.ready is not None:
            place.ready(Serving(socket, port, metrics_port, pool))
        await _until_stopped(place.stop, leadership)
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
            await _cancel(event)
    if not stop.is_set():
        raise DeposedError(f"this pool server does not lead any more: {leadership.why}")


@contextlib.contextmanager
def _told_to_stop(stop: asyncio.Event | None) -> Iterator[asyncio.Event]:
    """`stop`, or an event that SIGTERM and SIGINT set."""
    if stop is not None:
        yield stop
        return
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    signals = (signal.SIGTERM, signal.SIGINT)
    for number in signals:
        loop.add_signal_handler(number, told.set)
    try:
        yield told
    finally:
        for number in signals:
            loop.remove_signal_handler(number)


async def _stop_server(server: grpc.aio.Server, pool: PoolShell) -> None:
    pool.close()
    await server.stop(_GRACE_SECONDS)


async def _cancel(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


@contextlib.contextmanager
def only_server(directory: Path) -> Iterator[None]:
    """The lock of a home: two servers on one ledger would grant every share twice.

    Raises:
        ServeError: another process has it.
    """
    path = directory / "pool.lock"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ServeError(f"another pool server uses {directory}; stop it, or name another home") from None
        yield
    finally:
        os.close(descriptor)


def _open_ledger(directory: Path, options: ServeOptions, me: ServerIdentity) -> Ledger:
    where = options.ledger or directory / LEDGER_NAME
    return Ledger(where, Clock.start(), journal_kept=options.journal_kept, leader=me)


async def _wait_after_restore(ledger: Ledger, timers: Timers, stop: asyncio.Event) -> None:
    """Before anybody is heard: workers may serve leases that the restored ledger has never heard of."""
    if restore.waits(ledger):
        logger.info("the ledger was restored; waiting until workers of before have ended their leases",
                    seconds=timers.reuse)  # fmt: skip
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timers.reuse):
                await stop.wait()
            return
        restore.waited(ledger)


def _grower(options: ServeOptions, pool: PoolShell, home: Path, socket: Path) -> Grower | None:
    if options.providers is None:
        return None
    try:
        return grower(pool, settings.read(options.providers), home.absolute(), socket, options.timers_scale)
    except (ValueError, SQLAlchemyError) as error:
        raise ServeError(str(error)) from None


def _hub(options: HubOptions | None) -> Hub | None:
    try:
        return None if options is None else Hub(options)
    except HubUrlUnusableError as error:
        raise ServeError(str(error)) from None

"""The pool server: options, sockets, start and clean end."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import grpc.aio
import structlog
from grpc_health.v1 import health_pb2_grpc
from grpc_health.v1.health import aio as health_aio
from sqlalchemy.exc import SQLAlchemyError

from gpupool.client.endpoint import private_directory, private_home
from gpupool.client.errors import DirectoryUnusableError
from gpupool.ledger.ledger import Ledger, LedgerError
from gpupool.model.clock import Clock
from gpupool.pool.access.auth import AuthInterceptor
from gpupool.pool.access.hub import Hub, HubOptions, HubUrlUnusableError
from gpupool.pool.access.listening import ServeError, host_and_port
from gpupool.pool.access.tls_files import TlsFiles, TlsFilesUnusableError
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
#: sun_path has 108 bytes with its final zero.
_MAX_SOCKET_PATH = 107
_GRACE_SECONDS = 2.0
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


async def serve(
    options: ServeOptions,
    *,
    ready: Callable[[Serving], None] | None = None,
    stop: asyncio.Event | None = None,
) -> None:
    """Serves until SIGTERM, SIGINT or `stop`; then ends streams cleanly. Leases live on in the ledger.

    Args:
        options: where and with what.
        ready: called once when calls are served.
        stop: when given, signals are left to the caller.

    Raises:
        ServeError: another server uses a directory or others may enter it, or a socket or the ledger
            cannot be opened.
    """
    if not 0 < options.timers_scale <= 1000:
        raise ServeError(f"timers scale {options.timers_scale} is not above 0")
    if options.policy not in POLICIES:
        raise ServeError(f"{options.policy[:40]!r} is not a placement policy: {', '.join(POLICIES)}")
    if options.hub is not None and options.listen and options.tls is None:
        raise ServeError(
            "users of a JupyterHub would send their tokens to an unencrypted port; "
            "give it a certificate with --tls-certificate and --tls-key"
        )
    with _said():
        directory = private_directory(options.home) if options.home else private_home()
    with only_server(directory), _open_ledger(directory, options) as ledger:
        clock = Clock.start()
        await _wait_after_restore(ledger, options.timers.scaled(options.timers_scale))
        quotas = {user: Quota(milli=milli) for user, milli in options.quotas.items()}
        timers = options.timers.scaled(options.timers_scale)
        pool = PoolShell(
            ledger, clock, timers, quotas, policy=options.policy, consolidate=options.consolidate
        )
        await _serve_pool(options, directory, pool, ready, stop)


async def _serve_pool(
    options: ServeOptions,
    directory: Path,
    pool: PoolShell,
    ready: Callable[[Serving], None] | None,
    stop: asyncio.Event | None,
) -> None:
    auth = AuthInterceptor(pool.ledger, _hub(options.hub), show_users=options.show_users)
    server = grpc.aio.server(interceptors=[auth], options=_GRPC_OPTIONS)
    pool_pb2_grpc.add_PoolServicer_to_server(PoolService(pool), server)
    growing = _grower(options, pool, directory, (options.socket or directory / SOCKET_NAME).absolute())
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
    # The standard protocol, for probes of service managers: serving from start to stop.
    health_pb2_grpc.add_HealthServicer_to_server(health_aio.HealthServicer(), server)
    socket = _bind_socket(server, options.socket or directory / SOCKET_NAME)
    port = _bind_tcp(server, options.listen, options.tls) if options.listen else 0
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(socket.unlink, missing_ok=True)
        metrics_port = 0
        if options.metrics_listen:
            from gpupool.pool.reporting.metrics import serve_metrics

            metrics_port = stack.enter_context(serve_metrics(pool, options.metrics_listen))
        await server.start()
        stack.push_async_callback(_stop_server, server, pool)
        timers = asyncio.create_task(pool.run_timers(), name="pool timers")
        stack.push_async_callback(_cancel, timers)
        pool.alerts.percent = options.alert_percent
        stack.push_async_callback(_cancel, asyncio.create_task(alert_watch.watch(pool), name="quotas"))
        stack.push_async_callback(_cancel, asyncio.create_task(history.run(), name="history"))
        if growing is not None:
            stack.push_async_callback(_cancel, asyncio.create_task(growing.run(), name="providers"))
        if stop is None:
            stop = asyncio.Event()
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, stop.set)
                stack.callback(loop.remove_signal_handler, number)
        logger.info("serving", socket=str(socket), port=port, metrics_port=metrics_port)
        if ready is not None:
            ready(Serving(socket, port, metrics_port, pool))
        await stop.wait()
        logger.info("stopping; leases stay in the ledger")


async def _stop_server(server: grpc.aio.Server, pool: PoolShell) -> None:
    pool.close()
    await server.stop(_GRACE_SECONDS)


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


@contextlib.contextmanager
def _said() -> Iterator[None]:
    try:
        yield
    except DirectoryUnusableError as error:
        raise ServeError(str(error)) from error


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


def _open_ledger(directory: Path, options: ServeOptions) -> Ledger:
    where = options.ledger or directory / LEDGER_NAME
    try:
        return Ledger(where, Clock.start(), journal_kept=options.journal_kept, exclusive=True)
    except LedgerError as error:
        raise ServeError(str(error)) from error


async def _wait_after_restore(ledger: Ledger, timers: Timers) -> None:
    """Before anybody is heard: workers may serve leases that the restored ledger has never heard of."""
    if restore.waits(ledger):
        logger.info("the ledger was restored; waiting until workers of before have ended their leases",
                    seconds=timers.reuse)  # fmt: skip
        await asyncio.sleep(timers.reuse)
        restore.waited(ledger)


def _bind_socket(server: grpc.aio.Server, path: Path) -> Path:
    path = path.absolute()
    if len(os.fsencode(path)) > _MAX_SOCKET_PATH:
        raise ServeError(
            f"the socket path {path} is longer than {_MAX_SOCKET_PATH} bytes, which Unix sockets cannot have; "
            "set GPUPOOL_HOME to a shorter directory"
        )
    with _said():
        private_directory(path.parent)
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise ServeError(f"{path} exists and is not a socket; move it away")
        # The lock is ours, so this is what a server that was killed has left.
        path.unlink()
    before = os.umask(0o077)
    try:
        server.add_insecure_port(f"unix:{path}")
    except RuntimeError as error:
        raise ServeError(f"the socket {path} cannot be bound: {error}") from error
    finally:
        os.umask(before)
    return path


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


def _bind_tcp(server: grpc.aio.Server, listen: str, tls: TlsFiles | None) -> int:
    host_and_port(listen)
    try:
        credentials = None if tls is None else tls.credentials()
    except TlsFilesUnusableError as error:
        raise ServeError(str(error)) from None
    try:
        bound = (
            server.add_secure_port(listen, credentials) if credentials else server.add_insecure_port(listen)
        )
    except RuntimeError as error:
        raise ServeError(f"{listen} cannot be bound: {error}") from error
    if bound == 0:
        raise ServeError(f"{listen} cannot be bound")
    return bound

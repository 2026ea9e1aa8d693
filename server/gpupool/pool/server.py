"""The pool server: start, its times as leader and as standby, clean end."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import resource
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import structlog

from gpupool.client.endpoint import private_directory, private_home
from gpupool.ledger.database import is_url
from gpupool.ledger.ledger import Ledger, LedgerError, LedgerTakenError, LedgerVersionError
from gpupool.ledger.servers import ServerIdentity
from gpupool.model.clock import Clock
from gpupool.pool.access.listening import ServeError, directory_errors
from gpupool.pool.ending import cancel
from gpupool.pool.growing.start import check_usable
from gpupool.pool.leading.leadership import Leadership
from gpupool.pool.leading.standby import Standby, standby_server
from gpupool.pool.lifecycle import restore
from gpupool.pool.lifecycle.shell import PoolShell
from gpupool.pool.model.timers import Timers
from gpupool.pool.options import LEDGER_NAME, ServeOptions, Serving
from gpupool.pool.place import GRPC_OPTIONS, Place
from gpupool.pool.serving import DeposedError, hub_of, serve_pool
from gpupool.providers import settings
from gpupool.providers.kinds import SettingsError
from gpupool.scheduler.model import Quota
from gpupool.scheduler.placement import POLICIES

logger = structlog.get_logger(__name__)

#: For refusals under way when a standby begins to lead, seconds.
_FAREWELL_SECONDS = 0.1
#: Between two tries of a standby to open a ledger that it could not open, seconds.
_AGAIN_SECONDS = 1.0


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
    _allow_many_connections()
    with directory_errors():
        directory = private_directory(options.home) if options.home else private_home()
    with only_server(directory), _told_to_stop(stop) as stopping:
        place = Place(options, directory, stopping, ready)
        if not options.standby:
            try:
                await _lead(place)
            except LedgerError as error:
                raise ServeError(str(error)) from error
            return
        try:
            await _take_turns(place)
        finally:
            await place.vacate()


async def _take_turns(place: Place) -> None:
    """Stands by, leads, stands by again, until it is told to stop."""
    while await _stand_by(place):
        try:
            await _lead(place)
            return
        except (DeposedError, LedgerTakenError) as error:
            logger.warning("waiting again", why=str(error))
        except LedgerVersionError as error:
            raise ServeError(str(error)) from error
        except (LedgerError, ServeError) as error:
            logger.error("this standby cannot take over", problem=str(error))
            await asyncio.sleep(_AGAIN_SECONDS)


def _check(options: ServeOptions) -> None:
    if not 0 < options.timers_scale <= 1000:
        raise ServeError(f"timers scale {options.timers_scale} is not above 0")
    if options.policy not in POLICIES:
        raise ServeError(f"{options.policy[:40]!r} is not a placement policy: {', '.join(POLICIES)}")
    if options.tls_self_signed and (options.tls is not None or not options.listen):
        raise ServeError(
            "--tls-self-signed makes a certificate for the TCP port, so it needs --listen HOST:PORT and no --tls-certificate"
        )
    encrypted = options.tls is not None or options.tls_self_signed
    if options.hub is not None and options.listen and not encrypted:
        raise ServeError(
            "users of a JupyterHub would send their tokens to an unencrypted port; "
            "give it a certificate with --tls-certificate and --tls-key"
        )
    hub_of(options.hub)
    if options.providers is not None:
        try:
            settings.read(options.providers)
        except SettingsError as error:
            raise ServeError(str(error)) from None
    if options.standby and not is_url(options.ledger or ""):
        raise ServeError(
            f"--standby needs a ledger in PostgreSQL, which several servers can reach, and the ledger is "
            f"{options.ledger or 'a file'}; give its address with --ledger postgresql+psycopg://user@host/database"
        )


def _allow_many_connections() -> None:
    """Agents, holders and programs that wait have a connection each; systems allow 1024 files at first."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):  # then as many as there may be
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def _stand_by(place: Place) -> bool:
    """Waits until this server may take over; False: it is to stop."""
    assert place.options.ledger is not None
    try:
        standby = Standby(place.options.ledger, place.identity(), place.times, lambda: _fault(place))
    except ValueError as error:
        raise ServeError(str(error)) from None
    server = await standby_server(standby, GRPC_OPTIONS)
    await place.bind(server)

    async def leave() -> None:
        await server.stop(_FAREWELL_SECONDS)
        place.socket.unlink(missing_ok=True)
        await asyncio.to_thread(standby.close)

    place.leave = leave
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
        await cancel(waiting)
        await cancel(stopped)


def _fault(place: Place) -> str:
    """What is wrong with the file of providers; empty: nothing, or there is none."""
    options = place.options
    if options.providers is None:
        return ""
    try:
        notice = options.timers.scaled(options.timers_scale).notice
        check_usable(settings.read(options.providers), place.directory, place.reached_at, notice)
    except SettingsError as error:
        return str(error)
    return ""


async def _lead(place: Place) -> None:
    """Leads until it is told to stop.

    Raises:
        DeposedError: another server may lead now.
        LedgerError: the ledger cannot be opened or read.
    """
    options = place.options
    me = place.identity()
    # In threads: the lead is confirmed meanwhile, however large the ledger is.
    with await asyncio.to_thread(_open_ledger, place.directory, options, me) as ledger:
        async with contextlib.AsyncExitStack() as stack:
            leadership = None
            if is_url(options.ledger or ""):
                leadership = Leadership(ledger.database, me, place.times, alone=not options.standby)
                watch = asyncio.create_task(leadership.run(), name="leadership")
                stack.push_async_callback(cancel, watch)
                logger.info("this server leads", epoch=leadership.epoch)
            timers = options.timers.scaled(options.timers_scale)
            with ledger.reading():
                await _wait_after_restore(ledger, timers, place.stop)
                quotas = {user: Quota(milli=milli) for user, milli in options.quotas.items()}
                pool = await asyncio.to_thread(
                    PoolShell, ledger, Clock.start(), timers, quotas,
                    policy=options.policy, consolidate=options.consolidate,
                )  # fmt: skip
            await serve_pool(place, pool, leadership)


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

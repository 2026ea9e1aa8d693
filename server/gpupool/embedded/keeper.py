"""The process that starts a pool and a node, and ends them when nobody holds a lifeline any more.

The operating system closes the lifelines of a process that is killed: nobody has to look whether it lives, and no process
id is compared.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeVar

from gpupool.client.endpoint import HOME_VARIABLE, LEDGER_VARIABLE, home, private_directory
from gpupool.client.errors import GpupoolError
from gpupool.client.growth import GrowthClient
from gpupool.client.pool import PoolClient
from gpupool.embedded import messages, paths
from gpupool.embedded.messages import Gpu, Told
from gpupool.embedded.options import EmbeddedOptions
from gpupool.embedded.service import Service

POOL: Final = "the pool"
NODE: Final = "the node"
#: A service has so long to answer, seconds.
_START_SECONDS: Final = 90.0
_STOP_SECONDS: Final = 15.0
#: A service that dies sooner after its start is started again only when this time is over.
_PAUSE_SECONDS: Final = 1.0
_LOOK_SECONDS: Final = 0.1

_Answer = TypeVar("_Answer")


class FailedError(Exception):
    """A service cannot be started; ``str()`` says why."""


class Keeper:
    """The pool, its node, and who uses them.

    Args:
        directory: home of the pool.
        options: what it is made of.
        lock: descriptor of the keeper's lock. Children hold it too: until they have ended nobody starts another pool,
            also when this process was killed.
    """

    def __init__(self, directory: Path, options: EmbeddedOptions, lock: int) -> None:
        self._home = directory
        self._options = options
        self._endpoint = f"unix:{paths.pool_socket(directory)}"
        self._lifelines: set[asyncio.StreamWriter] = set()
        self._leaving: set[asyncio.StreamWriter] = set()
        self._told = Told(messages.STARTING, POOL)
        #: Why the last question had no answer yet.
        self._lacking = ""
        self._ending = asyncio.Event()
        self._lock = lock
        own = {HOME_VARIABLE: str(directory), LEDGER_VARIABLE: ""}
        environment = {**os.environ, **own, "PYTHONUNBUFFERED": "1"}
        gpupool = [sys.executable, "-P", "-m", "gpupool.cli.main"]
        logs = paths.logs(directory)
        self._pool = Service(
            POOL, [*gpupool, "pool", "serve", *options.pool_words()], environment, logs / "pool.log", lock
        )
        node = [*gpupool, "node", "start", "--pool", self._endpoint, *options.node_words()]
        self._node = None if options.providers else Service(NODE, node, environment, logs / "node.log", lock)
        self._services = [service for service in (self._pool, self._node) if service is not None]

    async def run(self, first: socket.socket) -> None:
        """Until the last lifeline is gone or a signal comes. ``first``: the lifeline of who started this process."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._ending.set)
        path = paths.lifeline_socket(self._home)
        # The lock is ours, so this is what a keeper that was killed has left.
        path.unlink(missing_ok=True)
        before = os.umask(0o077)
        try:
            door = await asyncio.start_unix_server(self._hold, path=path)
        finally:
            os.umask(before)
        reader, writer = await asyncio.open_connection(sock=first)
        holding = asyncio.ensure_future(self._hold(reader, writer))
        serving = asyncio.ensure_future(self._serve())
        ending = asyncio.ensure_future(self._ending.wait())
        living = asyncio.ensure_future(self._show_life())
        await asyncio.wait((serving, ending), return_when=asyncio.FIRST_COMPLETED)
        door.close()
        path.unlink(missing_ok=True)
        await self._stop(serving)
        for task in (holding, ending, living):
            task.cancel()
        await asyncio.gather(holding, ending, living, return_exceptions=True)
        os.ftruncate(self._lock, 0)

    async def _show_life(self) -> None:
        """Not every file system shows other machines that a lock is held."""
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, socket.gethostname().encode(), 0)
        while True:
            await asyncio.sleep(paths.SIGN_OF_LIFE_SECONDS)
            os.utime(self._lock)

    async def _stop(self, serving: asyncio.Future[None]) -> None:
        failure = ""
        if serving.done() and (error := serving.exception()) is not None:
            failure = str(error)
        serving.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await serving
        # The node first: the pool hears of its sessions' ends.
        for service in reversed(self._services):
            await service.stop(_STOP_SECONDS)
        await self._tell(Told(messages.FAILED, failure) if failure else Told(messages.ENDED))
        for writer in self._lifelines:
            writer.close()

    # --- who uses it ------------------------------------------------------------------------

    async def _hold(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._lifelines.add(writer)
        writer.write(self._told.line())
        with contextlib.suppress(OSError, ValueError):
            while line := await reader.readline():
                if line != messages.LEAVE:
                    continue
                self._leaving.add(writer)
                others = len(self._lifelines - self._leaving)
                if others == 0:
                    break
                writer.write(Told(messages.STAYS, users=others).line())
        if writer in self._leaving and not self._lifelines - self._leaving:
            # It waits to hear that everything has ended.
            self._ending.set()
            return
        self._lifelines.discard(writer)
        self._leaving.discard(writer)
        writer.close()
        if not self._lifelines - self._leaving:
            self._ending.set()

    async def _tell(self, told: Told) -> None:
        for writer in list(self._lifelines):
            writer.write(told.line())
            with contextlib.suppress(OSError, TimeoutError):
                await asyncio.wait_for(writer.drain(), 1.0)

    # --- what it runs -----------------------------------------------------------------------

    async def _serve(self) -> None:
        # Side by side: the node looks for its devices meanwhile, and asks for the pool until it is there.
        for service in self._services:
            await service.start()
        await self._answering(self._pool, self._pool_is_there)
        if self._node is None:
            names = await self._answering(self._pool, self._providers)
            self._told = Told(messages.READY, endpoint=self._endpoint, providers=names, pids=self._pids())
        else:
            self._told = Told(messages.STARTING, NODE)
            await self._tell(self._told)
            gpus = await self._answering(self._node, self._lent)
            self._told = Told(messages.READY, endpoint=self._endpoint, gpus=gpus, pids=self._pids())
        await self._tell(self._told)
        await asyncio.gather(*map(self._keep, self._services))

    def _pids(self) -> dict[str, int]:
        return {service.name: service.pid for service in self._services}

    async def _keep(self, service: Service) -> None:
        """Starts it again as often as it dies, as a service manager would do it."""
        while True:
            status = await service.ended()
            how = f"{service.name} ended with status {status} (log: {service.log})"
            if not self._options.restarts:
                await self._tell(
                    replace(self._told, state=messages.DIED, text=f"{how}; it is not started again.")
                )
                return
            # At once, for its workers wait for it; not in a tight loop where it cannot live.
            await asyncio.sleep(max(0.0, _PAUSE_SECONDS - service.age()))
            await service.start()
            self._told = replace(self._told, pids=self._pids())
            text = f"{how}; it was started again."
            await self._tell(replace(self._told, state=messages.RESTARTED, text=text))

    async def _answering(self, service: Service, answers: Callable[[], Awaitable[_Answer]]) -> _Answer:
        """What a service that was started answers. Raises FailedError: it ended, or took too long."""
        ended = asyncio.ensure_future(service.ended())
        asking = asyncio.ensure_future(self._ask(answers))
        try:
            await asyncio.wait((ended, asking), timeout=_START_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if asking.done():
                return asking.result()
            late = f"did not answer within {_START_SECONDS:g} s ({self._lacking})"
            how = "ended while starting" if ended.done() else late
            raise FailedError(f"{service.name} {how}. The end of {service.log}:\n{service.log_end()}")
        finally:
            ended.cancel()
            asking.cancel()

    async def _ask(self, answers: Callable[[], Awaitable[_Answer]]) -> _Answer:
        while True:
            try:
                return await answers()
            except GpupoolError as error:
                self._lacking = str(error)
                await asyncio.sleep(_LOOK_SECONDS)

    async def _lent(self) -> tuple[Gpu, ...]:
        """The devices. Raises GpupoolError while there are none."""
        async with PoolClient(self._endpoint, hub_identity=False) as pool:
            devices = await pool.devices()
        lent = tuple(
            Gpu(device.name, device.software, device.total_mib) for device in devices if device.healthy
        )
        if not lent:
            raise GpupoolError("no device yet")
        return lent

    async def _providers(self) -> tuple[str, ...]:
        """The engines that lend nodes. Raises GpupoolError: the pool does not answer yet."""
        async with PoolClient(self._endpoint, hub_identity=False) as pool:
            return tuple([provider.name for provider in await GrowthClient(pool).providers()])

    async def _pool_is_there(self) -> None:
        if not paths.pool_socket(self._home).exists():
            raise GpupoolError("not yet")


async def keep(descriptor: int, options: EmbeddedOptions) -> None:
    """A keeper in this process; ``descriptor``: the lifeline of who started it."""
    os.set_inheritable(descriptor, False)
    directory = private_directory(home())
    paths.logs(directory).mkdir(mode=0o700, exist_ok=True)
    lock = os.open(paths.keeper_lock(directory), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    await _take(lock)
    await Keeper(directory, options, lock).run(socket.socket(fileno=descriptor))


async def _take(lock: int) -> None:
    """Nobody else has it, or starts a keeper meanwhile; somebody may just look whether it is held."""
    async with asyncio.timeout(_START_SECONDS):
        while True:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            await asyncio.sleep(_LOOK_SECONDS)

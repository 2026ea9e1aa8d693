"""Workers are child processes of the node agent, and outlive it.

The engine knows processes, not policy: it starts a worker where it is told, finds it again after a restart, stops it,
and tells when it ended. It never decides who gets a device, never speaks the worker's protocol, and never frees a
share: what it says is the truth about the *process*, the pool draws the conclusions.

The life of one worker, and the calls that are allowed in it::

    reserve ──> Placement ──start──> running ──stop──> ended ──forget──> (unknown)
                                        │                 ▲
                                        └── dies itself ──┘   WorkerExited in watch()

Three rules make a crash of the agent at any instruction harmless:

* the state file is synced to disk *before* the step it announces;
* the start record is written only after the pid is on disk, and a worker whose standard
  input ends before the record is complete exits: a worker that nobody knows cannot live,
  one that was started ahead neither;
* a process is signalled only through a pidfd whose start time matched what was stored.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import structlog

from gpupool.client.endpoint import private_directory
from gpupool.client.errors import DirectoryUnusableError
from gpupool.engines import mps, mps_clients
from gpupool.engines.image_caches import ImageCaches
from gpupool.engines.process import boot_id, describe_exit, open_pidfd, reap, send_signal, start_ticks
from gpupool.engines.records import (
    DeviceGrant,
    DeviceInventory,
    EngineError,
    NotReadyError,
    Placement,
    StaleEpochError,
    StartedWorker,
    WorkerExited,
    WorkerSpec,
)
from gpupool.engines.state_file import StateFileError, StoredWorker
from gpupool.engines.turn_books import TurnBooks
from gpupool.engines.warm_workers import FOLDER as WARM_FOLDER
from gpupool.engines.warm_workers import WarmWorkers
from gpupool.engines.worker_start import READY_SECONDS, WorkerProgram, start_record

#: Between the request to terminate and force.
TERMINATE_SECONDS: Final = 3.0
logger = structlog.get_logger(__name__)

Inventory = Callable[[], Awaitable[tuple[DeviceInventory, ...]]]


@dataclass(slots=True)
class _Worker:
    """A process that runs, or ended and was not forgotten yet."""

    stored: StoredWorker
    directory: Path
    pidfd: int | None
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    process: subprocess.Popen[bytes] | None = None


class LocalEngine:
    """Starts workers on this machine.

    Args:
        run_directory: ``$GPUPOOL_HOME/run/<node>/workers``; one folder per session in it.
        worker_command: the worker's program and leading arguments.
        driver: path of the CUDA driver that workers open.
        inventory: asks that driver for its devices.
        environment: settings of the driver, added to the agent's environment.
        listen_host: address that workers listen on.
        listen_ports: one of which each of them listens on: ``first-last``; ``0``: the system picks.
        advertise_host: address that clients are told.
        tls: ``on``, ``off``, or ``auto``: encrypt unless workers listen on loopback.
        image_caches: where workers keep module images for later sessions of the same user.
        context_reserve_mib: of each share, for what the driver takes for a context itself.
        turn_books: where workers of one device keep whose turn it is; None: device time is not enforced.
        warm_workers: how many workers are kept that have initialised the driver ahead.
        mps_daemon: whose clients workers are, as ``environment`` tells them; None: of none.
        most_mps_clients: how many of them one device can have at once.
    """

    def __init__(
        self,
        *,
        run_directory: Path,
        worker_command: Sequence[str],
        driver: str,
        inventory: Inventory,
        environment: Mapping[str, str] | None = None,
        listen_host: str = "127.0.0.1",
        listen_ports: str = "0",
        advertise_host: str = "127.0.0.1",
        tls: str = "auto",
        ready_seconds: float = READY_SECONDS,
        image_caches: ImageCaches | None = None,
        context_reserve_mib: int = 0,
        turn_books: TurnBooks | None = None,
        warm_workers: int = 0,
        mps_daemon: mps.MpsDaemon | None = None,
        most_mps_clients: int = mps_clients.MOST_CLIENTS,
    ) -> None:
        self._run_directory = private_directory(run_directory)
        self._program = WorkerProgram(
            command=tuple(worker_command),
            driver=driver,
            environment=dict(environment or {}),
            listen=f"{listen_host}:{listen_ports}",
            advertise_host=advertise_host,
            tls=tls,
            ready_seconds=ready_seconds,
        )
        self._ask_inventory = inventory
        self._image_caches = image_caches
        self._context_reserve_mib = context_reserve_mib
        self._turn_books = turn_books
        self._mps_daemon = mps_daemon
        self._most_mps_clients = most_mps_clients
        self._warm = WarmWorkers(
            self._run_directory, lambda directory: self._program.fork(directory, warm=True), warm_workers
        )
        self._boot_id = boot_id()
        self._workers: dict[str, _Worker] = {}
        self._closed = False
        self._events: asyncio.Queue[WorkerExited] = asyncio.Queue()
        self._devices: dict[int, DeviceInventory] = {}

    async def inventory(self) -> tuple[DeviceInventory, ...]:
        """The devices that workers of this engine can use.

        May be called at any time; takes up to some seconds, changes nothing. Raises
        EngineError when the driver cannot be asked.
        """
        devices = await self._ask_inventory()
        self._devices = {device.ordinal: device for device in devices}
        if self._turn_books is not None:
            with contextlib.suppress(DirectoryUnusableError, OSError):  # said at the start of a worker
                self._turn_books.make(device.uuid for device in devices)
        return devices

    async def watch(self) -> AsyncIterator[WorkerExited]:
        """News, in the order in which they happened, for ever.

        To be iterated by exactly one task. Every worker returned by :meth:`start` or
        :meth:`list_owned` is followed by exactly one WorkerExited, whoever ended it, also
        when it ended while nobody iterated.
        """
        while True:
            yield await self._events.get()

    async def reserve(self, devices: tuple[DeviceGrant, ...]) -> Placement:
        """The devices with the driver's own ids, for a worker that is started now; holds nothing.

        Raises:
            EngineError: no worker can be started on them now.
        """
        if not self._devices:
            await self.inventory()
        for grant in devices:
            device = self._devices.get(grant.ordinal)
            if device is None:
                raise EngineError(f"this node has no device {grant.ordinal}")
            if grant.mib > device.total_mib:
                raise EngineError(f"device {grant.ordinal} has {device.total_mib} MiB, not {grant.mib} MiB")
            if not device.healthy:
                raise EngineError(f"device {grant.ordinal} is not healthy: {device.health_reason}")
        # The driver's own id is what the worker checks; the pool names devices by ordinal.
        return Placement(tuple(replace(grant, uuid=self._devices[grant.ordinal].uuid) for grant in devices))

    async def start(self, placement: Placement, spec: WorkerSpec) -> StartedWorker:
        """Starts a worker and returns when it answers.

        May be called once per session and epoch, after :meth:`reserve` gave ``placement``.
        When it raises, no process of that start is left. If the caller is killed meanwhile,
        either no process is left or :meth:`list_owned` will find it.

        Raises:
            StaleEpochError: the session has a worker, or had one with this epoch or a later one.
            EngineError: the worker did not come up; the sentence says what it said.
        """
        known = self._workers.get(spec.session)
        if known is not None and known.ended.is_set() and known.stored.epoch < spec.epoch:
            # The session has been elsewhere since; that this one ended is known to who starts it again.
            del self._workers[spec.session]
            shutil.rmtree(known.directory, ignore_errors=True)
        elif known is not None:
            raise StaleEpochError(
                f"session {spec.session} has a worker already ({known.stored.phase}, "
                f"epoch {known.stored.epoch}; asked for epoch {spec.epoch})"
            )
        self._check_room_in_mps(placement)
        warm = None
        if not self._partitioned(spec):  # what the driver is told of that, it reads when it is initialised
            warm = self._warm.take(self._run_directory / spec.session)
        try:
            return await self._start(placement, spec, warm)
        finally:
            self._warm.refill()

    async def _start(
        self, placement: Placement, spec: WorkerSpec, warm: subprocess.Popen[bytes] | None
    ) -> StartedWorker:
        """``warm``: a worker that waits in the session's folder already."""
        directory = private_directory(self._run_directory / spec.session)
        stored = StoredWorker(
            session=spec.session,
            epoch=spec.epoch,
            phase="starting",
            devices=placement.devices,
            boot_id=self._boot_id,
        )
        worker = _Worker(stored, directory, None, process=warm)
        self._workers[spec.session] = worker
        try:
            stored.write(directory)
            await self._spawn(worker, spec, placement.devices)
        except EngineError as error:
            await self._discard(worker)
            # One that was not ready in time has taken all the time that there is.
            if warm is None or self._closed or isinstance(error, NotReadyError):
                raise
            # The driver may have changed since the worker opened it.
            logger.warning("a warm worker was of no use", reason=str(error))
            return await self._start(placement, spec, None)
        except BaseException:
            await self._discard(worker)
            raise
        return self._started(worker)

    def _check_room_in_mps(self, placement: Placement) -> None:
        """Raises EngineError where the driver would refuse another client, with a number that says nothing to its user."""
        if self._mps_daemon is None:
            return
        sessions = Counter(
            device.ordinal
            for worker in self._workers.values()
            if not worker.ended.is_set()
            for device in worker.stored.devices
        )
        for device in placement.devices:
            if (there := sessions[device.ordinal]) >= self._most_mps_clients:
                raise EngineError(
                    f"device {device.ordinal} has {there} sessions, and MPS serves no more than "
                    f"{self._most_mps_clients}"
                )

    def _partitioned(self, spec: WorkerSpec) -> bool:
        """Whether MPS keeps the session to its share, and not turns."""
        return spec.strict and self._mps_daemon is not None

    async def _spawn(self, worker: _Worker, spec: WorkerSpec, devices: tuple[DeviceGrant, ...]) -> None:
        loop = asyncio.get_running_loop()
        files = b""
        if self._image_caches is not None:
            files = await asyncio.to_thread(self._image_caches.start_record, spec.user)
        partitioned = self._partitioned(spec)
        if self._turn_books is not None and not partitioned:
            files += self._turn_books.start_record(devices)
        if self._mps_daemon is not None:
            files += mps.start_record(strict=spec.strict)
        more = mps.partition(min(device.milli for device in devices)) if partitioned else None
        process = worker.process or self._program.fork(worker.directory, more=more)
        worker.process = process
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            ticks = start_ticks(process.pid)
            worker.stored = replace(worker.stored, pid=process.pid, start_ticks=ticks or 0)
            worker.stored.write(worker.directory)
            worker.pidfd = os.pidfd_open(process.pid)
            loop.add_reader(worker.pidfd, self._on_exit, worker)
            with contextlib.suppress(BrokenPipeError):
                # One small write: a pipe takes it without blocking.
                record = start_record(spec, devices, context_reserve_mib=self._context_reserve_mib)
                os.write(process.stdin.fileno(), record + files + b"\n")
            process.stdin.close()
            line = await self._program.ready_line(process, resumes=spec.resumes)
        finally:
            process.stdin.close()
            process.stdout.close()
        address = None if worker.ended.is_set() else self._program.address(worker.directory, line)
        if address is None:
            said = line.decode(errors="replace").strip().removeprefix("error ")
            raise EngineError(
                f"The worker did not start: {said or self._last_log_line(worker) or 'no word'}."
            )
        worker.stored = replace(worker.stored, phase="running", address=address)
        worker.stored.write(worker.directory)

    async def _discard(self, worker: _Worker) -> None:
        """After a failed start: nothing of it remains."""
        if self._closed:
            # What is stored leads the next engine to a process that has not ended yet.
            return
        if worker.pidfd is not None:
            send_signal(worker.pidfd, signal.SIGKILL)
            await worker.ended.wait()
        elif worker.process is not None:
            worker.process.kill()
            await asyncio.to_thread(worker.process.wait)
        self._workers.pop(worker.stored.session, None)
        shutil.rmtree(worker.directory, ignore_errors=True)

    def _on_exit(self, worker: _Worker) -> None:
        """The pidfd became readable: the process has ended."""
        assert worker.pidfd is not None
        asyncio.get_running_loop().remove_reader(worker.pidfd)
        os.close(worker.pidfd)
        worker.pidfd = None
        if worker.process is not None:
            exit_status: int | None = worker.process.poll()
        else:
            exit_status = reap(worker.stored.pid)
        was_running = worker.stored.phase == "running"
        reason = f"the worker ended ({describe_exit(exit_status)})"
        if worker.stored.reason:  # it was refused
            exit_status, reason = worker.stored.exit_status, worker.stored.reason
        self._end(worker, exit_status, reason, tell=was_running)

    def _end(self, worker: _Worker, exit_status: int | None, reason: str, *, tell: bool) -> None:
        worker.stored = replace(worker.stored, phase="ended", exit_status=exit_status, reason=reason)
        with contextlib.suppress(OSError):
            # Only saves the next agent a look at a dead process; losing it loses nothing.
            worker.stored.write(worker.directory)
        worker.ended.set()
        if tell:
            self._events.put_nowait(WorkerExited(worker.stored.session, exit_status, reason))

    async def stop(
        self,
        session: str,
        grace_seconds: float,
        ask: Callable[[], Awaitable[None]] | None = None,
        *,
        at_once: bool = False,
    ) -> None:
        """Ends a worker and returns when its process has ended; idempotent.

        Its work leaves the device first where that runs beside that of other clients of MPS.
        Then ``ask`` (the caller's polite way: the control socket), then after
        ``grace_seconds`` a request to terminate, then force. ``at_once``: force comes right
        after the grace. Unknown sessions are ignored.
        Only processes that this engine started or adopted are ever signalled.
        """
        worker = self._workers.get(session)
        if worker is None or worker.ended.is_set():
            return
        # Before it is asked, too: a worker that does as it is asked ends at once, with its kernels on the device.
        await self._leave_mps(worker)
        if ask is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(grace_seconds):
                    # A worker may end before it answers: an error here is no refusal.
                    with contextlib.suppress(Exception):
                        await ask()
                    await worker.ended.wait()
        for number in (signal.SIGKILL,) if at_once else (signal.SIGTERM, signal.SIGKILL):
            if worker.pidfd is None:
                break
            send_signal(worker.pidfd, number)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TERMINATE_SECONDS):
                    await worker.ended.wait()
        # A process in an uninterruptible driver call ends when that call returns.
        await worker.ended.wait()

    async def refuse(self, session: str, exit_status: int, reason: str) -> None:
        """Ends a worker of an earlier life of the engine that is of no use, and returns when its process has ended.

        Its end is told with ``exit_status`` and ``reason``: a process that is not our child leaves no status.
        """
        worker = self._workers.get(session)
        if worker is None or worker.ended.is_set():
            return
        # Stored first: if the agent is killed meanwhile, the next one tells the same.
        worker.stored = replace(worker.stored, exit_status=exit_status, reason=reason)
        with contextlib.suppress(OSError):
            worker.stored.write(worker.directory)
        await self.stop(session, 0.0)

    async def _leave_mps(self, worker: _Worker) -> None:
        """Keeps other clients of MPS from harm by the end of this one. Where that fails, its end goes on all the same."""
        if self._mps_daemon is None or worker.pidfd is None:
            return
        try:
            await mps_clients.end_client(self._mps_daemon, worker.stored.pid)
        except mps.MpsUnusableError as error:
            logger.warning(
                "a client of MPS is ended although its work may be on the device; other clients may fail",
                session=worker.stored.session,
                reason=str(error),
            )

    async def list_owned(self) -> tuple[StartedWorker, ...]:
        """Workers that run, those of an earlier life of the engine included.

        To be called once after construction, before :meth:`start`. Workers that ended while
        nobody watched are reported by :meth:`watch`. A worker that never told its address is
        ended here, since nobody can have used it.
        """
        owned = []
        for directory in sorted(self._run_directory.iterdir()):
            if directory.name in self._workers or directory.name == WARM_FOLDER or not directory.is_dir():
                continue
            try:
                stored = StoredWorker.read(directory)
            except StateFileError as error:
                logger.warning("a worker folder without a state is removed", error=str(error))
                shutil.rmtree(directory, ignore_errors=True)
                continue
            worker = _Worker(stored, directory, None)
            self._workers[stored.session] = worker
            if self._adopt(worker):
                owned.append(self._started(worker))
        self._warm.refill(0)
        return tuple(owned)

    def _adopt(self, worker: _Worker) -> bool:
        """Whether a stored worker runs and is of use; its end is reported otherwise."""
        stored = worker.stored
        pidfd = None
        if stored.phase != "ended" and stored.pid and stored.boot_id == self._boot_id:
            pidfd = open_pidfd(stored.pid, stored.start_ticks)
        if pidfd is None:
            reason = stored.reason or "the worker ended while no agent ran"
            self._end(worker, stored.exit_status, reason, tell=True)
            return False
        worker.pidfd = pidfd
        useful = stored.phase == "running"
        # From here on it counts as running, so that its end is told; an agent that refused it has not lived to end it.
        worker.stored = replace(stored, phase="running", exit_status=None, reason="")
        asyncio.get_running_loop().add_reader(pidfd, self._on_exit, worker)
        if not useful:
            send_signal(pidfd, signal.SIGKILL)
        return useful

    async def record(self, session: str, epoch: int, devices: tuple[DeviceGrant, ...]) -> None:
        """Stores the lease that a running worker is about to get. To be called before the worker is told.

        So an adopted worker is known by its current epoch and shares.
        """
        worker = self._workers.get(session)
        if worker is not None and not worker.ended.is_set():
            worker.stored = replace(worker.stored, epoch=epoch, devices=devices)
            worker.stored.write(worker.directory)

    async def forget(self, session: str) -> None:
        """Drops what is stored about an ended worker, once its end was passed on; idempotent.

        Ignored while the worker runs.
        """
        worker = self._workers.get(session)
        if worker is not None and worker.ended.is_set():
            del self._workers[session]
            shutil.rmtree(worker.directory, ignore_errors=True)

    async def close(self) -> None:
        """Stops watching. Workers live on, but those that are starting: nobody would know them. May be called twice."""
        self._closed = True
        await self._warm.close()
        loop = asyncio.get_running_loop()
        for worker in self._workers.values():
            if worker.pidfd is not None:
                loop.remove_reader(worker.pidfd)
                if worker.stored.phase == "starting":
                    send_signal(worker.pidfd, signal.SIGKILL)
                os.close(worker.pidfd)
                worker.pidfd = None
            if worker.process is not None and worker.process.returncode is None:
                # It lives on by design; Popen would warn that it was left behind.
                worker.process.returncode = 0
        self._workers.clear()

    def _started(self, worker: _Worker) -> StartedWorker:
        stored = worker.stored
        return StartedWorker(
            session=stored.session,
            epoch=stored.epoch,
            address=stored.address,
            control=worker.directory / "control.sock",
            devices=stored.devices,
            state={"pid": stored.pid, "start_ticks": stored.start_ticks, "boot_id": stored.boot_id},
            protocol=stored.protocol,
        )

    def _last_log_line(self, worker: _Worker) -> str:
        with contextlib.suppress(OSError):
            lines = (worker.directory / "worker.log").read_bytes()[-4096:].splitlines()
            if lines:
                return lines[-1].decode(errors="replace").strip()
        return ""

"""The node agent: dials the pool, executes its instructions, keeps workers' deadlines.

The safety of the pool rests on one rule, kept here: a worker's deadline is the boot-time
clock at the *sending* of the last heartbeat that the pool answered, plus ``fence_seconds``.
The pool counts from the answering, which is later, so a cut-off worker stops serving before
its share is given to another. An agent that cannot reach the pool extends nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio
import stamina
import structlog

from gpupool.client.agreement import OTHER_VERSION
from gpupool.client.endpoint import EndpointError, metadata, open_channel, read_token, resolve_endpoint
from gpupool.client.errors import GpupoolError
from gpupool.client.servers import NOT_LEADER, ServerRing, reason_of
from gpupool.engines.local import LocalEngine
from gpupool.engines.records import (
    OTHER_PROTOCOL_STATUS,
    WORKER_PROTOCOL,
    DeviceInventory,
    EngineError,
    StartedWorker,
)
from gpupool.node.answers import QUESTIONS, Answers
from gpupool.node.clock import boottime_ns
from gpupool.node.connection import Connection, ConnectionLostError
from gpupool.node.control import ControlError
from gpupool.node.health_watch import HealthWatch
from gpupool.node.instructions import Instructions
from gpupool.node.leader_epoch import LeaderEpoch
from gpupool.node.messages import node_device, worker_report
from gpupool.node.session_images import SessionImages
from gpupool.node.worker_link import WorkerLink
from gpupool.proto import pool_pb2, pool_pb2_grpc

#: Heartbeats that are still unanswered when this many are out mean that the connection is dead.
_MAX_UNANSWERED: Final = 3
#: Where a pool has several servers, all are tried at least this often, seconds.
_LOOK_AROUND_SECONDS: Final = 1.0
_REFUSED: Final = (
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.INVALID_ARGUMENT,
)

logger = structlog.get_logger(__name__)


class AgentError(Exception):
    """The agent cannot run; ``str()`` is one sentence for people."""


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """What an agent is told.

    Attributes:
        stop_grace_seconds: between asking a worker to stop and terminating it.
        drain_wait: seconds that sessions have at the end to move to other nodes, or to this node's disk.
        leave_after: the agent ends if the pool has not answered for so many seconds; None: it tries for ever.
        park_memory_mib: host memory that parked sessions may take.
        park_disk_mib: disk that their images may take; 0: none are written.
        images: where they are kept.
        node_pool: that this node belongs to.
        sharing: what may be placed on its devices: ``isolated``, ``whole`` or ``open``.
        labels: what its administrator says of it; asks filter by them.
    """

    node: str
    endpoint: str | None = None
    token_file: Path | None = None
    advertise_host: str = "127.0.0.1"
    heartbeat_seconds: float = 5.0
    stop_grace_seconds: float = 5.0
    answer_seconds: float = 5.0
    leave_workers: bool = False
    drain_wait: float = 0.0
    leave_after: float | None = None
    park_memory_mib: int = 0
    park_disk_mib: int = 0
    images: SessionImages | None = None
    node_pool: str = "default"
    sharing: str = "isolated"
    labels: Mapping[str, str] = field(default_factory=dict)


class Agent:
    """Runs until :meth:`stop`; workers outlive broken connections and, if asked, the agent."""

    def __init__(
        self,
        settings: AgentSettings,
        engine: LocalEngine,
        health: HealthWatch,
        answers: Answers | None = None,
    ) -> None:
        self._settings = settings
        self._engine = engine
        self._health = health
        self._answers = answers
        try:
            self._servers = ServerRing(resolve_endpoint(settings.endpoint))
        except EndpointError as error:
            raise AgentError(f"The pool's address: {error}.") from None
        self._leader_epoch = LeaderEpoch()
        self._instance = secrets.token_hex(8)
        self._instructions = Instructions(
            node=settings.node,
            engine=engine,
            send=self._send,
            answer_seconds=settings.answer_seconds,
            stop_grace_seconds=settings.stop_grace_seconds,
            images=settings.images,
        )
        #: Workers that were ended in place of being adopted, until the pool has heard why.
        self._refused: dict[str, WorkerLink] = {}
        self._all_told = asyncio.Event()
        self._obeying: set[asyncio.Task[None]] = set()
        self._devices: tuple[DeviceInventory, ...] = ()
        self._judged: tuple[DeviceInventory, ...] = ()
        self._connection: Connection | None = None
        self._served = False
        self._stopping = asyncio.Event()
        self._at_once = asyncio.Event()
        #: When it ends, on the loop's clock, once it waits for sessions to leave.
        self._leaves_at: float | None = None
        #: Set when the pool answers a heartbeat.
        self._heard = asyncio.Event()
        #: Set when a worker has ended.
        self._one_less = asyncio.Event()
        #: Set while the pool answers; tests and the service manager wait for it.
        self.ready = asyncio.Event()

    def stop(self) -> None:
        """Makes :meth:`run` end; may be called from a signal handler of the loop. Twice: without waiting for sessions."""
        if self._stopping.is_set():
            self._at_once.set()
        self._stopping.set()

    async def run(self) -> None:
        """Adopts living workers, then serves the pool until :meth:`stop`.

        Raises:
            AgentError: the devices cannot be listed, or the pool forbids this node.
        """
        try:
            self._devices = await self._engine.inventory()
        except EngineError as error:
            raise AgentError(str(error)) from error
        logger.info("devices", node=self._settings.node, count=len(self._devices))
        owned = await self._engine.list_owned()
        # At once: those that answer have 25 s until they fence themselves, whatever the others do.
        await asyncio.gather(*(self._adopt(worker) for worker in owned))
        watcher = asyncio.create_task(self._watch(), name="engine watch")
        serving = asyncio.create_task(self._serve(), name="pool connection")
        stopping = asyncio.create_task(self._stopping.wait(), name="stop")
        leaving = asyncio.create_task(self._pool_is_gone(), name="pool is gone")
        tasks: set[asyncio.Task[Any]] = {watcher, serving, stopping, leaving}
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in (watcher, serving):
                if task.done():
                    task.result()
            if self._settings.drain_wait and not self._settings.leave_workers and not leaving.done():
                await self._let_move(watcher, serving)
            if not self._settings.leave_workers:
                await self._stop_all()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for link in list(self._instructions.links.values()):
                await link.close()
            await self._engine.close()

    async def _pool_is_gone(self) -> None:
        """Returns when the pool has not answered for too long, counted on a clock that stands while the machine sleeps."""
        patience = self._settings.leave_after
        with contextlib.suppress(TimeoutError):
            while True:
                self._heard.clear()
                async with asyncio.timeout(patience):
                    await self._heard.wait()
        logger.info("ending; the pool has not answered", seconds=patience)

    async def _let_move(self, *needed: asyncio.Task[Any]) -> None:
        """Goes on as before until no session is here, but not for ever."""
        logger.info("ending; sessions may move away first", sessions=len(self._instructions.links),
                    seconds=self._settings.drain_wait)  # fmt: skip
        self._leaves_at = asyncio.get_running_loop().time() + self._settings.drain_wait
        if self._connection is not None:
            self._connection.outgoing.put_nowait(self._leaving())
        empty = asyncio.create_task(self._emptied(), name="sessions move away")
        hurry = asyncio.create_task(self._at_once.wait(), name="end at once")
        try:
            await asyncio.wait(
                {empty, hurry, *needed},
                timeout=self._settings.drain_wait,
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            empty.cancel()
            hurry.cancel()
            await asyncio.gather(empty, hurry, return_exceptions=True)

    async def _emptied(self) -> None:
        while self._instructions.links:
            self._one_less.clear()
            await self._one_less.wait()

    async def _stop_all(self) -> None:
        """Ends every worker while the connection is up, so that the pool hears of it."""
        self._instructions.ending = True
        if self._obeying:
            # A worker that is being started would be missed.
            await asyncio.wait(self._obeying, timeout=self._settings.stop_grace_seconds)
        sessions = list(self._instructions.links)
        await asyncio.gather(*(self._instructions.stop_worker(session) for session in sessions))
        # The watch task turns each end into news; let it run before looking.
        await asyncio.sleep(0)
        if sessions and self.ready.is_set():
            # One more answered heartbeat: the pool has heard the ends and frees the shares now.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._settings.heartbeat_seconds):
                    await self._all_told.wait()

    async def _adopt(self, worker: StartedWorker) -> None:
        link = WorkerLink(worker, self._settings.answer_seconds)
        if worker.protocol != WORKER_PROTOCOL:
            await self._refuse(worker, link)
            return
        self._instructions.links[worker.session] = link
        try:
            await link.refresh()
        except ControlError as error:
            # It runs but cannot be spoken to: it would fence itself; end it now instead.
            logger.warning("an adopted worker does not answer", session=worker.session, error=str(error))
            # Not waited for: a process in a call of a driver that hangs ends when that returns.
            self._keep(self._engine.stop(worker.session, 0.0), "end of a worker that does not answer")
            return
        await self._instructions.adopted(link)
        logger.info("adopted a worker", session=worker.session, epoch=link.epoch, state=link.stats.state)

    async def _refuse(self, worker: StartedWorker, link: WorkerLink) -> None:
        """A worker that may misunderstand what this agent says is never spoken to."""
        logger.warning(
            "a worker of another version is not adopted: it is ended",
            session=worker.session,
            worker_protocol=worker.protocol or "none",
            agent_protocol=WORKER_PROTOCOL,
        )
        self._refused[worker.session] = link
        its = f"protocol {worker.protocol}" if worker.protocol else "a protocol without a number"
        why = f"a worker of another version of gpupool: it speaks {its}, its node's agent {WORKER_PROTOCOL}"
        # Not waited for: a process in a call of a driver that hangs ends when that returns.
        self._keep(self._engine.refuse(worker.session, OTHER_PROTOCOL_STATUS, why), "end of a refused worker")

    async def _watch(self) -> None:
        async for event in self._engine.watch():
            logger.info("a worker ended", session=event.session, reason=event.reason)
            link = self._instructions.links.pop(event.session, None)
            self._one_less.set()
            if link is not None:
                await link.rest_of_figures()
                await link.close()
            outlasting = self._instructions.outlasting.pop(event.session, None)
            if outlasting is not None:
                # Not an end of the session: the pool hears that it lies on disk, or that it did not start.
                await self._engine.forget(event.session)
                outlasting.set_result(event)
                continue
            self._all_told.clear()
            self._instructions.tell_end(event, link)

    # ---- the connection to the pool

    async def _serve(self) -> None:
        """Connects, again and again; only a refusal for good ends it."""
        wait_max = self._settings.heartbeat_seconds
        if self._servers.several:
            # After a takeover workers have what is left of their time.
            wait_max = min(wait_max, _LOOK_AROUND_SECONDS)
        while True:
            async for attempt in stamina.retry_context(
                on=ConnectionLostError,
                attempts=None,
                timeout=None,
                wait_initial=0.2,
                # A pool that is back must be found well before workers fence themselves.
                wait_max=wait_max,
                wait_jitter=0.2,
            ):
                with attempt:
                    if not await self._serve_anywhere():
                        where = ",".join(self._servers.endpoints)
                        raise ConnectionLostError(f"the pool does not answer at {where}")
            # It worked and broke: the next try comes soon, and not in a tight loop.
            await asyncio.sleep(0.2)

    async def _serve_anywhere(self) -> bool:
        """Tries all servers of the pool, one after the other, until a connection worked; whether one did."""
        for _ in self._servers.endpoints:
            asked = self._servers.asked
            worked = await self._serve_once(asked)
            self._servers.turn_from(asked)
            if worked:
                return True
        return False

    async def _serve_once(self, endpoint: str) -> bool:
        """One connection from hello to its end; whether it ever worked."""
        connection = Connection()
        try:
            token = read_token(self._settings.token_file)
            channel = open_channel(endpoint)
        except GpupoolError as error:
            if not self._served:
                raise
            # Sessions must not end because a file is just being written again, or its disk is away for a moment.
            logger.warning("what the pool is shown cannot be read", problem=str(error))
            return False
        tasks: set[asyncio.Task[None]] = set()
        try:
            self._judged = await self._health.look(self._devices)
            stub: Any = pool_pb2_grpc.NodesStub
            connection.base_ns = boottime_ns()
            call = stub(channel).Connect(self._outgoing(connection), metadata=metadata(token))
            connection.outgoing.put_nowait(self._hello())
            if self._leaves_at is not None:
                connection.outgoing.put_nowait(self._leaving())
            for told in self._instructions.ends.values():
                connection.outgoing.put_nowait(told)
            self._connection = connection
            tasks.add(asyncio.create_task(self._beat(connection), name="heartbeat"))
            tasks.add(asyncio.create_task(self._read(connection, call), name="instructions"))
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        except grpc.aio.AioRpcError as error:
            # One that was accepted tries once more: its token may have been replaced, file and all.
            other_version = reason_of(error) == OTHER_VERSION
            refused = error.code() in _REFUSED and not connection.answered.is_set()
            # One that has served goes on with its sessions: the pool may be put back.
            if refused or (other_version and not self._served):
                raise AgentError(f"The pool refuses this node: {error.details()}.") from error
            if other_version:
                logger.warning("the pool refuses this node", endpoint=endpoint, reason=error.details())
            elif reason_of(error) == NOT_LEADER:
                logger.info("this pool server does not lead", endpoint=endpoint)
            else:
                logger.info("the pool cannot be reached", endpoint=endpoint, detail=error.details())
        except ConnectionLostError as error:
            logger.info("connection to the pool lost", reason=str(error))
        finally:
            self._connection = None
            self.ready.clear()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await channel.close(None)
        self._served = self._served or connection.answered.is_set()
        return connection.answered.is_set()

    def _hello(self) -> Any:
        return pool_pb2.FromNode(
            hello=pool_pb2.NodeHello(
                node=self._settings.node,
                instance=self._instance,
                devices=[node_device(device) for device in self._judged],
                # Those that were refused are named as well: the pool would take them for lost before it hears why they ended.
                workers=[
                    worker_report(link)
                    for link in (*self._instructions.links.values(), *self._refused.values())
                ],
                advertise_host=self._settings.advertise_host,
                park_memory_mib=self._settings.park_memory_mib,
                park_disk_mib=self._settings.park_disk_mib,
                images=[
                    pool_pb2.StoredImage(session_id=session)
                    for session in sorted(self._instructions.images())
                ],
                node_pool=self._settings.node_pool,
                sharing=self._settings.sharing,
                labels=self._settings.labels,
            )
        )

    def _leaving(self) -> Any:
        """The pool places nothing here any more, and tells holders; it must be said before the sessions can leave."""
        assert self._leaves_at is not None
        left = max(0.0, self._leaves_at - asyncio.get_running_loop().time())
        return pool_pb2.FromNode(leaving=pool_pb2.NodeLeaving(seconds=left))

    async def _outgoing(self, connection: Connection) -> AsyncIterator[Any]:
        while True:
            yield await connection.outgoing.get()

    async def _beat(self, connection: Connection) -> None:
        while True:
            if len(connection.sent_at) >= self._most_unanswered(connection):
                raise ConnectionLostError("the pool stopped answering heartbeats")
            connection.number += 1
            number = connection.number
            message = pool_pb2.FromNode(
                heartbeat=pool_pb2.Heartbeat(
                    number=number, workers=[worker_report(link) for link in self._instructions.links.values()]
                )
            )
            # All ends known now were put on this stream before this heartbeat.
            connection.told_ends[number] = tuple(self._instructions.ends)
            # The clock is read before the message is handed over: never later than its sending.
            connection.sent_at[number] = boottime_ns()
            connection.outgoing.put_nowait(message)
            await asyncio.sleep(self._settings.heartbeat_seconds)
            if await self._health.look(self._devices) != self._judged:
                raise ConnectionLostError("the health of a device changed; saying hello anew")

    def _most_unanswered(self, connection: Connection) -> int:
        """Where another server may have taken over it is looked for while workers have time left.

        A new connection is given as long as any: a server that has just taken over has much to do.
        """
        lasted = connection.answered.is_set()
        return _MAX_UNANSWERED - 1 if self._servers.several and lasted else _MAX_UNANSWERED

    async def _read(self, connection: Connection, call: Any) -> None:
        async for message in call:
            kind = message.WhichOneof("instruction")
            if kind == "heartbeat":
                self._leader_epoch.heard(message.heartbeat.leader_epoch, boottime_ns())
                await self._answered(connection, message.heartbeat)
            elif kind in QUESTIONS:
                self._keep(self._answer(connection, kind, message), f"question {kind}")
            elif kind is not None:
                # Not ended with the connection: half a start or half a revocation would need a cure.
                self._keep(self._instructions.obey(connection, kind, message), f"instruction {kind}")
        raise ConnectionLostError("the pool closed the connection")

    def _keep(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._obeying.add(task)
        task.add_done_callback(self._obeying.discard)

    async def _answer(self, connection: Connection, kind: str, message: Any) -> None:
        if self._answers is None:
            return
        try:
            parked = sum(
                sum(link.stats.memory_used)
                for link in self._instructions.links.values()
                if link.stats.place == "host"
            )
            connection.outgoing.put_nowait(await self._answers.answer(kind, message, parked >> 20))
        except Exception:
            logger.exception("a question of the pool was not answered", question=kind)

    async def _answered(self, connection: Connection, answer: Any) -> None:
        """The pool confirmed a heartbeat: extends the leases that it says are alive."""
        sent_ns = connection.sent_at.get(answer.number)
        if sent_ns is None:
            return
        self._heard.set()
        for number in [n for n in connection.sent_at if n <= answer.number]:
            del connection.sent_at[number]
            for session in connection.told_ends.pop(number, ()):
                self._instructions.ends.pop(session, None)
                self._refused.pop(session, None)
                await self._engine.forget(session)
        if not self._instructions.ends:
            self._all_told.set()
        connection.base_ns = max(connection.base_ns, sent_ns)
        for lease in answer.leases:
            link = self._instructions.links.get(lease.session_id)
            if link is not None and link.epoch == lease.epoch and not link.revoked:
                link.extend(connection.deadline_ns(answer.fence_seconds))
        for link in self._instructions.links.values():
            link.stay_connected()
        if not connection.answered.is_set():
            logger.info("connected to the pool", endpoint=self._servers.asked)
        connection.answered.set()
        self.ready.set()

    def _send(self, message: Any) -> None:
        if self._connection is not None:
            self._connection.outgoing.put_nowait(message)

"""The agent's way to the pool: it connects, again and again, says hello, keeps beating and hands on what the pool wants.

The safety of the pool rests on one rule, kept here: a worker's deadline is the boot-time
clock at the *sending* of the last heartbeat that the pool answered, plus ``fence_seconds``.
The pool counts from the answering, which is later, so a cut-off worker stops serving before
its share is given to another. An agent that cannot reach the pool extends nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Callable, Coroutine
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
from gpupool.engines.records import DeviceInventory
from gpupool.node.agent_settings import AgentError, AgentSettings
from gpupool.node.answers import QUESTIONS, Answers
from gpupool.node.clock import boottime_ns
from gpupool.node.connection import Connection, ConnectionLostError
from gpupool.node.health_watch import HealthWatch
from gpupool.node.instructions import Instructions
from gpupool.node.leader_epoch import LeaderEpoch
from gpupool.node.messages import node_device, worker_report
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


class PoolLink:
    """One connection after the other, to whichever of the pool's servers leads.

    Args:
        engine: forgets ended workers of which the pool has heard.
        health: judges the devices; another judgement is another hello.
        answers: to the pool's questions; None: none are given.
        instructions: executes what the pool wants.
        keep: runs what must not end with a connection.

    Raises:
        AgentError: the pool's address is none.
    """

    def __init__(
        self,
        settings: AgentSettings,
        engine: LocalEngine,
        health: HealthWatch,
        answers: Answers | None,
        instructions: Instructions,
        keep: Callable[[Coroutine[Any, Any, None], str], None],
    ) -> None:
        self._settings = settings
        self._engine = engine
        self._health = health
        self._answers = answers
        self._instructions = instructions
        self._keep = keep
        try:
            self._servers = ServerRing(resolve_endpoint(settings.endpoint))
        except EndpointError as error:
            raise AgentError(f"The pool's address: {error}.") from None
        self._leader_epoch = LeaderEpoch()
        self._instance = secrets.token_hex(8)
        self._connection: Connection | None = None
        self._served = False
        #: When the agent ends, on the loop's clock, once it waits for sessions to leave.
        self._leaves_at: float | None = None
        self._judged: tuple[DeviceInventory, ...] = ()
        #: What the node has; to be set before it serves.
        self.devices: tuple[DeviceInventory, ...] = ()
        #: Set while the pool answers.
        self.ready = asyncio.Event()
        #: Set when the pool answers a heartbeat.
        self._heard = asyncio.Event()
        #: Set when the pool has heard of every end of a worker.
        self.all_told = asyncio.Event()

    def send(self, message: Any) -> None:
        """Without a connection the next hello says what counts."""
        if self._connection is not None:
            self._connection.outgoing.put_nowait(message)

    def leave_in(self, seconds: float) -> None:
        """Tells the pool, now and with each connection, that the node ends in so long a time."""
        self._leaves_at = asyncio.get_running_loop().time() + seconds
        self.send(self._leaving())

    async def silence(self, patience: float | None) -> None:
        """Returns when the pool has not answered for so long, counted on a clock that stands while the machine sleeps."""
        with contextlib.suppress(TimeoutError):
            while True:
                self._heard.clear()
                async with asyncio.timeout(patience):
                    await self._heard.wait()

    async def serve(self) -> None:
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
            self._judged = await self._health.look(self.devices)
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
                    for link in (*self._instructions.links.values(), *self._instructions.refused.values())
                ],
                advertise_host=self._settings.advertise_host,
                park_memory_mib=self._settings.park_memory_mib,
                park_disk_mib=self._settings.park_disk_mib,
                worker_ports=self._settings.worker_ports,
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
            if await self._health.look(self.devices) != self._judged:
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
                self._instructions.refused.pop(session, None)
                await self._engine.forget(session)
        if not self._instructions.ends:
            self.all_told.set()
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

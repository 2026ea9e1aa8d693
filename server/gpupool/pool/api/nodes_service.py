"""The `Nodes` service: one stream per node agent."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeAlias

import grpc
import grpc.aio
import structlog

from gpupool.client.worker_address import MAX_LENGTH, WorkerAddressError, checked_host
from gpupool.ledger.ledger import LedgerError
from gpupool.model import events
from gpupool.node.profile import ProfileError
from gpupool.pool.access import validate
from gpupool.pool.access.auth import current_identity, refuse, refuse_revoked, still_admitted
from gpupool.pool.api import convert
from gpupool.pool.lifecycle.shell import NodeStream, PoolShell
from gpupool.pool.nodes import profiles, reported
from gpupool.proto.gpupool.v1 import pool_pb2 as pb
from gpupool.proto.gpupool.v1 import pool_pb2_grpc
from gpupool.scheduler.model import DEFAULT_NODE_POOL
from gpupool.shares import MAXIMUM_MIB
from gpupool.text import printable

logger = structlog.get_logger(__name__)

#: The first message must come within this time, seconds.
HELLO_SECONDS = 10.0
_MAX_DEVICES = 64
_MAX_PORTS = 65535
_MAX_WORKERS = 10_000
#: No agent waits longer for its sessions to leave: a week.
_MAX_LEAVING_SECONDS = 7 * 86400.0


#: Whether a provider has a job whose agent calls itself so: a token for the provider is good for the nodes of its jobs.
Lends: TypeAlias = Callable[[str, str], bool]


#: Waits until it is certain whether this server still leads: what a former leader answers would keep workers alive that the
#: next one counts as gone.
Leads: TypeAlias = Callable[[], Awaitable[bool]]


class NodesService(pool_pb2_grpc.NodesServicer):
    """Reads what agents say into events, and sends them what the machine wants done."""

    def __init__(
        self, pool: PoolShell, lends: Lends = lambda provider, node: False, leads: Leads | None = None
    ) -> None:
        self._pool = pool
        self._lends = lends
        self._leads = leads

    async def Connect(
        self, request_iterator: AsyncIterator[pb.FromNode], context: Any
    ) -> AsyncIterator[pb.ToNode]:
        hello = await self._first_hello(request_iterator, context)
        connection, stream = self._pool.open_stream(hello.node)
        reader: asyncio.Task[None] | None = None
        try:
            await self._greet(hello, connection, context)
            reader = asyncio.create_task(
                self._read(request_iterator, hello.node, connection, stream), name=f"node {hello.node}"
            )
            epoch = self._pool.ledger.database.epoch
            while (item := await stream.outgoing.get()) is not None:
                yield item if isinstance(item, pb.ToNode) else convert.to_node(item, self._pool.timers, epoch)
            if not await still_admitted():
                await refuse_revoked(context)
        finally:
            self._pool.close_stream(connection)
            if reader is not None:
                reader.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await reader
            if not self._pool.closing:
                now = self._pool.clock.now()
                with contextlib.suppress(LedgerError):
                    self._pool.apply(events.NodeDisconnected(now, hello.node, connection))

    async def _first_hello(self, incoming: AsyncIterator[pb.FromNode], context: Any) -> pb.NodeHello:
        try:
            async with asyncio.timeout(HELLO_SECONDS):
                first = await anext(aiter(incoming), None)
        except TimeoutError:
            first = None
        if first is None or first.WhichOneof("message") != "hello":
            text = f"the first message of a node must be its hello, within {HELLO_SECONDS:.0f} s"
            await refuse(context, grpc.StatusCode.INVALID_ARGUMENT, "bad-request", text)
        hello = first.hello
        identity = current_identity()
        allowed = identity.name == hello.node or self._lends(identity.name, hello.node)
        if identity.role == "node" and not allowed:
            text = f"this token is for node {identity.name!r}, not for {hello.node[:64]!r}"
            await refuse(context, grpc.StatusCode.PERMISSION_DENIED, "forbidden", text)
        return hello

    async def _greet(self, hello: pb.NodeHello, connection: int, context: Any) -> None:
        try:
            event = _hello_event(hello, connection, self._pool.clock.now())
        except (validate.BadInputError, ProfileError) as error:
            await refuse(context, grpc.StatusCode.INVALID_ARGUMENT, "bad-request", str(error))
        try:
            self._pool.apply(event)
        except LedgerError as error:
            await refuse(context, grpc.StatusCode.UNAVAILABLE, "ledger", str(error))

    async def _read(
        self, incoming: AsyncIterator[pb.FromNode], node: str, connection: int, stream: NodeStream
    ) -> None:
        """Ends the stream when the agent closes its side, breaks off, sends nonsense or is not admitted now."""
        try:
            async for message in incoming:
                if not await still_admitted():
                    logger.warning("the token of a node has been revoked", node=node)
                    return
                if self._leads is not None and not await self._leads():
                    logger.warning("this server leads no more; a node is to ask another", node=node)
                    return
                if self._pool.questions.answered(node, message):
                    continue
                event = _event(message, node, connection, self._pool.clock.now())
                if event is None:
                    logger.warning("a node sent a message that is not understood", node=node)
                    return
                await self._pool.apply_together(event)
        except LedgerError:
            # The step is not stored, so it must come again: the agent's next hello brings it.
            return
        except grpc.aio.UsageError:
            return
        except Exception:
            logger.exception("a node's stream failed", node=node)
        finally:
            stream.outgoing.put_nowait(None)


def _hello_event(hello: pb.NodeHello, connection: int, now: float) -> events.NodeHello:
    node = validate.node_name(hello.node)
    if len(hello.devices) > _MAX_DEVICES:
        raise validate.BadInputError(f"{len(hello.devices)} devices on one node, more than {_MAX_DEVICES}")
    if len(hello.workers) > _MAX_WORKERS:
        raise validate.BadInputError(f"{len(hello.workers)} workers on one node, more than {_MAX_WORKERS}")
    ordinals = [device.ordinal for device in hello.devices]
    if len(set(ordinals)) != len(ordinals) or any(not 0 <= ordinal < _MAX_DEVICES for ordinal in ordinals):
        raise validate.BadInputError(f"device ordinals {ordinals} are not distinct numbers from 0")
    return events.NodeHello(
        now=now,
        node=node,
        connection=connection,
        instance=validate.text(hello.instance, "instance"),
        devices=tuple(
            profiles.read_device(d.ordinal, d.profile, d.healthy, d.health_reason, d.driver)
            for d in hello.devices
        ),
        workers=tuple(reported.reported_worker(node, worker) for worker in hello.workers),
        advertise_host=_dialled(hello.advertise_host),
        park_memory_mib=_amount(hello.park_memory_mib, "park_memory_mib"),
        park_disk_mib=_amount(hello.park_disk_mib, "park_disk_mib"),
        worker_ports=_ports(hello.worker_ports),
        images=frozenset(image.session_id[:64] for image in hello.images[:_MAX_WORKERS]),
        pool=validate.node_pool(hello.node_pool or DEFAULT_NODE_POOL),
        labels=validate.labels(hello.labels),
        sharing=validate.sharing(hello.sharing),
    )


def _dialled(host: str) -> str:
    """What kernels are told; a node that could not be told of would be granted, and never be reached."""
    try:
        return checked_host(host) if host else ""
    except WorkerAddressError as error:
        raise validate.BadInputError(f"advertise_host {error}") from None


def _amount(mib: int, what: str) -> int:
    if not 0 <= mib <= MAXIMUM_MIB:
        raise validate.BadInputError(f"{what} {mib} is not within 0..{MAXIMUM_MIB}")
    return mib


def _ports(number: int) -> int:
    if not 0 <= number <= _MAX_PORTS:
        raise validate.BadInputError(f"worker_ports {number} is not within 0..{_MAX_PORTS}")
    return number


def _event(message: pb.FromNode, node: str, connection: int, now: float) -> events.FromNode | None:
    """The event that a message of a running stream stands for; None: not one that may come here."""
    match message.WhichOneof("message"):
        case "heartbeat":
            beat = message.heartbeat
            workers = tuple(reported.reported_worker(node, worker) for worker in beat.workers[:_MAX_WORKERS])
            return events.NodeHeartbeat(now, node, connection, beat.number, workers)
        case "leaving":
            seconds = message.leaving.seconds
            # Not a number is no time at all.
            seconds = min(seconds, _MAX_LEAVING_SECONDS) if seconds > 0 else 0.0
            return events.NodeLeaving(now, node, connection, seconds)
        case "started":
            started = message.started
            return events.WorkerStarted(
                now, node, connection, started.session_id, started.epoch, started.address[:MAX_LENGTH]
            )
        case "failed":
            failed = message.failed
            return events.WorkerFailed(
                now, node, connection, failed.session_id, failed.epoch, printable(failed.message[:500])
            )
        case "exited":
            ended = message.exited
            worker = reported.reported_worker(node, ended.worker) if ended.HasField("worker") else None
            return events.WorkerExited(
                now,
                node,
                connection,
                ended.session_id,
                ended.exit_status,
                printable(ended.reason[:500]),
                worker,
            )
        case "applied":
            applied = message.applied
            worker = reported.reported_worker(node, applied.worker) if applied.HasField("worker") else None
            return events.LeaseApplied(
                now, node, connection, applied.session_id, applied.epoch, applied.ok,
                printable(applied.message[:500]), applied.request, worker, max(0, applied.used_mib),
                applied.answered, applied.unsure,
            )  # fmt: skip
        case "memory_parked":
            parked = message.memory_parked
            return events.MemoryParked(
                now, node, connection, parked.session_id, parked.epoch, parked.ok,
                printable(parked.message[:500]), max(0, parked.bytes) >> 20, parked.request,
                "image" if parked.place == "image" else "host",
            )  # fmt: skip
        case _:
            return None

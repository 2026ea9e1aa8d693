"""A real pool server in the test's event loop, and node connections that a test scripts message by message."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc.aio
from gpupool.ledger.ledger import Ledger
from gpupool.pool.options import ServeOptions, Serving
from gpupool.pool.server import serve
from gpupool.proto import pool_pb2, pool_pb2_grpc

from tests.support.patience import BUSY


def profile(ordinal: int = 0, total_mib: int = 8192) -> str:
    return (
        f"driver_version 13000\ndevice {ordinal}\nname Software GPU (gpupool)\nuuid {ordinal:032x}\nsoftware 1\n"
        f"total_mib {total_mib}\npci 0000:00:00.0\nattribute 75 12\nend\n"
    )


@contextlib.asynccontextmanager
async def pool_server(**options: Any) -> AsyncIterator[Serving]:
    """A server on a socket of its own."""
    with tempfile.TemporaryDirectory(prefix="gpp-") as home:
        options.setdefault("home", Path(home))
        options.setdefault("timers_scale", 1.0)
        stop = asyncio.Event()
        up: asyncio.Future[Serving] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(serve(ServeOptions(**options), ready=up.set_result, stop=stop))
        done, _ = await asyncio.wait({task, up}, return_when=asyncio.FIRST_COMPLETED)
        if task in done:
            up.cancel()
            await task
        try:
            yield up.result()
        finally:
            stop.set()
            await task


class Caller:
    """Stubs over one channel, with a token or without."""

    def __init__(self, address: str, token: str | None = None) -> None:
        self.channel = grpc.aio.insecure_channel(address)
        self.metadata = (("authorization", f"Bearer {token}"),) if token else ()
        self.pool: Any = pool_pb2_grpc.PoolStub(self.channel)  # type: ignore[no-untyped-call, unused-ignore]
        self.nodes: Any = pool_pb2_grpc.NodesStub(self.channel)  # type: ignore[no-untyped-call, unused-ignore]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.channel.close()

    async def call(self, method: str, message: Any, **options: Any) -> Any:
        return await getattr(self.pool, method)(message, metadata=self.metadata, timeout=10 * BUSY, **options)

    async def ask(self, key: str, milli: int = 0, **more: Any) -> Any:
        """The last event of a request: granted or refused."""
        more.setdefault("wait_seconds", 0.0)
        return [event async for event in self.request(key, milli, **more)][-1]

    def request(self, key: str, milli: int = 0, **more: Any) -> Any:
        message = pool_pb2.RequestLease(idempotency_key=key, milli=milli, **more)
        return self.pool.Request(message, metadata=self.metadata, timeout=20 * BUSY)

    async def grant(self, key: str, milli: int = 0, **more: Any) -> Any:
        event = await self.ask(key, milli, **more)
        assert event.WhichOneof("event") == "granted", event
        return event.granted

    async def devices(self) -> list[Any]:
        return list((await self.call("ListDevices", pool_pb2.ListRequest())).devices)


class ScriptedNode:
    """A node agent whose every answer the test chooses; by default it does what it is told.

    `mute`: instructions of these kinds get no answer.
    """

    def __init__(self, caller: Caller, name: str = "node1", devices: int = 2) -> None:
        self.name = name
        self.received: list[Any] = []
        self.mute: set[str] = set()
        self.refuse: dict[str, str] = {}
        #: What every session uses; more than any new share of it, if not 0.
        self.in_use_mib = 0
        self.workers: dict[str, int] = {}
        self._caller = caller
        self._devices = devices
        self._number = 0
        self._call: Any = None
        # gRPC refuses a write while another one is under way.
        self._writing = asyncio.Lock()
        self._reader: asyncio.Task[None] | None = None

    async def connect(self, **more: Any) -> Self:
        self._call = self._caller.nodes.Connect(metadata=self._caller.metadata)
        hello = {
            "node": self.name,
            "instance": "run-1",
            "devices": [
                pool_pb2.NodeDevice(ordinal=i, profile=profile(i), healthy=True) for i in range(self._devices)
            ],
            "workers": [
                pool_pb2.WorkerReport(session_id=s, epoch=e, state="attached", address="127.0.0.1:4000")
                for s, e in self.workers.items()
            ],
        }
        await self.send(hello=pool_pb2.NodeHello(**(hello | more)))
        self._reader = asyncio.create_task(self._read())
        await self.heartbeat()
        return self

    async def __aenter__(self) -> Self:
        return await self.connect()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.disconnect()

    async def disconnect(self) -> None:
        if self._reader is not None:
            self._reader.cancel()
            with contextlib.suppress(asyncio.CancelledError, grpc.aio.AioRpcError):
                await self._reader
        self._call.cancel()

    async def send(self, **message: Any) -> None:
        async with self._writing:
            await self._call.write(pool_pb2.FromNode(**message))

    async def heartbeat(self, **usage: Any) -> Any:
        """Sends a heartbeat and returns the pool's answer to it."""
        self._number += 1
        number = self._number
        workers = [
            pool_pb2.WorkerReport(session_id=s, epoch=e, state="attached", usage=pool_pb2.Usage(**usage))
            for s, e in self.workers.items()
        ]
        await self.send(heartbeat=pool_pb2.Heartbeat(number=number, workers=workers))
        return await self.wait_for(lambda m: m.HasField("heartbeat") and m.heartbeat.number == number)

    async def wait_for(self, wanted: Callable[[Any], bool], seconds: float = 5.0) -> Any:
        async with asyncio.timeout(seconds * BUSY):
            while True:
                for message in self.received:
                    if wanted(message):
                        return message
                assert self._reader is not None
                if self._reader.done():
                    await self._reader
                    raise ConnectionError("the pool ended the node's stream")
                await asyncio.sleep(0.005)

    async def ended(self) -> grpc.StatusCode | None:
        """Waits for the end of the stream; its status."""
        async with asyncio.timeout(5.0 * BUSY):
            return await self._call.code()

    async def _read(self) -> None:
        async for message in self._call:
            self.received.append(message)
            if message.WhichOneof("instruction") not in self.mute:
                await self.obey(message)

    async def obey(self, message: Any) -> None:
        """Does what an instruction says, also one that it was mute to."""
        await self._answers[message.WhichOneof("instruction")](self, message)

    async def _started(self, message: Any) -> None:
        start = message.start
        if "start" in self.refuse:
            await self.send(
                failed=pool_pb2.WorkerFailed(
                    session_id=start.session_id, epoch=start.epoch, message=self.refuse["start"]
                )
            )
            return
        self.workers[start.session_id] = start.epoch
        await self.send(
            started=pool_pb2.WorkerStarted(
                session_id=start.session_id, epoch=start.epoch, address="127.0.0.1:4000"
            )
        )

    async def _applied(self, message: Any) -> None:
        kind = message.WhichOneof("instruction")
        order = getattr(message, kind)
        problem = self.refuse.get(kind, "")
        used_mib = self.in_use_mib if kind == "lease" else 0
        await self.send(
            applied=pool_pb2.LeaseApplied(
                session_id=order.session_id,
                epoch=order.epoch,
                ok=not problem and not used_mib,
                message=problem,
                used_mib=used_mib,
                answered=True,
                request=message.request,
            )
        )

    async def _stopped(self, message: Any) -> None:
        self.workers.pop(message.stop.session_id, None)
        await self.send(exited=pool_pb2.WorkerExited(session_id=message.stop.session_id))

    async def _asked(self, message: Any) -> None:
        number = message.request
        line = pool_pb2.LogLine(at_unix=1.0, level="info", text="all \x1b[2J well")
        answer = {
            "logs": {"logs": pool_pb2.LogLines(request=number, lines=[line])},
            "meter": {"meter": pool_pb2.MeterOpened(request=number, port=4001, seconds=10.0)},
            "ports": {"ports": pool_pb2.PortsOpened(request=number, first=4001, last=4002, parts=2)},
            "check": {"checks": pool_pb2.NodeChecks(request=number, version="0", now_unix=time.time())},
        }[message.WhichOneof("instruction")]
        await self.send(**answer)

    async def _nothing(self, message: Any) -> None:
        return

    _answers: dict[str | None, Callable[[ScriptedNode, Any], Awaitable[None]]] = {  # noqa: RUF012
        "start": _started,
        "lease": _applied,
        "revoke": _applied,
        "stop": _stopped,
        "logs": _asked,
        "meter": _asked,
        "ports": _asked,
        "check": _asked,
        "heartbeat": _nothing,
        None: _nothing,
    }


def make_token(serving: Serving, subject: str, role: str) -> str:
    from gpupool.pool.access import tokens

    ledger: Ledger = serving.pool.ledger
    return tokens.create(ledger, subject, role).secret

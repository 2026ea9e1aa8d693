"""A real `gpupool pool serve` in a process of its own, with a node whose agent answers at once and devices that are all taken."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc.aio
import psutil
from gpupool.client.endpoint import open_channel
from gpupool.proto import pool_pb2, pool_pb2_grpc

from tests.support.patience import BUSY
from tests.support.pool_server import profile

ROOT = Path(__file__).resolve().parents[2]
HEARTBEAT_SECONDS = 5.0


class QuickNode:
    """A node agent without workers: whatever it is told is done."""

    def __init__(self, stub: Any, devices: int) -> None:
        self._stub = stub
        self._devices = devices
        self._workers: dict[str, int] = {}
        self._outgoing: asyncio.Queue[Any] = asyncio.Queue()
        self._tasks: list[asyncio.Task[None]] = []
        self.started: list[str] = []

    async def connect(self) -> None:
        devices = [
            pool_pb2.NodeDevice(ordinal=i, profile=profile(i), healthy=True) for i in range(self._devices)
        ]
        workers = [
            pool_pb2.WorkerReport(session_id=s, epoch=e, state="attached") for s, e in self._workers.items()
        ]
        self._outgoing = asyncio.Queue()
        self._send(hello=pool_pb2.NodeHello(node="node1", instance="run-1", devices=devices, workers=workers))
        call = self._stub.Connect(self._said())
        self._tasks = [asyncio.create_task(self._obey(call)), asyncio.create_task(self._beat())]

    async def disconnect(self) -> None:
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with contextlib.suppress(asyncio.CancelledError, grpc.aio.AioRpcError):
                await task

    def _send(self, **message: Any) -> None:
        self._outgoing.put_nowait(pool_pb2.FromNode(**message))

    async def _said(self) -> Any:
        while True:
            yield await self._outgoing.get()

    async def _beat(self) -> None:
        number = 0
        while True:
            number += 1
            reports = [
                pool_pb2.WorkerReport(session_id=s, epoch=e, state="attached")
                for s, e in self._workers.items()
            ]
            self._send(heartbeat=pool_pb2.Heartbeat(number=number, workers=reports))
            await asyncio.sleep(HEARTBEAT_SECONDS)

    async def _obey(self, call: Any) -> None:
        async for message in call:
            kind = message.WhichOneof("instruction")
            if kind == "start":
                order = message.start
                self._workers[order.session_id] = order.epoch
                self.started.append(order.session_id)
                self._send(
                    started=pool_pb2.WorkerStarted(
                        session_id=order.session_id, epoch=order.epoch, address="127.0.0.1:4000"
                    )
                )
            elif kind == "stop":
                self._workers.pop(message.stop.session_id, None)
                self._send(exited=pool_pb2.WorkerExited(session_id=message.stop.session_id))
            elif kind in ("apply", "revoke"):
                order = getattr(message, kind)
                self._send(
                    applied=pool_pb2.LeaseApplied(
                        session_id=order.session_id, epoch=order.epoch, ok=True, request=message.request
                    )
                )


class FullPool:
    """`async with FullPool(8) as pool:`; its `devices` are all held until :meth:`free` gives them back."""

    def __init__(self, devices: int, *serve_arguments: str) -> None:
        # A short path: addresses of Unix sockets end at 107 bytes.
        self.home = Path(tempfile.mkdtemp(prefix="gpf-"))
        self.devices = devices
        self._serve_arguments = serve_arguments
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: Any = None
        self.held: list[str] = []

    @property
    def endpoint(self) -> str:
        return f"unix:{self.home}/pool.sock"

    @property
    def ledger(self) -> Path:
        return self.home / "pool.sqlite"

    async def __aenter__(self) -> Self:
        try:
            await self.start()
            self._channel = open_channel(self.endpoint)
            self.pool: Any = pool_pb2_grpc.PoolStub(self._channel)  # type: ignore[no-untyped-call, unused-ignore]
            nodes: Any = pool_pb2_grpc.NodesStub(self._channel)  # type: ignore[no-untyped-call, unused-ignore]
            self.node = QuickNode(nodes, self.devices)
            await self.node.connect()
            await until(self._all_healthy, 10)
            for number in range(self.devices):
                self.held.append(await self.take(f"blocker-{number}"))
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._channel is not None:
            await self.node.disconnect()
            await self._channel.close()
        self.kill()
        for path in sorted(self.home.rglob("*"), reverse=True):
            path.unlink() if not path.is_dir() else path.rmdir()
        self.home.rmdir()

    async def start(self) -> None:
        with (self.home / "pool.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "gpupool.cli.main", "pool", "serve", *self._serve_arguments],
                env={**os.environ, "GPUPOOL_HOME": str(self.home), "PYTHONPATH": str(ROOT / "server")},
                stdout=log,
                stderr=log,
            )
        # A server that was killed has left its socket: only the new one answers.
        await until(self._answers, 20)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    async def restart(self) -> None:
        """kill -9, and the same ledger again. The node, whose workers lived on, connects again."""
        self.kill()
        await self.node.disconnect()
        await self.start()
        await self.node.connect()
        await until(self._all_healthy, 20)

    def resident_mib(self) -> float:
        """Memory of the server process."""
        assert self._process is not None
        return psutil.Process(self._process.pid).memory_info().rss / (1 << 20)

    def processor_seconds(self) -> float:
        assert self._process is not None
        times = psutil.Process(self._process.pid).cpu_times()
        return times.user + times.system

    async def free(self, number: int) -> None:
        """Gives so many of the held devices back."""
        for _ in range(number):
            lease = self.held.pop()
            await self.pool.Release(pool_pb2.ReleaseLease(lease_id=lease, close_session=True, reason="exit"))

    async def waiting(self) -> int:
        return len((await self.pool.ListQueue(pool_pb2.ListRequest())).entries)

    async def nobody_waits(self) -> bool:
        return await self.waiting() == 0

    async def as_many_wait(self, number: int) -> bool:
        return await self.waiting() == number

    async def take(self, key: str) -> str:
        message = pool_pb2.RequestLease(idempotency_key=key, milli=1000, reservation=True)
        events = [event async for event in self.pool.Request(message, timeout=20)]
        assert events[-1].WhichOneof("event") == "granted", events
        return str(events[-1].granted.lease_id)

    async def _all_healthy(self) -> bool:
        devices = (await self.pool.ListDevices(pool_pb2.ListRequest())).devices
        return len(devices) == self.devices and all(device.healthy for device in devices)

    async def _answers(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise RuntimeError((self.home / "pool.log").read_text())
        channel = grpc.aio.insecure_channel(self.endpoint)
        stub: Any = pool_pb2_grpc.PoolStub(channel)  # type: ignore[no-untyped-call, unused-ignore]
        try:
            await stub.Health(pool_pb2.HealthRequest(), timeout=1)
        except grpc.aio.AioRpcError:
            return False
        finally:
            await channel.close()
        return True


class Askers:
    """`many_askers` processes, and what they say."""

    def __init__(self, endpoint: str, count: int, processes: int, channels: int) -> None:
        each = -(-count // processes)
        self._processes = [(first, min(each, count - first)) for first in range(0, count, each)]
        self._endpoint = endpoint
        self._channels = channels
        self._running: list[asyncio.subprocess.Process] = []

    async def __aenter__(self) -> Self:
        for first, count in self._processes:
            self._running.append(
                await asyncio.create_subprocess_exec(
                    sys.executable, "-m", "tests.support.many_askers", self._endpoint, str(first), str(count),
                    str(self._channels),
                    stdout=subprocess.PIPE, limit=1 << 26,
                    env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "server")])},
                )
            )  # fmt: skip
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._running:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def said(self, what: str) -> list[list[Any]]:
        """The next line of each process, put together."""
        lines = await asyncio.gather(*(self._line(process) for process in self._running))
        return [row for line in lines for row in line[what]]

    async def _line(self, process: asyncio.subprocess.Process) -> dict[str, Any]:
        assert process.stdout is not None
        line = await process.stdout.readline()
        if not line:
            raise RuntimeError(f"a client process ended with status {await process.wait()}")
        return dict(json.loads(line))


async def until(holds: Callable[[], Any], seconds: float) -> None:
    async with asyncio.timeout(seconds * BUSY):
        while not await holds():
            await asyncio.sleep(0.05)

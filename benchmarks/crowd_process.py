"""Agents and holders of `crowd.py`: each line on standard input is a step, its answer is a line of JSON.

Run as ``python -m benchmarks.crowd_process ENDPOINT FIRST COUNT WORKERS``. An agent does at once what it is told, and its
workers are there in name alone. The holder of an agent's number stands for a Jupyter server with as many kernels.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import random
import sys
import time
from typing import Any, Final

import grpc.aio
from gpupool.node.profile import DeviceProfile
from gpupool.pool.model.timers import Timers
from gpupool.proto.gpupool.v1 import pool_pb2 as pb
from gpupool.proto.gpupool.v1 import pool_pb2_grpc

_TIMERS: Final = Timers()
_DEVICE_MIB: Final = 80 * 1024
_DRIVER: Final = 13000
#: An answer to a heartbeat that takes longer is counted as late.
_LATE_SECONDS: Final = 1.0
_ATTACH_SECONDS: Final = 600.0


def open_channel(endpoint: str) -> grpc.aio.Channel:
    """A connection of its own, as from a machine of its own."""
    return grpc.aio.insecure_channel(
        endpoint, options=[("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0)]
    )


class Agent:
    """A node whose workers serve as soon as they are asked for, and work all the time."""

    def __init__(self, endpoint: str, number: int, devices: int) -> None:
        self.name = f"node{number:05d}"
        self._beats = 0
        self._late = 0
        self._counted = (0, 0)
        self._answered = asyncio.Event()
        self._channel = open_channel(endpoint)
        self._devices = devices
        self._workers: dict[str, pb.WorkerReport] = {}
        self._sent: dict[int, float] = {}
        self._outgoing: asyncio.Queue[pb.FromNode] = asyncio.Queue()
        self._tasks: list[asyncio.Task[None]] = []

    async def connect(self) -> None:
        """Returns when the pool has answered the first heartbeat."""
        devices = [
            pb.NodeDevice(ordinal=one, profile=_profile(self.name, one), healthy=True)
            for one in range(self._devices)
        ]
        self._send(hello=pb.NodeHello(node=self.name, instance="run-1", devices=devices))
        stub: Any = pool_pb2_grpc.NodesStub(self._channel)  # type: ignore[no-untyped-call, unused-ignore]
        call = stub.Connect(self._said())
        self._tasks = [asyncio.create_task(self._obey(call)), asyncio.create_task(self._beat())]
        await self._answered.wait()

    def count(self) -> tuple[int, int]:
        """Heartbeats since the last call, and how many of them were answered late."""
        counted, self._counted = (
            (self._beats - self._counted[0], self._late - self._counted[1]),
            (self._beats, self._late),
        )
        return counted

    def _send(self, **message: Any) -> None:
        self._outgoing.put_nowait(pb.FromNode(**message))

    async def _said(self) -> Any:
        while True:
            yield await self._outgoing.get()

    async def _beat(self) -> None:
        # Agents of a cluster do not beat together.
        await asyncio.sleep(random.uniform(0, _TIMERS.heartbeat))  # noqa: S311 (no secret)
        while True:
            self._beats += 1
            self._sent[self._beats] = time.monotonic()
            for report in self._workers.values():
                report.usage.device_seconds += _TIMERS.heartbeat / 2
                report.usage.kernels += 1000
            beat = pb.Heartbeat(number=self._beats, workers=self._workers.values())
            self._send(heartbeat=beat)
            await asyncio.sleep(_TIMERS.heartbeat)

    async def _obey(self, call: Any) -> None:
        async for message in call:
            match message.WhichOneof("instruction"):
                case "heartbeat":
                    sent = self._sent.pop(message.heartbeat.number, None)
                    self._late += sent is not None and time.monotonic() - sent > _LATE_SECONDS
                    self._answered.set()
                case "start":
                    self._start(message.start)
                case "stop":
                    self._workers.pop(message.stop.session_id, None)
                    self._send(exited=pb.WorkerExited(session_id=message.stop.session_id))
                case "apply" | "revoke" as kind:
                    order = getattr(message, kind)
                    self._send(
                        applied=pb.LeaseApplied(
                            session_id=order.session_id, epoch=order.epoch, ok=True, request=message.request
                        )
                    )

    def _start(self, order: pb.StartWorker) -> None:
        usage = pb.Usage(client_connected=True, busy=0.5, memory_used=[8 << 30], memory_peak=[9 << 30])
        self._workers[order.session_id] = pb.WorkerReport(
            session_id=order.session_id, epoch=order.epoch, state="attached", address="127.0.0.1:4000",
            usage=usage,
        )  # fmt: skip
        self._send(
            started=pb.WorkerStarted(session_id=order.session_id, epoch=order.epoch, address="127.0.0.1:4000")
        )


class Holder:
    """A Jupyter server: asks for a device for each of its kernels, all at once, and renews them together."""

    def __init__(self, endpoint: str, number: int, kernels: int) -> None:
        self._stub: Any = pool_pb2_grpc.PoolStub(open_channel(endpoint))  # type: ignore[no-untyped-call, unused-ignore]
        self._number = number
        self._kernels = kernels
        self._leases: list[str] = []
        self.lost = 0
        self._task: asyncio.Task[None] | None = None

    async def attach(self) -> list[float]:
        """How long each had to wait, seconds."""
        began = time.monotonic()
        # Who waits for the others must not lose what is there already.
        self._task = asyncio.create_task(self._renew())
        return await asyncio.gather(*(self._attach(kernel, began) for kernel in range(self._kernels)))

    async def _attach(self, kernel: int, began: float) -> float:
        message = pb.RequestLease(
            idempotency_key=f"crowd-{self._number}-{kernel}",
            milli=1000,
            wait_seconds=-1.0,
            on_behalf_of=f"user{self._number}",
        )
        async for event in self._stub.Request(message, timeout=_ATTACH_SECONDS):
            match event.WhichOneof("event"):
                case "granted":
                    self._leases.append(event.granted.lease_id)
                case "refused":
                    raise RuntimeError(
                        f"kernel {kernel} of user{self._number} was refused: {event.refused.reason}"
                    )
        return time.monotonic() - began

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(_TIMERS.renew * random.uniform(0.8, 1.2))  # noqa: S311 (no secret)
            if self._leases:
                with contextlib.suppress(grpc.aio.AioRpcError):
                    renewed = await self._stub.Renew(pb.RenewLeases(lease_ids=self._leases))
                    self.lost = sum(lease.state != "attached" for lease in renewed.leases)


def _profile(node: str, ordinal: int) -> str:
    device = DeviceProfile(
        ordinal,
        "NVIDIA H100 80GB HBM3",
        f"{abs(hash((node, ordinal))):032x}",
        False,
        _DEVICE_MIB,
        "0000:00:00.0",
        {75: 9},
    )
    return device.encode(_DRIVER)


def _say(answer: list[Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


async def serve(endpoint: str, first: int, count: int, workers: int) -> None:
    """Takes steps until standard input ends."""
    agents = [Agent(endpoint, number, workers) for number in range(first, first + count)]
    holders = [Holder(endpoint, number, workers) for number in range(first, first + count)]
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while line := (await lines.readline()).decode().strip():
        answer: list[Any] = []
        match line:
            case "connect":
                await asyncio.gather(*(agent.connect() for agent in agents))
            case "attach":
                waits = await asyncio.gather(*(holder.attach() for holder in holders))
                answer = list(itertools.chain.from_iterable(waits))
            case "count":
                answer = [agent.count() for agent in agents]
            case "lost":
                answer = [holder.lost for holder in holders]
        # In a thread: a pipe takes little at a time, and whoever reads it may wait for the other processes.
        await asyncio.to_thread(_say, answer)


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], *(int(number) for number in sys.argv[2:5])))

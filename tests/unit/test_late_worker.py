"""A worker that is ready after its node's agent has ended all others is ended as well, and the pool hears that it never began."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from gpupool.client.worker_address import WorkerAddressError
from gpupool.engines.records import WORKER_PROTOCOL, Placement, StartedWorker, WorkerExited
from gpupool.node.connection import Connection
from gpupool.node.instructions import Instructions
from gpupool.proto import pool_pb2

from tests.support.patience import BUSY


class SlowEngine:
    """Its worker is ready when the test says so, and ends when it is stopped."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.ready = asyncio.Event()
        self.stopped: list[str] = []

    async def reserve(self, grants: Any) -> Placement:
        return Placement(())

    async def start(self, placement: Placement, spec: Any) -> StartedWorker:
        await self.ready.wait()
        return StartedWorker(
            spec.session,
            spec.epoch,
            "127.0.0.1:9",
            self._folder / "control",
            (),
            {},
            protocol=WORKER_PROTOCOL,
        )

    async def stop(self, session: str, grace: float, ask: object = None, *, at_once: bool = False) -> None:
        self.stopped.append(session)


async def test_whatever_keeps_a_worker_from_starting_the_pool_hears_of_it(tmp_path: Path) -> None:
    class Failing(SlowEngine):
        async def start(self, placement: Placement, spec: Any) -> StartedWorker:
            raise WorkerAddressError("the address is not host:port")

    engine: Any = Failing(tmp_path)
    told: list[Any] = []
    instructions = Instructions(
        node="n1", engine=engine, send=told.append, answer_seconds=1.0, stop_grace_seconds=1.0
    )
    start = pool_pb2.StartWorker(
        session_id="5e", epoch=3, token="t", fence_seconds=25.0,
        shares=[pool_pb2.DeviceShare(device_id="n1/0", share=pool_pb2.Share(milli=500, mib=100))],
    )  # fmt: skip
    await instructions.obey(Connection(), "start", pool_pb2.ToNode(request=1, start=start))
    (failed,) = told
    assert (failed.failed.session_id, failed.failed.message) == ("5e", "the address is not host:port")


async def test_a_worker_that_is_ready_too_late_is_ended_and_not_told_as_started(tmp_path: Path) -> None:
    engine: Any = SlowEngine(tmp_path)
    told: list[Any] = []
    instructions = Instructions(
        node="n1",
        engine=engine,
        send=told.append,
        answer_seconds=1.0,
        stop_grace_seconds=1.0,
    )
    start = pool_pb2.StartWorker(
        session_id="5e", epoch=3, token="t", fence_seconds=25.0,
        shares=[pool_pb2.DeviceShare(device_id="n1/0", share=pool_pb2.Share(milli=500, mib=100))],
    )  # fmt: skip
    starting = asyncio.create_task(
        instructions.obey(Connection(), "start", pool_pb2.ToNode(request=1, start=start))
    )
    await asyncio.sleep(0.01)
    instructions.ending = True
    engine.ready.set()
    async with asyncio.timeout(10.0 * BUSY):
        while "5e" not in instructions.outlasting:
            await asyncio.sleep(0.01)
        # As the agent's watch does with an end that is none of the session.
        instructions.outlasting.pop("5e").set_result(WorkerExited("5e", 0, ""))
        await starting
    assert engine.stopped == ["5e"]
    assert instructions.links == {}
    (failed,) = told
    assert (failed.failed.session_id, failed.failed.epoch) == ("5e", 3)
    assert "going down" in failed.failed.message

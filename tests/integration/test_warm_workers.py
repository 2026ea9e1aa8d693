"""Workers started ahead: taken by the next session, never known to anybody before, gone with their agent."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest
from gpupool.client.native import native_directory
from gpupool.engines.local import LocalEngine
from gpupool.engines.records import DeviceGrant, EngineError, Placement, WorkerSpec
from gpupool.engines.warm_workers import REFILL_SECONDS
from gpupool.node.clock import boottime_ns
from gpupool.node.control import ControlChannel, Notice
from gpupool.node.driver import probe

from tests.support.pool_node import native_worker_is_built

SCRIPTED_WORKER = (sys.executable, str(Path(__file__).parents[1] / "support" / "scripted_worker.py"))
SESSION = "0123456789abcdef0123456789abcdef"


class Node:
    def __init__(self, directory: Path, worker: tuple[str, ...], driver: str) -> None:
        self.directory = directory

        async def inventory():  # type: ignore[no-untyped-def]
            return (await probe(driver, worker, {})).inventory()

        self.engine = LocalEngine(
            run_directory=directory / "workers",
            worker_command=worker,
            driver=driver,
            inventory=inventory,
            warm_workers=1,
        )

    def warm(self) -> list[int]:
        """Processes that wait for a session."""
        found = []
        for process in psutil.process_iter(["cwd", "status"]):
            if process.info["status"] == psutil.STATUS_ZOMBIE:
                continue
            if str(process.info["cwd"] or "").startswith(str(self.directory / "workers" / ".warm")):
                found.append(process.pid)
        return found

    async def one_is_warm(self) -> int:
        async with asyncio.timeout(10):
            while len(found := self.warm()) != 1:
                await asyncio.sleep(0.02)
        return found[0]

    async def start(self, session: str = SESSION) -> int:
        placement = await self.engine.reserve((DeviceGrant(0, "", 200, 512),))
        assert isinstance(placement, Placement)
        spec = WorkerSpec(session, 1, placement.devices, "ab" * 32, boottime_ns() + 30 * 10**9)
        started = await self.engine.start(placement, spec)
        return int(started.state["pid"])


@pytest.fixture(
    params=[
        "scripted",
        pytest.param(
            "real", marks=pytest.mark.skipif(not native_worker_is_built(), reason="native worker not built")
        ),
    ]
)
async def node(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Node]:
    native = native_directory()
    if request.param == "real":
        made = Node(
            tmp_path, (str(native / "bin" / "gpupool-worker"),), str(native / "softgpu" / "libcuda.so.1")
        )
    else:
        made = Node(tmp_path, SCRIPTED_WORKER, "/dev/null")
    await made.engine.list_owned()
    try:
        yield made
    finally:
        for session in (SESSION, "1" * 32):
            await made.engine.stop(session, 0.1)
        await made.engine.close()


async def test_a_session_gets_the_worker_that_waits_and_another_is_started(node: Node) -> None:
    waiting = await node.one_is_warm()
    assert await node.start() == waiting
    assert not node.warm()
    directory = node.directory / "workers" / SESSION
    said: list[Notice] = []
    channel = await ControlChannel.connect(directory / "control.sock", said.append)
    await channel.stats()
    await channel.close()
    assert said
    assert (directory / "worker.log").exists()
    assert await node.one_is_warm() != waiting
    # And that one is as good.
    assert await node.start("1" * 32) != waiting


async def test_a_worker_that_died_while_it_waited_costs_nobody_a_session(node: Node) -> None:
    waiting = await node.one_is_warm()
    os.kill(waiting, signal.SIGKILL)
    assert await node.start() != waiting


async def test_an_agent_that_ends_leaves_no_worker_that_waits(node: Node) -> None:
    waiting = await node.one_is_warm()
    await node.engine.close()
    assert not psutil.pid_exists(waiting)
    assert node.warm() == []
    assert not (node.directory / "workers" / ".warm").exists()


async def test_folders_that_a_killed_agent_left_are_no_sessions(node: Node) -> None:
    await node.one_is_warm()
    left = node.directory / "workers" / ".warm" / "99"
    left.mkdir()
    (left / "worker.log").write_text("")
    again = Node(node.directory, SCRIPTED_WORKER, "/dev/null")
    assert await again.engine.list_owned() == ()
    assert not left.exists()
    await again.engine.close()


async def test_a_driver_that_does_not_work_does_not_start_workers_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCRIPTED_WORKER", "fail")
    node = Node(tmp_path, SCRIPTED_WORKER, "/dev/null")
    await node.engine.inventory()
    await node.engine.list_owned()
    await asyncio.sleep(0.3)
    assert len(node.warm()) <= 1
    with pytest.raises(EngineError, match="did not start"):
        await node.start()
    await node.engine.close()
    assert node.warm() == []
    assert REFILL_SECONDS >= 0.5  # so that it is not in the way of a first kernel

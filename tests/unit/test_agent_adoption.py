"""An agent that comes back adopts its workers. One that cannot be ended keeps it from none of the others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from gpupool.engines.records import WORKER_PROTOCOL, DeviceInventory, StartedWorker, WorkerExited
from gpupool.node.agent import Agent
from gpupool.node.agent_settings import AgentSettings
from gpupool.node.control import WorkerStats
from gpupool.node.health import DeviceHealth
from gpupool.node.health_watch import HealthWatch
from gpupool.node.session_images import SessionImages
from gpupool.node.worker_link import WorkerLink

from tests.support.patience import BUSY


class HungEngine:
    """Its one worker neither answers nor ends: it is in a call of a driver that hangs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.stops: list[str] = []

    async def inventory(self) -> tuple[DeviceInventory, ...]:
        return ()

    async def list_owned(self) -> tuple[StartedWorker, ...]:
        return (
            StartedWorker("5e", 1, "127.0.0.1:9", self._folder / "control", (), {}, protocol=WORKER_PROTOCOL),
        )

    async def watch(self) -> AsyncIterator[WorkerExited]:
        await asyncio.Event().wait()
        yield WorkerExited("5e", None, "")

    async def stop(self, session: str, grace: float, ask: object = None, *, at_once: bool = False) -> None:
        self.stops.append(session)
        await asyncio.Event().wait()

    async def close(self) -> None:
        pass


async def test_a_worker_that_cannot_be_ended_does_not_keep_the_node_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine: Any = HungEngine(tmp_path)
    settings = AgentSettings(node="n1", endpoint="127.0.0.1:1", leave_workers=True)
    agent = Agent(settings, engine, HealthWatch(DeviceHealth()))
    serves = asyncio.Event()

    async def serve() -> None:
        serves.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(agent._pool, "serve", serve)
    running = asyncio.create_task(agent.run())
    async with asyncio.timeout(10.0 * BUSY):
        await serves.wait()
        # The pool hears of it, and frees its share when it is fenced.
        assert list(agent._instructions.links) == ["5e"]
        while not engine.stops:
            await asyncio.sleep(0.01)
        agent.stop()
        await running


async def test_what_lies_on_disk_of_a_session_that_a_worker_has_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent that was killed while it wrote or read it left it there: it could replace newer memory later."""
    images = SessionImages(tmp_path / "images")
    images.begin("5e")
    images.finish("5e")
    assert images.sessions() == frozenset({"5e"})
    engine: Any = HungEngine(tmp_path)
    settings = AgentSettings(node="n1", endpoint="127.0.0.1:1", leave_workers=True, images=images)
    agent = Agent(settings, engine, HealthWatch(DeviceHealth()))

    async def refresh(link: WorkerLink) -> None:
        link.stats = WorkerStats()

    monkeypatch.setattr(WorkerLink, "refresh", refresh)
    [worker] = await engine.list_owned()
    await agent._adopt(worker)
    assert images.sessions() == frozenset()


async def test_what_follows_the_word_to_end_at_once_is_the_same_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine: Any = HungEngine(tmp_path)
    agent = Agent(AgentSettings(node="n1", endpoint="127.0.0.1:1"), engine, HealthWatch(DeviceHealth()))
    clock = [100.0]
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: clock[0])
    agent.stop()
    clock[0] += 1.0
    agent.stop()
    assert not agent._at_once.is_set()
    clock[0] += 1.5
    agent.stop()
    assert agent._at_once.is_set()

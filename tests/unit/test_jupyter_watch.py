"""The watch ends sessions of kernels that are gone, and of no others."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import pytest_asyncio

from jupyter_gpupool.server.session.sessions import Sessions
from jupyter_gpupool.server.watching import watch as watch_module
from jupyter_gpupool.server.watching.busy import BusyTracker
from jupyter_gpupool.server.watching.idle import IdleLimits
from jupyter_gpupool.server.watching.watch import Watch
from tests.support.memory_pool import MemoryPool


class Server:
    """Sessions and their watch; ``listed`` are the kernels that the server lists."""

    def __init__(self, directory: Path) -> None:
        self.listed: list[str] = []
        self.sessions = Sessions(MemoryPool(), directory, on_change=lambda _session: None)
        self.watch = Watch(
            self.sessions,
            BusyTracker(SimpleNamespace()),
            limits=IdleLimits,
            live_kernels=lambda: list(self.listed),
            on_active=lambda _kernels: None,
        )


@pytest_asyncio.fixture
async def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Server]:
    monkeypatch.setattr(watch_module, "RECONCILE_SECONDS", 0.0)
    built = Server(tmp_path / "sessions")
    await built.sessions.start()
    yield built
    await built.sessions.stop()


@pytest.mark.asyncio
async def test_a_kernel_that_is_just_being_started_keeps_its_session(server: Server) -> None:
    """The server lists a kernel only when it has started; the session is made before."""
    session = await server.sessions.launch("starting")
    await server.watch.tick()
    server.listed.append("starting")
    await server.watch.tick()
    await server.watch.tick()
    assert server.sessions.get("starting") is session


@pytest.mark.asyncio
async def test_a_kernel_that_vanished_without_a_word_loses_its_session(server: Server) -> None:
    server.listed.append("vanishing")
    session = await server.sessions.launch("vanishing")
    await server.watch.tick()
    server.listed.clear()
    await server.watch.tick()
    await server.watch.tick()
    assert server.sessions.get("vanishing") is None
    assert not session.files.session.path.exists()


@pytest.mark.asyncio
async def test_a_new_launch_is_not_taken_for_the_one_that_was_missing(server: Server) -> None:
    await server.sessions.launch("again")
    await server.watch.tick()
    second = await server.sessions.launch("again")
    await server.watch.tick()
    assert server.sessions.get("again") is second

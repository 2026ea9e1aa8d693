"""A pool that is silent for longer than a lease lives: what a kernel's session does, and what its cell is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import pytest_asyncio
from gpupool.client import holder
from gpupool.client.session.state import State
from gpupool.client.session.words import SILENT_POOL
from gpupool.client.session_file import SILENT, SessionRecord
from gpupool.client.types import Usage
from gpupool.request.gpu_request import GpuRequest
from gpupool.shares import Share

from jupyter_gpupool.kernel import device, silence
from jupyter_gpupool.server.session.session import KernelSession
from jupyter_gpupool.server.session.sessions import Sessions
from jupyter_gpupool.server.session.words import GIVEN_BACK
from jupyter_gpupool.server.watching.busy import BusyTracker
from jupyter_gpupool.server.watching.idle import IdleLimits
from jupyter_gpupool.server.watching.watch import Watch
from tests.support.memory_pool import MemoryPool

#: Seconds between renewals.
INTERVAL = 0.05


class Server:
    """The sessions of one Jupyter server, over a pool in memory."""

    def __init__(self, folder: Path, return_seconds: float | None = None) -> None:
        self.pool = MemoryPool()
        pool: Any = self.pool
        self.sessions = Sessions(
            pool,
            folder,
            on_change=lambda _: None,
            renew_seconds=INTERVAL,
            return_seconds=return_seconds,
        )

    async def kernel(self, name: str, scope: str | None = None) -> KernelSession:
        session = await self.sessions.launch(name)
        await session.attach(GpuRequest(Share(200)), by="magic", scope=scope, hold=scope is None)
        return session


async def until(happened: Callable[[], object]) -> None:
    async with asyncio.timeout(5.0):
        while not happened():
            await asyncio.sleep(0.01)


def file_of(session: KernelSession) -> SessionRecord:
    return session.files.session.read()


@pytest.fixture(autouse=True)
def short_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holder, "LEASE_SECONDS", 4 * INTERVAL)


@pytest_asyncio.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    server = Server(tmp_path)
    await server.sessions.start()
    yield server
    server.pool.down = False
    await server.sessions.stop()


async def test_all_kernels_wait_and_go_on_when_it_answers(server: Server) -> None:
    cell, held = await server.kernel("k1", "a"), await server.kernel("k2")
    before = cell.record
    server.pool.down = True
    await until(lambda: cell.silence and held.silence)
    for session in (cell, held):
        found = file_of(session)
        assert (found.state, found.reason, found.message) == ("waiting", SILENT, SILENT_POOL)
        assert session.record.state is State.ATTACHED
    server.pool.down = False
    await until(lambda: not cell.silence and not held.silence)
    assert (file_of(cell).state, file_of(held).state) == ("attached", "attached")
    assert (cell.record, cell.silent_for()) == (before, 0.0)


async def test_a_lease_that_is_over_is_taken_again_with_its_session(server: Server) -> None:
    session = await server.kernel("k1", "a")
    lease = session.record.lease
    assert lease is not None
    server.pool.down = True
    await until(lambda: session.silence)
    server.pool.end(lease.lease_id, "lost")
    server.pool.down = False
    await until(lambda: file_of(session).state == "attached")
    assert session.record.lease != lease
    assert (session.record.session_id, session.record.scopes) == (lease.session_id, frozenset({"a"}))


async def test_a_session_that_is_lost_is_said_to_be(server: Server) -> None:
    session = await server.kernel("k1", "a")
    lease = session.record.lease
    assert lease is not None
    server.pool.down = True
    await until(lambda: session.silence)
    server.pool.end(lease.lease_id, "lost", lost=True)
    server.pool.down = False
    await until(lambda: session.record.state is State.LOST)
    found = file_of(session)
    assert found.state == "closed"
    assert "Arrays on it must be made again" in found.message


async def test_a_cell_that_is_interrupted_leaves_nothing_that_waits(server: Server) -> None:
    session = await server.kernel("k1", "a")
    server.pool.down = True
    await until(lambda: session.silence)
    leaving = asyncio.create_task(session.leave_scope("a"))
    await until(lambda: file_of(session).state == "parked")
    assert (session.silence, session.record.state) == ("", State.PARKED)
    server.pool.down = False
    await leaving


async def test_who_never_waits_gives_up(tmp_path: Path) -> None:
    server = Server(tmp_path, return_seconds=0)
    await server.sessions.start()
    session = await server.kernel("k1")
    server.pool.down = True
    await until(lambda: session.record.state is State.PARKED)
    assert session.record.message is not None
    assert session.record.message.startswith(GIVEN_BACK)
    server.pool.down = False
    await server.sessions.stop()


async def test_what_was_in_flight_keeps_no_idle_kernel_from_its_release(server: Server) -> None:
    session = await server.kernel("k1")
    busy = BusyTracker.__new__(BusyTracker)
    monkey: Any = busy
    monkey.busy = lambda _: False
    monkey.last_ended_at = lambda _: 0.0
    watch = Watch(server.sessions, busy, IdleLimits, lambda: ["k1"], lambda _: None)
    session.used(Usage(in_flight=True, work="running", kernel="long"), 0.0)
    session.work_seen_at = session.attached_at
    assert watch.verdict(session).gpu_seconds == 0
    server.pool.down = True
    await until(lambda: session.silence)
    await asyncio.sleep(INTERVAL)
    assert (watch.verdict(session).gpu_seconds or 0) > 0
    server.pool.down = False


# --- what the cell is told ----------------------------------------------------------------------


class Told:
    """Stands for the line below a cell; and for the file that the cell's thread reads."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lines: list[str] = []
        self.now = 100.0
        self.file = SessionRecord()
        monkeypatch.setattr(silence, "LOOK_SECONDS", 0.01)
        monkeypatch.setattr(silence, "Progress", lambda: SimpleNamespace(tell=self.lines.append))
        monkeypatch.setattr(device, "session", lambda: self.file)
        self.pool = silence.SilentPool(lambda: self.now)

    def silent(self) -> None:
        self.file = SessionRecord("waiting", message=SILENT_POOL, reason=SILENT)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    return Told(monkeypatch)


async def test_a_cell_is_told_once_why_it_waits_and_then_for_how_long_it_did(told: Told) -> None:
    cell = object()
    told.pool.pre_run_cell(cell)
    told.silent()
    await until(lambda: told.lines)
    assert told.lines[0].startswith(SILENT_POOL)
    assert "Interrupt" in told.lines[0]
    await asyncio.sleep(0.05)
    told.now += 83
    told.file = SessionRecord("waiting", message="The GPU was taken back for others.")
    await until(lambda: len(told.lines) == 2)
    assert "83 s" in told.lines[1]
    told.pool.post_run_cell(SimpleNamespace(info=cell))
    assert len(told.lines) == 2


async def test_the_line_ends_with_the_cell_and_not_with_one_inside_it(told: Told) -> None:
    outer, inner = object(), object()
    told.pool.pre_run_cell(outer)
    told.pool.pre_run_cell(inner)
    told.pool.post_run_cell(SimpleNamespace(info=inner))
    told.silent()
    await until(lambda: told.lines)
    told.pool.post_run_cell(SimpleNamespace(info=object()))  # an empty cell has no beginning
    assert len(told.lines) == 1
    told.pool.post_run_cell(None)
    assert len(told.lines) == 2
    told.pool.post_run_cell(None)
    await asyncio.sleep(0.05)
    assert len(told.lines) == 2


async def test_other_waits_have_words_of_their_own(told: Told) -> None:
    cell = object()
    told.file = SessionRecord("waiting", message="The GPU was taken back for others.")
    told.pool.pre_run_cell(cell)
    await asyncio.sleep(0.05)
    told.pool.post_run_cell(SimpleNamespace(info=cell))
    assert told.lines == []

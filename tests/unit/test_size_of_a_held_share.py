"""A cell that asks for more than its kernel holds: beside a pool that is away, and when it gives the rest back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest
import pytest_asyncio
from gpupool.client.errors import PoolRefusedError
from gpupool.client.pool import NO_ANSWER
from gpupool.client.session import changing_size, shell
from gpupool.client.session import session as session_module
from gpupool.client.session.session import AttachRefusedError
from gpupool.client.types import Grant, QueuePlace
from gpupool.request.gpu_request import GpuRequest
from gpupool.shares import Share

from jupyter_gpupool.server.session.session import KernelSession
from jupyter_gpupool.server.session.sessions import Sessions
from tests.support.memory_pool import MemoryPool

#: Seconds between renewals.
INTERVAL = 0.05


class Kernel:
    """A kernel that holds 0.2, and its pool in memory."""

    def __init__(self, sessions: Sessions, pool: MemoryPool, session: KernelSession) -> None:
        self.sessions = sessions
        self.pool = pool
        self.session = session

    async def cell(
        self,
        scope: str,
        milli: int,
        wait_seconds: float | None = 30.0,
        on_queued: Callable[[QueuePlace], None] | None = None,
    ) -> None:
        request = GpuRequest(Share(milli), wait_seconds=wait_seconds)
        await self.session.attach(request, by="magic", scope=scope, on_queued=on_queued)

    @property
    def milli(self) -> int:
        """What it holds, as it knows."""
        assert self.session.record.lease is not None
        return self.session.record.lease.shares[0].milli

    @property
    def granted_milli(self) -> int:
        """What it holds, as the pool knows."""
        return self.pool.capacity_milli - self.pool.free_milli

    async def becomes(self, milli: int) -> None:
        async with asyncio.timeout(5.0):
            while (self.milli, self.granted_milli) != (milli, milli) or self.session.record.asking:
                await asyncio.sleep(0.01)


@pytest_asyncio.fixture
async def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Kernel]:
    monkeypatch.setattr(changing_size, "AGAIN_SECONDS", 0.02)
    pool = MemoryPool()
    served: Any = pool
    sessions = Sessions(served, tmp_path, on_change=lambda _: None, renew_seconds=INTERVAL)
    await sessions.start()
    session = await sessions.launch("k1")
    await session.attach(GpuRequest(Share(200)), by="sidebar", hold=True)
    yield Kernel(sessions, pool, session)
    pool.down = False
    await sessions.stop()


def lose_answers(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on the pool does what it is asked for, and goes away before it says so."""
    resize = kernel.pool.resize

    async def lost(lease_id: str, share: Share) -> Grant:
        await resize(lease_id, share)
        kernel.pool.down = True
        return await resize(lease_id, share)

    monkeypatch.setattr(kernel.pool, "resize", lost)


async def test_a_cell_waits_for_a_pool_that_is_away_and_says_so_once(kernel: Kernel) -> None:
    told: list[QueuePlace] = []
    kernel.pool.down = True
    cell = asyncio.create_task(kernel.cell("a", 500, on_queued=told.append))
    while [call for call, _ in kernel.pool.calls].count("resize") < 3:
        await asyncio.sleep(0.01)
    assert told == [QueuePlace(0, NO_ANSWER, None)]
    kernel.pool.down = False
    await cell
    assert (kernel.milli, kernel.session.record.scopes) == (500, {"a"})


@pytest.mark.parametrize("wait_seconds", [0.0, 0.05])
async def test_a_cell_waits_no_longer_than_it_wants_to(kernel: Kernel, wait_seconds: float) -> None:
    kernel.pool.down = True
    with pytest.raises(AttachRefusedError) as refused:
        await kernel.cell("a", 500, wait_seconds)
    assert refused.value.reason == "pool-down"
    assert kernel.session.record.scopes == frozenset()
    kernel.pool.down = False
    await kernel.becomes(200)


async def test_a_person_who_resizes_does_not_wait(kernel: Kernel) -> None:
    kernel.pool.down = True
    with pytest.raises(AttachRefusedError) as refused:
        await kernel.session.resize(Share(500))
    assert refused.value.reason == "pool-down"


async def test_an_interrupted_cell_leaves_nothing_that_asks(kernel: Kernel) -> None:
    kernel.pool.down = True
    cell = asyncio.create_task(kernel.cell("a", 500))
    while "resize" not in [call for call, _ in kernel.pool.calls]:
        await asyncio.sleep(0.01)
    cell.cancel()
    await asyncio.wait([cell])
    await kernel.session.leave_scope("a")
    async with asyncio.timeout(5.0):
        while kernel.session.record.asking is not None:
            await asyncio.sleep(0.01)
    kernel.pool.down = False
    await kernel.becomes(200)


async def test_what_a_cell_had_goes_back_when_the_pool_answers_again(kernel: Kernel) -> None:
    await kernel.cell("a", 500)
    kernel.pool.down = True
    await kernel.session.leave_scope("a")
    assert kernel.granted_milli == 500
    kernel.pool.down = False
    await kernel.becomes(200)


async def test_a_growth_whose_answer_is_lost_goes_back(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose_answers(kernel, monkeypatch)
    with pytest.raises(AttachRefusedError):
        await kernel.cell("a", 500, wait_seconds=0.0)
    assert (kernel.milli, kernel.granted_milli) == (200, 500)
    monkeypatch.undo()
    kernel.pool.down = False
    await kernel.becomes(200)


@pytest.mark.parametrize("reason", ["busy", "worker-failed"])
async def test_a_growth_that_the_pool_has_not_finished_goes_back(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    resize = kernel.pool.resize

    async def unfinished(lease_id: str, share: Share) -> Grant:
        await resize(lease_id, share)
        raise PoolRefusedError(reason, "Both sizes are kept until the worker has confirmed.")

    with monkeypatch.context() as pool:
        pool.setattr(kernel.pool, "resize", unfinished)
        with pytest.raises(AttachRefusedError) as refused:
            await kernel.cell("a", 500)
        assert refused.value.reason == reason
        assert (kernel.milli, kernel.granted_milli) == (200, 500)
    await kernel.becomes(200)


@pytest.mark.parametrize("reason", ["busy", "ledger", "worker-failed"])
async def test_what_a_cell_had_goes_back_though_the_pool_cannot_do_it_at_once(
    kernel: Kernel, reason: str
) -> None:
    await kernel.cell("a", 500)
    kernel.pool.refuses["resize"] = [reason]
    await kernel.session.leave_scope("a")
    assert kernel.granted_milli == 500
    await kernel.becomes(200)


async def test_a_cell_that_starts_while_the_rest_goes_back_takes_its_turn(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    await kernel.cell("a", 500)
    resize, answers = kernel.pool.resize, asyncio.Event()

    async def slow(lease_id: str, share: Share) -> Grant:
        await answers.wait()
        return await resize(lease_id, share)

    monkeypatch.setattr(kernel.pool, "resize", slow)
    leaving = asyncio.create_task(kernel.session.leave_scope("a"))
    await asyncio.sleep(0)
    assert kernel.session.record.asking is not None
    cell = asyncio.create_task(kernel.cell("b", 300))
    person = asyncio.create_task(kernel.session.resize(Share(400)))
    await asyncio.wait([cell, person], timeout=0.05)
    answers.set()
    await asyncio.gather(leaving, cell, person)
    assert (kernel.milli, kernel.session.record.scopes) == (400, {"b"})


@pytest.mark.parametrize("answer", ["none", "ledger", "hub-busy", "hub-down", "too-many-requests"])
async def test_a_cell_that_fits_needs_no_word_of_the_pool(
    kernel: Kernel, answer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shell, "CONFIRM_SECONDS", 0.01)

    async def renew(_lease_ids: object) -> NoReturn:
        if answer != "none":
            raise PoolRefusedError(answer, "The pool cannot say it now.")
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(kernel.pool, "renew", renew)
    await kernel.cell("a", 100)
    assert kernel.session.record.scopes == {"a"}


async def test_a_token_that_is_refused_gets_no_cell(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    async def renew(_lease_ids: object) -> NoReturn:
        raise PoolRefusedError("forbidden", "The token was revoked.")

    monkeypatch.setattr(kernel.pool, "renew", renew)
    with pytest.raises(AttachRefusedError) as refused:
        await kernel.cell("a", 100)
    assert refused.value.reason == "forbidden"


async def test_a_resize_does_not_wait_behind_a_request_in_the_queue(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "PENDING_SECONDS", 0.01)
    await kernel.session.detach()
    kernel.pool.capacity_milli = 100
    waiting = asyncio.create_task(kernel.session.attach(GpuRequest(Share(200)), by="sidebar", hold=True))
    while not kernel.pool.waiting:
        await asyncio.sleep(0.01)
    with pytest.raises(AttachRefusedError) as refused:
        await kernel.session.resize(Share(100))
    assert refused.value.reason == "pending"
    kernel.pool.capacity_milli = 1000
    kernel.pool.speak()
    await waiting
    assert kernel.milli == 200


async def test_what_is_taken_in_the_place_of_a_request_waits_as_long_as_that(kernel: Kernel) -> None:
    await kernel.session.detach()
    kernel.pool.capacity_milli = 100
    waiting = asyncio.create_task(kernel.session.attach(GpuRequest(Share(500)), by="sidebar", hold=True))
    while not kernel.pool.waiting:
        await asyncio.sleep(0.01)
    taking = asyncio.create_task(kernel.session.take(GpuRequest(Share(300), wait_seconds=0.0)))
    while [request.share for request in kernel.pool.waiting] != [Share(300)]:
        await asyncio.sleep(0.01)
    kernel.pool.capacity_milli = 1000
    kernel.pool.speak()
    await asyncio.gather(waiting, taking)
    assert kernel.milli == 300

"""A request that waits is replaced by another one: the kernel waits all the while, and for nothing once nobody asks."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from gpupool.client.holder import LeaseHolder
from gpupool.client.session.record import Session
from gpupool.client.types import Lease
from gpupool.request.gpu_request import GpuRequest
from gpupool.shares import Share

from jupyter_gpupool.server.session.session import KernelSession
from tests.support.memory_pool import MemoryPool


async def asks_and_takes(
    folder: Path, pool: MemoryPool | None = None
) -> tuple[KernelSession, asyncio.Task[Session]]:
    """A kernel whose request for 0.5 is being replaced by one for 0.1; its pool answers nothing."""
    asked: Any = pool or MemoryPool(silent=True)
    session = KernelSession(
        "k1",
        asked,
        folder / "session",
        leases=LeaseHolder(asked, on_ended=lambda _: None),
        on_change=lambda _: None,
    )
    attach = asyncio.create_task(session.attach(GpuRequest(Share.parse("0.5")), by="sidebar", hold=True))
    while not session.waiting:
        await asyncio.sleep(0)
    await session.take(GpuRequest(Share.parse("0.1")))
    return session, attach


class SlowPool(MemoryPool):
    """Whoever asks which leases there are waits until the test lets it."""

    listing: asyncio.Event

    async def leases(self) -> list[Lease]:
        await self.listing.wait()
        return await super().leases()


async def test_the_other_request_is_made_when_strays_of_the_first_are_gone(tmp_path: Path) -> None:
    """Its lease would be given back with them."""
    pool = SlowPool(silent=True)
    pool.listing = asyncio.Event()
    session, attach = await asks_and_takes(tmp_path, pool)
    for _ in range(50):
        await asyncio.sleep(0)
    assert Share.parse("0.1") not in [request.share for request in pool.requests]
    assert session.waiting
    pool.listing.set()
    async with asyncio.timeout(10):
        while not pool.requests:
            await asyncio.sleep(0)
    assert pool.requests[-1].share == Share.parse("0.1")
    attach.cancel()
    await asyncio.wait([attach], timeout=1.0)


async def test_it_waits_in_every_moment_until_the_other_request_is_made(tmp_path: Path) -> None:
    session, attach = await asks_and_takes(tmp_path)
    for _ in range(20):
        assert session.waiting
        await asyncio.sleep(0)
    asking = session.record.asking
    assert asking is not None
    assert asking.request.share == Share.parse("0.1")
    attach.cancel()
    await asyncio.wait([attach], timeout=1.0)


@pytest.mark.parametrize("passes", range(6))
async def test_it_waits_for_nothing_when_nobody_asks_any_more(passes: int, tmp_path: Path) -> None:
    session, attach = await asks_and_takes(tmp_path)
    for _ in range(passes):
        await asyncio.sleep(0)
    attach.cancel()
    await asyncio.wait([attach], timeout=1.0)
    assert (attach.cancelled(), session.waiting) == (True, False)


async def test_a_slow_look_for_strays_does_not_take_the_lease_that_came_meanwhile(tmp_path: Path) -> None:
    """Two requests are given up while the pool is slow to say which leases there are; the third one is granted."""
    pool = SlowPool(silent=True)
    pool.listing = asyncio.Event()
    session, attach = await asks_and_takes(tmp_path, pool)
    attach.cancel()
    await asyncio.wait([attach], timeout=1.0)
    pool.silent = False
    third = asyncio.create_task(session.attach(GpuRequest(Share.parse("0.3")), by="sidebar", hold=True))
    for _ in range(50):
        await asyncio.sleep(0)
    assert not third.done()
    pool.listing.set()
    async with asyncio.timeout(10):
        record = await third
    for _ in range(50):
        await asyncio.sleep(0)
    assert record.lease is not None
    assert not [name for name, _ in pool.calls if name == "release"]

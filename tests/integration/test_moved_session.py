"""A session goes on in another node: every byte of its memory is compared, whoever is killed on the way."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpupool.client.errors import GpupoolError, PoolRefusedError

from tests.support.pattern_client import Holder, PatternClient, holding
from tests.support.pool_node import REUSE_SECONDS, SCALE, PoolAndNode, native_worker_is_built

pytestmark = [
    pytest.mark.skipif(not native_worker_is_built(), reason="needs the native build (`make build`)"),
    pytest.mark.timeout(180),
]

SMALL = ("--memory-mib", "1024")


@pytest.fixture(scope="module")
def started() -> Iterator[PoolAndNode]:
    with PoolAndNode(real_worker=True, gpus=1, node_arguments=SMALL) as stack:
        stack.start_node(*SMALL, name="n2")
        yield stack


@pytest.fixture
def two(started: PoolAndNode) -> PoolAndNode:
    """Two nodes, n1 and n2, of one device of 1 GiB each, of which nothing is taken."""
    started.wait(lambda: len(started.healthy()) == 2 and not started.worker_pids(), 30, "two empty nodes")
    return started


@pytest.fixture
def slow() -> Iterator[PoolAndNode]:
    """The same with longer times: a pool that is killed is back before workers fence themselves, also on a busy machine."""
    with PoolAndNode(real_worker=True, gpus=1, scale=4 * SCALE, node_arguments=SMALL) as stack:
        stack.start_node(*SMALL, name="n2")
        stack.wait(lambda: len(stack.healthy()) == 2, 30, "two empty nodes")
        yield stack


async def parked_beside_a_full_device(holder: Holder, mib: int = 60) -> tuple[PatternClient, PatternClient]:
    """A parked session, and who holds so much of its device that it cannot go on there."""
    first = await holder.attached(100)
    await first.tell_program(f"fill {mib} 7")
    await first.tell_program("fill 1 8")
    await first.tell_program("add")
    await first.detach()
    assert first.devices == ["n1/0"]
    other = await holder.attached(900)
    assert other.devices == ["n1/0"], "the best fit is beside it"
    return first, other


async def test_when_its_own_is_full_and_comes_back_again(two: PoolAndNode, tmp_path: Path) -> None:
    async with holding(two.endpoint, tmp_path) as holder:
        first, other = await parked_beside_a_full_device(holder)
        session = first.session_id
        await first.attach(500)
        assert (first.session_id, first.devices) == (session, ["n2/0"])
        assert await first.tell_program("check") == str(61 << 20)
        assert await first.tell_program("add") == "2"
        two.wait(lambda: len(two.worker_pids()) == 2, 10, "the worker that it left to end")
        await first.detach()
        await other.detach(close=True)
        elsewhere = await holder.attached(900)
        third = await holder.attached(900)
        assert (elsewhere.devices, third.devices) == (["n1/0"], ["n2/0"])
        await elsewhere.detach(close=True)
        await first.attach(500)
        assert first.devices == ["n1/0"]
        assert await first.tell_program("check") == str(61 << 20)


async def test_with_memory_that_lies_in_host_memory(two: PoolAndNode, tmp_path: Path) -> None:
    async with holding(two.endpoint, tmp_path) as holder:
        first, other = await parked_beside_a_full_device(holder)
        await other.resize(1000)
        assert (await first.info()).memory_place == "host"
        await first.attach(300)
        assert first.devices == ["n2/0"]
        assert await first.tell_program("check") == str(61 << 20)


async def test_though_the_pool_is_killed_in_between(slow: PoolAndNode, tmp_path: Path) -> None:
    async with holding(slow.endpoint, tmp_path, renew_seconds=5 * slow.scale) as holder:
        first, _ = await parked_beside_a_full_device(holder)
        asking = asyncio.create_task(first.attach(500))
        await asyncio.sleep(0.15)
        await asyncio.to_thread(slow.kill, "pool")
        await asyncio.to_thread(slow.start_pool)
        slow.wait(slow.healthy, 20, "the pool to be back")
        (asked,) = await asyncio.gather(asking, return_exceptions=True)
        if isinstance(asked, BaseException) or not await is_held(first):  # not renewed in time, by then
            await attached_in_the_end(first, 500)
        assert first.devices == ["n2/0"]
        assert await first.tell_program("check") == str(61 << 20)
        slow.wait(lambda: len(slow.worker_pids()) == 2, 20, "one worker per session")


async def test_not_when_the_other_nodes_agent_is_killed_meanwhile_and_nothing_is_lost(
    two: PoolAndNode, tmp_path: Path
) -> None:
    async with holding(two.endpoint, tmp_path) as holder:
        first, other = await parked_beside_a_full_device(holder)
        two.processes["n2"].send_signal(signal.SIGSTOP)
        asking = asyncio.create_task(first.attach(500))
        await asyncio.sleep(0.3)
        await asyncio.to_thread(two.kill, "n2")
        two.start_node(*SMALL, name="n2")
        with pytest.raises(PoolRefusedError):
            await asyncio.wait_for(asking, 3 * REUSE_SECONDS)
        assert ((await first.info()).state, (await first.info()).node) == ("parked", "n1")
        await other.detach(close=True)
        await attached_in_the_end(first, 500)
        assert await first.tell_program("check") == str(61 << 20)


async def is_held(client: PatternClient) -> bool:
    return any(lease.id == client.lease_id for lease in await client.holder.pool.leases())


async def attached_in_the_end(client: PatternClient, milli: int, seconds: float = 40.0) -> None:
    """Asks until it is granted: a lease of before may have to end first."""
    async with asyncio.timeout(seconds):
        while True:
            try:
                await client.attach(milli)
                return
            except GpupoolError:
                await asyncio.sleep(0.5)

"""A share changes its size while its program runs: the program knows at once, and what it only keeps for later is no
reason to refuse.

Real pool, node agent, workers and client processes.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from gpupool.client.errors import PoolRefusedError
from gpupool.shares import Share

from tests.support.pattern_client import Holder, PatternClient, holding
from tests.support.pool_node import SCALE, PoolAndNode, native_worker_is_built

pytestmark = [
    pytest.mark.skipif(not native_worker_is_built(), reason="needs the native build (`make build`)"),
    pytest.mark.timeout(120),
]

OUT_OF_MEMORY = 2


@pytest.fixture(scope="module")
def started() -> Iterator[PoolAndNode]:
    # Nothing here is about leases that end: a machine that stands still for some seconds must not end one.
    arguments = ("--memory-mib", "1280")
    with PoolAndNode(real_worker=True, gpus=1, scale=4 * SCALE, node_arguments=arguments) as stack:
        yield stack


@pytest.fixture
async def holder(started: PoolAndNode, tmp_path: Path) -> AsyncIterator[Holder]:
    started.wait(lambda: len(started.healthy()) == 1 and not started.worker_pids(), 30, "an empty node")
    async with holding(started.endpoint, tmp_path) as holder:
        yield holder


async def resize(client: PatternClient, mib: int) -> None:
    """Nobody but the pool, the node and the worker hears of it; the session file stays as it is."""
    await client.holder.pool.resize(client.lease_id, Share(mib=mib))


async def room(client: PatternClient) -> tuple[int, int]:
    """Free and total MiB, as cuMemGetInfo says them."""
    free, total = (await client.tell_program("room")).split()
    return int(free), int(total)


async def attached(holder: Holder, mib: int) -> PatternClient:
    client = await holder.attached(400)
    await resize(client, mib)
    return client


async def test_a_program_that_computes_nothing_knows_its_new_size_at_once(holder: Holder) -> None:
    client = await attached(holder, 300)
    assert await room(client) == (300, 300)
    await client.tell_program("fill 250 1")
    with pytest.raises(AssertionError, match=f"^{OUT_OF_MEMORY} cuMemAlloc"):
        await client.tell_program("fill 100 2")
    await resize(client, 700)
    await client.tell_program("fill 400 3")
    assert await room(client) == (50, 700)
    assert await client.tell_program("total") == "700"
    await resize(client, 660)
    assert await room(client) == (10, 660)
    assert await client.tell_program("check") == str(650 << 20)


async def test_what_was_freed_and_is_only_kept_for_later_makes_room_for_a_smaller_share(
    holder: Holder,
) -> None:
    client = await attached(holder, 700)
    for number in range(6):
        await client.tell_program(f"fill 100 {number}")
    for _ in range(5):
        await client.tell_program("free 1")
    await resize(client, 200)
    assert await room(client) == (100, 200)
    # Nothing beyond it was under way: the very next allocation is refused, by the call that asks for it.
    with pytest.raises(AssertionError, match=f"^{OUT_OF_MEMORY} cuMemAlloc"):
        await client.tell_program("fill 150 9")
    await client.tell_program("fill 90 8")
    assert await client.tell_program("check") == str(190 << 20)


async def test_a_share_smaller_than_what_is_used_is_refused_with_the_number(holder: Holder) -> None:
    client = await attached(holder, 700)
    await client.tell_program("fill 300 1")
    await client.tell_program("fill 100 2")
    await client.tell_program("free 1")
    with pytest.raises(PoolRefusedError, match="300 MiB are in use, more than 200 MiB") as refused:
        await resize(client, 200)
    assert refused.value.reason == "in-use"
    # It is as large as before.
    assert await room(client) == (400, 700)
    await client.tell_program("fill 390 3")
    assert await client.tell_program("check") == str(690 << 20)


async def test_a_program_that_stands_still_keeps_what_it_has_and_nobody_waits_long(holder: Holder) -> None:
    client = await attached(holder, 700)
    await client.tell_program("fill 100 1")
    await client.tell_program("fill 150 2")
    await client.tell_program("free 1")
    os.kill(client.pid, signal.SIGSTOP)
    try:
        with pytest.raises(PoolRefusedError, match="250 MiB are in use"):
            await resize(client, 200)
    finally:
        os.kill(client.pid, signal.SIGCONT)
    # What it was asked then is of no consequence any more.
    assert await room(client) == (600, 700)
    await client.tell_program("fill 590 3")
    await client.tell_program("free 1")
    await resize(client, 200)
    assert await room(client) == (100, 200)
    assert await client.tell_program("check") == str(100 << 20)


async def test_who_comes_back_with_a_smaller_share_is_not_waited_for(holder: Holder) -> None:
    client = await holder.attached(400)
    await client.tell_program("fill 100 1")
    await client.detach()
    os.kill(client.pid, signal.SIGSTOP)
    try:
        began = time.monotonic()
        await client.attach(300)
        assert time.monotonic() - began < 2.5  # a program that is asked has 3 s for its answer
    finally:
        os.kill(client.pid, signal.SIGCONT)
    assert await client.tell_program("check") == str(100 << 20)

"""A session gives its device back, others take all of it, and it goes on: every byte of its memory is compared.

Real pool, node agents, workers and client processes; the software GPU's memory is bounded as a card's is.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpupool.client.errors import PoolRefusedError

from tests.support.pattern_client import PatternClient, holding
from tests.support.pool_node import PoolAndNode, native_worker_is_built

pytestmark = [
    pytest.mark.skipif(not native_worker_is_built(), reason="needs the native build (`make build`)"),
    pytest.mark.timeout(180),
]

#: 1 GiB, of which 768 MiB are lent.
SMALL = ("--memory-mib", "1024")


@pytest.fixture(scope="module")
def started() -> Iterator[PoolAndNode]:
    with PoolAndNode(real_worker=True, gpus=1, node_arguments=SMALL) as stack:
        yield stack


@pytest.fixture
def one(started: PoolAndNode) -> PoolAndNode:
    """One device of 1 GiB, of which nothing is taken."""
    started.wait(lambda: len(started.healthy()) == 1 and not started.worker_pids(), 30, "an empty node")
    return started


async def parked_with(client: PatternClient, *mib: int) -> None:
    """Memory with patterns, a kernel that changes it, and then the share is given back."""
    for number, size in enumerate(mib):
        await client.tell_program(f"fill {size} {number + 7}")
    await client.tell_program("add")
    await client.detach()


async def whole_device_for_a_while(client: PatternClient, milli: int = 1000) -> None:
    """Somebody else takes the device, uses it, and ends."""
    await client.attach(milli)
    await client.start()
    await client.tell_program("fill 700 99")
    assert await client.tell_program("check") == str(700 << 20)
    await client.detach(close=True)


async def test_it_leaves_for_somebody_else_and_comes_back_byte_for_byte(
    one: PoolAndNode, tmp_path: Path
) -> None:
    async with holding(one.endpoint, tmp_path) as holder:
        first = await holder.attached(700)
        await parked_with(first, 449, 1)  # with the other's 700 more than there is
        assert (await first.info()).memory_place == "device", "parking is lazy"
        other = holder.client()
        await whole_device_for_a_while(other)
        assert any("moving 450 MiB of 1 parked session to host memory" in p.reason for p in other.queued)
        assert (await first.info()).memory_place == "host"
        await first.attach(700)
        assert (await first.info()).memory_place == "device"
        assert await first.tell_program("check") == str(450 << 20)
        assert await first.tell_program("add") == "2"
        assert await first.tell_program("check") == str(450 << 20)


async def test_undisturbed_it_stays_on_its_device_and_is_back_at_once(
    one: PoolAndNode, tmp_path: Path
) -> None:
    async with holding(one.endpoint, tmp_path) as holder:
        first = await holder.attached(500)
        await parked_with(first, 63, 1)
        other = await holder.attached(300)
        assert not other.queued
        await first.attach(500)
        assert not first.queued
        assert await first.tell_program("check") == str(64 << 20)


async def test_the_pool_is_killed_while_its_memory_lies_in_the_host(one: PoolAndNode, tmp_path: Path) -> None:
    async with holding(one.endpoint, tmp_path) as holder:
        first = await holder.attached(700)
        await parked_with(first, 100, 3)
        other = holder.client()
        await other.attach(1000)
        await asyncio.to_thread(one.kill, "pool")
        await asyncio.to_thread(one.start_pool)
        one.wait(one.healthy, 20, "the pool to be back")
        await other.detach(close=True)
        await first.attach(700)
        assert await first.tell_program("check") == str(103 << 20)


async def test_it_goes_on_on_another_device_of_its_node(tmp_path: Path) -> None:
    with PoolAndNode(real_worker=True, gpus=2, node_arguments=SMALL) as stack:
        async with holding(stack.endpoint, tmp_path) as holder:
            first = await holder.attached(700)
            await parked_with(first, 59, 1)
            assert first.devices == ["n1/0"]
            neighbour = await holder.attached(800)
            assert neighbour.devices == ["n1/0"], "the best fit is beside what it keeps"
            assert (await first.info()).memory_place == "device"
            await first.attach(600)
            assert first.devices == ["n1/1"]
            assert await first.tell_program("check") == str(60 << 20)
            assert await first.tell_program("add") == "2"


async def test_what_cannot_be_moved_says_so_to_who_waits_and_wherever_it_is_listed(
    one: PoolAndNode, tmp_path: Path
) -> None:
    one.kill("node")
    one.start_node(*SMALL, "--park-memory-mib", "50")
    one.wait(lambda: len(one.healthy()) == 1, 20, "the node")
    try:
        await waits_in_vain(one, tmp_path)
    finally:
        one.kill("node")
        one.start_node(*SMALL)


async def waits_in_vain(one: PoolAndNode, tmp_path: Path) -> None:
    async with holding(one.endpoint, tmp_path) as holder:
        first = await holder.attached(500)
        await parked_with(first, 99, 1)
        other = holder.client()
        with pytest.raises(PoolRefusedError, match="host memory of n1 takes 50 MiB more of parked sessions"):
            await other.attach(1000, wait=0.0)
        listed = json.loads((await asyncio.to_thread(one.gpupool, "session", "list", "--json")).stdout)[
            "sessions"
        ]
        assert [
            (s["state"], s["memory_place"], s["park_obstacle"]) for s in listed if s["id"] == first.session_id
        ] == [("parked", "device", "")]


async def test_an_administrator_takes_a_share_back_and_the_session_parks_like_any_other(
    one: PoolAndNode, tmp_path: Path
) -> None:
    async with holding(one.endpoint, tmp_path) as holder:
        first = await holder.attached(500)
        await first.tell_program("fill 64 3")
        await holder.pool.release(first.lease_id, "admin")
        assert ((await first.info()).state, (await first.info()).reason) == ("parked", "admin")
        await first.attach(500)
        assert await first.tell_program("check") == str(64 << 20)


async def test_a_share_of_55_is_split_into_35_and_20_while_the_45_beside_it_runs_on(
    one: PoolAndNode, tmp_path: Path
) -> None:
    async with holding(one.endpoint, tmp_path) as holder:
        first, neighbour = await holder.attached(550), await holder.attached(450)
        await first.tell_program("fill 200 1")
        await neighbour.tell_program("fill 2 2")
        before = neighbour.grant
        stop = asyncio.Event()

        async def run_on() -> int:
            steps = 0
            while not stop.is_set():
                await neighbour.tell_program("add")
                steps += 1
            return steps

        running = asyncio.create_task(run_on())
        assert [s.milli for s in (await first.resize(350)).shares] == [350]
        third = await holder.attached(200)
        await third.tell_program("fill 100 3")
        stop.set()
        assert await running > 0
        lease = next(x for x in await holder.pool.leases() if x.id == neighbour.lease_id)
        assert before is not None
        assert (lease.epoch, lease.shares) == (before.epoch, before.shares)
        for client in (first, neighbour, third):
            await client.tell_program("check")
        with pytest.raises(
            PoolRefusedError, match=r"2\d\d MiB are in use, more than 76 MiB on n1/0"
        ) as refused:
            await first.resize(100)
        assert refused.value.reason == "in-use"
        await third.detach()  # what it keeps is in the way, and leaves
        assert [s.milli for s in (await first.resize(550)).shares] == [550]
        assert (await third.info()).memory_place == "host"
        await first.tell_program("check")


async def test_from_full_host_memory_it_goes_on_to_disk_and_comes_back(
    tmp_path: Path,
) -> None:
    budgets = ("--park-memory-mib", "400", "--park-disk-mib", "2000")
    with PoolAndNode(real_worker=True, gpus=1, node_arguments=(*SMALL, *budgets)) as one:
        await goes_to_disk_and_comes_back(one, tmp_path)


async def goes_to_disk_and_comes_back(one: PoolAndNode, tmp_path: Path) -> None:
    async with holding(one.endpoint, tmp_path) as holder:
        first, second = await holder.attached(400), await holder.attached(400)
        await parked_with(first, 250, 1)
        await parked_with(second, 200, 2)
        other = holder.client()
        await other.attach(1000)
        assert "to the disk of n1" in " ".join(place.reason for place in other.queued)
        assert [(await client.info()).memory_place for client in (first, second)] == ["image", "host"]
        await other.detach(close=True)
        for client, mib in ((first, 251), (second, 202)):
            await client.attach(400)
            assert await client.tell_program("check") == str(mib << 20)
            assert await client.tell_program("add") == "2"

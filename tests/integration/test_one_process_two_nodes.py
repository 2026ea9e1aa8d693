"""One program computes on devices of two nodes: a real pool, two node agents, a worker on each, and one client runtime."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpupool.client.types import LeaseRequest
from gpupool.shares import Share

from tests.support import pattern_client
from tests.support.pattern_client import Holder, PatternClient, holding
from tests.support.pool_node import SCALE, native_worker_is_built
from tests.support.two_nodes import PoolAndTwoNodes

pytestmark = [
    pytest.mark.serial,
    pytest.mark.skipif(not native_worker_is_built(), reason="needs the native build (`make build`)"),
    pytest.mark.timeout(120),
]

PROGRAM = Path(pattern_client.__file__).with_name("both_devices_program.py")


@pytest.fixture(scope="module")
def started() -> Iterator[PoolAndTwoNodes]:
    with PoolAndTwoNodes(scale=SCALE, nodes={"a": 1, "b": 1, "c": 1}) as stack:
        yield stack


@pytest.fixture
def stack(started: PoolAndTwoNodes) -> PoolAndTwoNodes:
    """Nodes a, b and c of one device each, of which nothing is taken."""
    started.wait(lambda: started.all_free() and not started.worker_pids(), 30, "three empty nodes")
    return started


async def attached(holder: Holder, milli: int = 500) -> PatternClient:
    """A program with memory on both devices."""
    client = holder.client()
    client.program = PROGRAM
    await client.attach(milli, count=2)
    await client.start()
    assert await client.tell_program("fill 16") == "2"
    assert await client.tell_program("check") == "same"
    return client


async def test_a_program_uses_both_and_copies_between_them(stack: PoolAndTwoNodes, tmp_path: Path) -> None:
    async with holding(stack.endpoint, tmp_path, renew_seconds=5 * SCALE) as holder:
        client = await attached(holder)
        assert client.devices == ["a/0", "b/0"]
        assert await client.tell_program("cross") == "same"
        assert len((await client.info()).usage.memory_used) == 2


async def test_memory_on_both_leaves_for_others_and_comes_back(
    stack: PoolAndTwoNodes, tmp_path: Path
) -> None:
    async with holding(stack.endpoint, tmp_path, renew_seconds=5 * SCALE) as holder:
        client = await attached(holder)
        await client.detach()
        with pytest.raises(AssertionError, match="given back"):
            await client.tell_program("check")
        whole = LeaseRequest(Share(milli=1000), count=3, label="all whole devices")
        grant = await holder.pool.request(whole, wait_seconds=60)
        assert (await client.info()).memory_place == "host"
        await holder.pool.release(grant.lease_id, close_session=True)
        await client.attach(500, count=2)
        assert await client.tell_program("check") == "same"
        assert await client.tell_program("cross") == "same"


async def test_one_part_goes_on_in_another_node_and_the_program_finds_every_byte(
    stack: PoolAndTwoNodes, tmp_path: Path
) -> None:
    async with holding(stack.endpoint, tmp_path, renew_seconds=5 * SCALE) as holder:
        client = await attached(holder)
        await client.detach()
        other = holder.client()
        await other.attach(800)
        assert other.devices == ["a/0"], "the best fit is beside the first part"
        await client.attach(500, count=2)
        assert client.devices == ["c/0", "b/0"]
        assert await client.tell_program("check") == "same"
        assert await client.tell_program("cross") == "same"


@pytest.fixture
def patient() -> Iterator[PoolAndTwoNodes]:
    """Two nodes in true time: on a busy machine a pool needs longer for its start than a worker waits in shortened time."""
    with PoolAndTwoNodes(scale=1.0, nodes={"a": 1, "b": 1}) as stack:
        yield stack


async def test_the_pool_is_killed_while_it_computes(patient: PoolAndTwoNodes, tmp_path: Path) -> None:
    stack = patient
    async with holding(stack.endpoint, tmp_path, renew_seconds=5) as holder:
        client = await attached(holder)
        stack.kill("pool")
        assert await client.tell_program("fill 4") == "2"
        stack.restart_pool()
        stack.wait_answering()
        for name in stack.nodes:
            stack.wait_lending(name)
        assert await client.tell_program("check") == "same"
        await client.detach()
        await client.attach(500, count=2)
        assert await client.tell_program("check") == "same"


async def test_when_one_worker_dies_the_program_is_told_at_both(
    stack: PoolAndTwoNodes, tmp_path: Path
) -> None:
    async with holding(stack.endpoint, tmp_path, renew_seconds=5 * SCALE) as holder:
        client = await attached(holder)
        assert client.grant is not None
        os.kill(stack.worker_pid("b", client.grant.workers[1].session_id), signal.SIGKILL)
        while not holder.ended:
            await asyncio.sleep(0.05)
        client.file.write("closed", session=client.session_id, message="one worker died")
        with pytest.raises(AssertionError):
            await client.tell_program("check", 60)
        stack.wait(stack.all_free, 10, "both devices")

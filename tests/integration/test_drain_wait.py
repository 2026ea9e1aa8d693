"""A node agent that is told to end lets sessions leave first, if it was asked to: engines take nodes back with notice."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpupool.client.admin import AdminClient
from gpupool.client.pool import PoolClient
from gpupool.client.types import LeaseRequest
from gpupool.shares import Share

from tests.support.pattern_client import holding
from tests.support.pool_node import PoolAndNode, native_worker_is_built

needs_workers = pytest.mark.skipif(
    not native_worker_is_built(), reason="needs the native build (`make build`)"
)


@pytest.fixture
def stack() -> Iterator[PoolAndNode]:
    # Leases live without being renewed for as long as the test takes.
    with PoolAndNode(
        scale=4.0, node_arguments=("--drain-wait", "10m", "--heartbeat-seconds", "1")
    ) as running:
        yield running


def told_to_end(stack: PoolAndNode, node: str = "node") -> None:
    stack.processes[node].send_signal(signal.SIGTERM)
    stack.wait(lambda: "sessions may move away first" in stack.log(node), 20, "the agent to say so")


async def test_it_waits_for_the_last_session(stack: PoolAndNode) -> None:
    node = stack.processes["node"]
    async with PoolClient(stack.endpoint) as pool:
        lease = await pool.request(LeaseRequest(Share.parse("0.5"), label="test"))
        stack.wait(stack.worker_pids, 20, "a worker")
        told_to_end(stack)
        time.sleep(1.0)
        assert node.poll() is None
        await pool.release(lease.lease_id, close_session=True)
        stack.wait(lambda: node.poll() is not None, 30, "the agent to end")
        assert node.returncode == 0


async def test_a_second_signal_ends_it_at_once(stack: PoolAndNode) -> None:
    node = stack.processes["node"]
    async with PoolClient(stack.endpoint) as pool:
        await pool.request(LeaseRequest(Share.parse("0.5"), label="test"))
        stack.wait(stack.worker_pids, 20, "a worker")
        told_to_end(stack)
        # One that comes right after the first would be the same word.
        stack.wait(
            lambda: node.poll() is not None or node.send_signal(signal.SIGTERM), 30, "the agent to end"
        )
        assert not stack.worker_pids()


async def test_the_pool_places_nothing_there_any_more(stack: PoolAndNode) -> None:
    async with PoolClient(stack.endpoint) as pool:
        await pool.request(LeaseRequest(Share.parse("0.5"), label="test"))
        told_to_end(stack)
        stack.wait(lambda: not stack.healthy(), 20, "the pool to hear of it")
        (node,) = await AdminClient(pool).nodes()
        assert (node.drained, node.drain_reason) == (True, "its agent is ending")


@needs_workers
async def test_a_session_that_nobody_asks_for_waits_on_disk_for_the_next_agent(tmp_path: Path) -> None:
    arguments = ("--memory-mib", "1024", "--park-disk-mib", "2000", "--drain-wait", "5m")
    with PoolAndNode(real_worker=True, gpus=1, node_arguments=arguments) as stack:
        async with holding(stack.endpoint, tmp_path) as holder:
            client = await holder.attached(400)
            await client.tell_program("fill 250 1")
            await client.tell_program("add")
            await client.detach()
            told_to_end(stack)
            node = stack.processes["node"]
            stack.wait(lambda: node.poll() is not None, 60, "the agent to end")
            assert node.returncode == 0
            assert (await client.info()).memory_place == "image"
            stack.start_node(*arguments)
            stack.wait(lambda: len(stack.healthy()) == 1, 30, "the next agent")
            await client.attach(400)
            assert await client.tell_program("check") == str(250 << 20)


@needs_workers
@pytest.mark.parametrize("signalled", ["agent", "every process"])
async def test_a_session_moves_to_another_node_while_the_agent_waits(tmp_path: Path, signalled: str) -> None:
    """Slurm signals workers, agent and script, and the script passes it on; so does systemd with all of a unit."""
    arguments = ("--memory-mib", "1024", "--drain-wait", "5m")
    with PoolAndNode(real_worker=True, gpus=1, node_arguments=arguments) as stack:
        async with holding(stack.endpoint, tmp_path) as holder:
            client = await holder.attached(400)
            await client.tell_program("fill 250 1")
            await client.tell_program("add")
            stack.wait(stack.worker_pids, 20, "a worker")
            workers = stack.worker_pids()
            node = stack.processes["node"]
            stack.start_node(*arguments, name="n2")
            stack.wait(lambda: len(stack.healthy()) == 2, 30, "another node")
            await client.detach()
            if signalled == "every process":
                for pid in workers:
                    os.kill(pid, signal.SIGTERM)
            told_to_end(stack)
            if signalled == "every process":
                node.send_signal(signal.SIGTERM)
            stack.wait(lambda: len(stack.healthy()) == 1, 20, "the pool to hear of it")
            await client.attach(400)
            assert await client.tell_program("check") == str(250 << 20)
            stack.wait(lambda: node.poll() is not None, 60, "the agent to end")
            assert node.returncode == 0

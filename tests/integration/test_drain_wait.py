"""A node agent that is told to end lets sessions move away first, if it was asked to: engines take nodes back with notice."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator

import pytest
from gpupool.client.pool import PoolClient
from gpupool.client.types import LeaseRequest
from gpupool.shares import Share

from tests.support.pool_node import PoolAndNode


@pytest.fixture
def stack() -> Iterator[PoolAndNode]:
    # Leases live without being renewed for as long as the test takes.
    with PoolAndNode(
        scale=4.0, node_arguments=("--drain-wait", "10m", "--heartbeat-seconds", "1")
    ) as running:
        yield running


async def test_it_waits_for_the_last_session(stack: PoolAndNode) -> None:
    node = stack.processes["node"]
    async with PoolClient(stack.endpoint) as pool:
        lease = await pool.request(LeaseRequest(Share.parse("0.5"), label="test"))
        stack.wait(stack.worker_pids, 20, "a worker")
        node.send_signal(signal.SIGTERM)
        stack.wait(lambda: "sessions may move away first" in stack.log("node"), 20, "the agent to say so")
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
        node.send_signal(signal.SIGTERM)
        stack.wait(lambda: "sessions may move away first" in stack.log("node"), 20, "the agent to say so")
        node.send_signal(signal.SIGTERM)
        stack.wait(lambda: node.poll() is not None, 30, "the agent to end")
        assert not stack.worker_pids()

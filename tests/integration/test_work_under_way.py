"""A kernel that never ends, from the worker to the lists: counted, shown, and never computing without a share that is
held. The workers are scripted; what they say is theirs, the processes are real."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from gpupool.client.errors import PoolRefusedError
from gpupool.client.pool import PoolClient
from gpupool.client.types import Grant, Lease, LeaseRequest, SessionInfo
from gpupool.shares import Share

from tests.support.pool_node import PoolAndNode

GRACE_SECONDS = 1.5


@contextmanager
def running(**script: str) -> Iterator[PoolAndNode]:
    stack = PoolAndNode(gpus=1)
    stack.environment |= {"SCRIPTED_KERNEL": "forever", "SCRIPTED_GRACE": str(GRACE_SECONDS), **script}
    with stack:
        yield stack


@pytest.fixture(scope="module")
def stack() -> Iterator[PoolAndNode]:
    with running() as made:
        yield made


async def attached(pool: PoolClient) -> Grant:
    return await pool.request(
        LeaseRequest(Share.parse("0.6"), label="busy", reservation=True), wait_seconds=0
    )


async def session_of(pool: PoolClient, grant: Grant) -> SessionInfo:
    return next(s for s in await pool.sessions() if s.id == grant.session_id)


async def lease_of(pool: PoolClient, grant: Grant) -> Lease:
    (found,) = await pool.leases([grant.lease_id])
    return found


async def until(
    pool: PoolClient, grant: Grant, holds: Callable[[SessionInfo], bool], seconds: float = 20.0
) -> SessionInfo:
    deadline = time.monotonic() + seconds
    while not holds(session := await session_of(pool, grant)):
        assert time.monotonic() < deadline, session
        await asyncio.sleep(0.05)
    return session


async def test_what_runs_is_counted_and_shown(stack: PoolAndNode) -> None:
    async with PoolClient(stack.endpoint) as pool:
        grant = await attached(pool)
        session = await until(pool, grant, lambda s: s.usage.work_seconds > 2.5)
        usage = session.usage
        assert (usage.work, usage.kernel, usage.failure) == ("running", "forever", 0)
        assert usage.device_seconds == pytest.approx(1.5 + usage.work_seconds, abs=0.01)
        assert usage.idle_seconds == 0.0
        assert usage.busy == pytest.approx(1.0, abs=0.5)
        (device,) = await pool.devices()
        assert device.busy == pytest.approx(1.0, abs=0.5)
        seen = json.loads(stack.gpupool("smi", "--json").stdout)
        assert [s["usage"]["kernel"] for s in seen["sessions"] if s["state"] != "closed"] == ["forever"]
        await pool.close_session(grant.session_id, "reset")
        stack.wait_free()


async def test_a_lease_that_ends_holds_its_share_until_nothing_of_it_computes(stack: PoolAndNode) -> None:
    async with PoolClient(stack.endpoint) as pool:
        grant = await attached(pool)
        releasing = asyncio.create_task(pool.release(grant.lease_id))
        session = await until(pool, grant, lambda s: s.usage.work == "draining")
        assert session.usage.kernel == "forever"
        lease = await lease_of(pool, grant)
        assert (lease.state, lease.work, lease.kernel) == ("releasing", "draining", "forever")
        with pytest.raises(PoolRefusedError):
            await pool.request(LeaseRequest(Share.parse("0.6")), wait_seconds=0)
        await releasing
        assert (await lease_of(pool, grant)).state == "ended"
        session = await session_of(pool, grant)
        assert (session.state, session.usage.work, session.usage.kernel) == ("parked", "stopped", "forever")
        assert stack.all_free()
        before = session.usage.device_seconds
        again = await pool.request(
            LeaseRequest(Share.parse("0.6"), session_id=grant.session_id, reservation=True), wait_seconds=0
        )
        session = await until(pool, again, lambda s: s.usage.work == "running")
        assert session.usage.device_seconds >= before
        await pool.close_session(grant.session_id, "reset")
        stack.wait_free()


async def test_a_session_that_keeps_memory_of_its_device_is_ended_by_its_id(stack: PoolAndNode) -> None:
    async with PoolClient(stack.endpoint) as pool:
        grant = await attached(pool)
        await pool.release(grant.lease_id)
        shown = grant.session_id[:12]
        for refused in (("lease", "release", "--close-session", shown), ("session", "close", shown[:-1])):
            assert stack.gpupool(*refused).returncode == 1
            assert (await session_of(pool, grant)).state == "parked"
        assert stack.gpupool("session", "close", shown).returncode == 0
        assert (await session_of(pool, grant)).state == "closed"
        stack.wait(lambda: not stack.worker_pids(), 10, "the worker's end")


@pytest.mark.parametrize("drains", [False, True], ids=["attached", "draining"])
async def test_a_reset_ends_a_worker_whose_kernel_never_ends(drains: bool) -> None:
    """The worker hears no `stop`, and the revocation would be answered after 60 s."""
    with running(SCRIPTED_GRACE="60") as stack:
        async with PoolClient(stack.endpoint) as pool:
            grant = await attached(pool)
            if drains:
                releasing = asyncio.create_task(pool.release(grant.lease_id))
                await until(pool, grant, lambda s: s.usage.work == "draining")
                releasing.cancel()
            await pool.close_session(grant.session_id, "reset")
            assert not stack.worker_pids()
            assert stack.all_free()
            lease, session = await lease_of(pool, grant), await session_of(pool, grant)
            assert (lease.state, lease.reason) == ("ended", "release" if drains else "reset")
            assert (session.state, session.reason) == ("closed", "reset")


async def test_what_a_device_cannot_stop_ends_with_its_session() -> None:
    with running(SCRIPTED_STOPS="0") as stack:
        async with PoolClient(stack.endpoint) as pool:
            grant = await attached(pool)
            await pool.release(grant.lease_id, "idle")
            session, lease = await session_of(pool, grant), await lease_of(pool, grant)
            assert (session.state, session.reason) == ("closed", "stopped")
            assert (lease.state, lease.reason) == ("ended", "idle")
            assert (session.usage.kernel, session.usage.work) == ("forever", "")
            assert session.usage.device_seconds >= 1.5 + GRACE_SECONDS
            said = stack.gpupool("pool", "audit", "--json", "--session", grant.session_id).stdout
        lines = [json.loads(line) for line in said.splitlines()]
        (ended,) = [line for line in lines if line["kind"] == "closed"]
        assert "kernel forever ran on" in ended["explanation"]
        (ended,) = [line for line in lines if line["kind"] == "ended"]
        assert ended["data"]["device_seconds"] >= session.usage.device_seconds - 0.001

"""Pool server, node agent, worker and client library together, over a Unix socket; each one dies once."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from gpupool.client.errors import PoolRefusedError, PoolUnavailableError, QueueTimeoutError
from gpupool.client.holder import LeaseHolder
from gpupool.client.pool import PoolClient
from gpupool.client.types import Grant, LeaseRequest, LeaseStatus, QueuePlace
from gpupool.client.worker_address import WorkerAddress
from gpupool.engines.records import WORKER_PROTOCOL
from gpupool.node.control import ControlChannel, Notice, WorkerStats
from gpupool.shares import Share

from tests.support.patience import BUSY, until_late
from tests.support.pool_node import SCALE, PoolAndNode, native_worker_is_built

#: Where processes die, the next one has time to start beside other tests before workers fence themselves.
SLOWER = 2 * SCALE
HEARTBEAT_SECONDS, FENCE_SECONDS, REUSE_SECONDS = 5 * SLOWER, 25 * SLOWER, 30 * SLOWER
#: Twice that where a process has to be back before the fence, also on a busy machine.
comes_back_in_time = pytest.mark.parametrize("fresh", [2 * SLOWER], indirect=True, ids=["slow"])

WORKERS = [
    pytest.param(False, id="scripted"),
    pytest.param(
        True,
        id="real",
        marks=pytest.mark.skipif(not native_worker_is_built(), reason="native worker not built"),
    ),
]


@pytest.fixture(scope="module", params=WORKERS)
def stack(request: pytest.FixtureRequest) -> Iterator[PoolAndNode]:
    with PoolAndNode("--quota", "limited=0.3", real_worker=request.param) as running:
        yield running


@pytest.fixture
def fresh(request: pytest.FixtureRequest) -> Iterator[PoolAndNode]:
    scale = getattr(request, "param", SLOWER)
    with PoolAndNode(real_worker=native_worker_is_built(), scale=scale) as running:
        yield running


@pytest.fixture
async def pool(stack: PoolAndNode) -> AsyncIterator[PoolClient]:
    async with PoolClient(stack.endpoint) as client:
        yield client
        for lease in await client.leases():
            await client.release(lease.id, close_session=True)
        stack.wait_free()


def ask(share: str = "0.5", **more: object) -> LeaseRequest:
    return LeaseRequest(Share.parse(share), label="test", **more)  # type: ignore[arg-type]


class Held:
    """Leases kept renewed, and the ends that the pool told."""

    def __init__(self, pool: PoolClient) -> None:
        self.ends: dict[str, LeaseStatus] = {}
        self.usage: dict[str, LeaseStatus] = {}
        self.holder = LeaseHolder(
            pool,
            on_ended=lambda status: self.ends.__setitem__(status.lease_id, status),
            on_renewed=lambda status: self.usage.__setitem__(status.lease_id, status),
            interval_seconds=5 * SCALE,
        )


@pytest.fixture
async def held(request: pytest.FixtureRequest) -> AsyncIterator[Callable[[PoolClient], Held]]:
    made: list[Held] = []

    def hold(pool: PoolClient) -> Held:
        made.append(Held(pool))
        return made[-1]

    yield hold
    for item in made:
        await item.holder.close()


async def until(condition: Callable[[], object], seconds: float, what: str) -> None:
    """Like PoolAndNode.wait, with the event loop running."""
    deadline = until_late(seconds)
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds:.0f} s for {what}")
        await asyncio.sleep(0.05)


async def worker_stats(stack: PoolAndNode, session: str) -> WorkerStats:
    notices: list[Notice] = []
    channel = await ControlChannel.connect(stack.control(session), notices.append)
    try:
        await channel.stats()
    finally:
        await channel.close()
    return next(notice for notice in reversed(notices) if isinstance(notice, WorkerStats))


# ---- what people ask for


async def test_a_share_is_granted_shown_and_given_back(stack: PoolAndNode, pool: PoolClient) -> None:
    grant = await pool.request(ask("0.25"), wait_seconds=0)
    assert grant.new_session
    assert grant.software
    assert len(grant.worker_token) == 64
    assert grant.worker_token not in repr(grant)
    assert "driver_version" in grant.profile
    address = WorkerAddress.parse(grant.worker_address)
    _, writer = await asyncio.open_connection(address.host, address.port)
    writer.close()
    (device,) = [d for d in await pool.devices() if d.shares]
    assert (device.free_milli, device.shares[0].lease_id) == (750, grant.lease_id)
    assert (device.shares[0].milli, device.shares[0].mib) == (250, device.usable_mib // 4)
    await pool.release(grant.lease_id, close_session=True)
    await pool.release(grant.lease_id, close_session=True)
    assert stack.all_free()
    stack.wait(lambda: not stack.worker_pids(), 5, "the worker's end")


async def test_memory_and_several_devices_can_be_asked_for(pool: PoolClient) -> None:
    grant = await pool.request(ask("2560MiB", count=2), wait_seconds=0)
    assert [share.mib for share in grant.shares] == [2560, 2560]
    assert len({share.device_id for share in grant.shares}) == 2


async def test_the_same_key_is_the_same_lease(pool: PoolClient) -> None:
    wish = ask("0.2")
    first, second = await asyncio.gather(
        pool.request(wish, wait_seconds=0), pool.request(wish, wait_seconds=0)
    )
    assert first == second
    assert await pool.request(wish, wait_seconds=0) == first
    assert sum(len(device.shares) for device in await pool.devices()) == 1


async def test_a_parked_session_resumes_with_the_same_worker_and_a_higher_epoch(
    stack: PoolAndNode, pool: PoolClient
) -> None:
    first = await pool.request(ask("0.2"), wait_seconds=0)
    await pool.release(first.lease_id)
    assert (await worker_stats(stack, first.session_id)).state == "parked"
    again = await pool.request(ask("0.3", session_id=first.session_id), wait_seconds=0)
    assert (again.session_id, again.worker_address, again.new_session) == (
        first.session_id, first.worker_address, False,
    )  # fmt: skip
    assert again.epoch > first.epoch
    stats = await worker_stats(stack, first.session_id)
    assert (stats.state, stats.epoch) == ("attached", again.epoch)
    assert stack.worker_states()[first.session_id]["devices"][0]["milli"] == 300


async def test_resize_changes_the_share_in_place(stack: PoolAndNode, pool: PoolClient) -> None:
    grant = await pool.request(ask("0.2"), wait_seconds=0)
    bigger = await pool.resize(grant.lease_id, Share.parse("0.6"))
    assert (bigger.shares[0].milli, bigger.session_id) == (600, grant.session_id)
    with pytest.raises(PoolRefusedError) as refused:
        await pool.resize("nonesuch", Share.parse("0.1"))
    assert refused.value.reason == "unknown-lease"


async def test_who_waits_is_told_place_and_reason_and_gets_what_becomes_free(pool: PoolClient) -> None:
    first = await pool.request(ask("1", count=2), wait_seconds=0)
    places: list[QueuePlace] = []
    waiting = asyncio.create_task(pool.request(ask("0.5"), on_queued=places.append, wait_seconds=30))
    await until(lambda: places, 5, "a place in the queue")
    assert places[0].place == 1
    assert any(character.isdigit() for character in places[0].reason)
    assert len(await pool.queue()) == 1
    await pool.release(first.lease_id, close_session=True)
    grant = await asyncio.wait_for(waiting, 15)
    assert grant.shares[0].milli == 500


async def test_a_full_pool_refuses_at_once_or_when_time_is_up_and_cancelling_leaves_the_queue(
    pool: PoolClient,
) -> None:
    await pool.request(ask("1", count=2), wait_seconds=0)
    with pytest.raises(PoolRefusedError) as refused:
        await pool.request(ask("0.5"), wait_seconds=0)
    assert refused.value.reason == "full"
    assert "0.5" in str(refused.value)
    started = time.monotonic()
    with pytest.raises(QueueTimeoutError):
        await pool.request(ask("0.5"), wait_seconds=1)
    assert time.monotonic() - started > 0.9
    waiting = asyncio.create_task(pool.request(ask("0.5"), wait_seconds=None))
    while not await pool.queue():
        await asyncio.sleep(0.05)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    while await pool.queue():
        await asyncio.sleep(0.05)


async def test_over_quota_is_refused_with_numbers(pool: PoolClient) -> None:
    with pytest.raises(PoolRefusedError) as refused:
        await pool.request(ask("0.4", on_behalf_of="limited"), wait_seconds=0)
    assert refused.value.reason == "quota"
    assert "0.3" in str(refused.value) or "300" in str(refused.value)


async def test_without_a_pool_the_error_comes_soon_and_names_the_endpoint(tmp_path: Path) -> None:
    for endpoint in (f"unix:{tmp_path}/none.sock", "127.0.0.1:1"):
        async with asyncio.timeout(10 * BUSY), PoolClient(endpoint) as client:
            with pytest.raises(PoolUnavailableError, match=endpoint):
                await client.devices()
            with pytest.raises(PoolUnavailableError, match=endpoint):
                await client.request(ask(), wait_seconds=None)


# ---- leases


async def test_a_renewed_lease_lives_a_forgotten_one_is_lost(
    stack: PoolAndNode, pool: PoolClient, held: Callable[[PoolClient], Held]
) -> None:
    kept = await pool.request(ask("0.2"), wait_seconds=0)
    forgotten = await pool.request(ask("0.2"), wait_seconds=0)
    keeper = held(pool)
    async with keeper.holder:
        keeper.holder.hold(kept.lease_id)
        await asyncio.sleep(25 * SCALE + 2)
        statuses = await pool.renew([kept.lease_id, forgotten.lease_id, "nonesuch"])
    assert statuses[kept.lease_id].state == "attached"
    assert statuses[forgotten.lease_id].state == "ended"
    assert statuses[forgotten.lease_id].reason == "lost"
    assert statuses["nonesuch"].state == "unknown"
    assert keeper.ends == {}
    assert keeper.usage[kept.lease_id].usage.state == "attached"


async def test_a_reservation_needs_no_renewal_and_a_deadline_ends_it(pool: PoolClient) -> None:
    grant = await pool.request(ask("0.2", reservation=True, duration_seconds=8.0), wait_seconds=0)
    await asyncio.sleep(25 * SCALE + 1)
    assert (await pool.renew([grant.lease_id]))[grant.lease_id].state == "attached"
    await asyncio.sleep(3)
    status = (await pool.renew([grant.lease_id]))[grant.lease_id]
    assert (status.state, status.reason) == ("ended", "deadline")


# ---- each process dies once


async def attached(stack: PoolAndNode, client: PoolClient, keeper: Held, share: str = "0.4") -> Grant:
    grant = await client.request(ask(share), wait_seconds=10)
    keeper.holder.hold(grant.lease_id)
    return grant


async def test_a_killed_worker_ends_its_lease_and_its_share_is_free_at_once(
    fresh: PoolAndNode, held: Callable[[PoolClient], Held]
) -> None:
    async with PoolClient(fresh.endpoint) as client:
        keeper = held(client)
        async with keeper.holder:
            grant = await attached(fresh, client, keeper)
            (pid,) = fresh.worker_pids()
            os.kill(pid, signal.SIGKILL)
            await until(lambda: grant.lease_id in keeper.ends, 10, "the holder to be told")
            assert keeper.ends[grant.lease_id].state == "ended"
            assert fresh.all_free()
            sessions = {session.id: session for session in await client.sessions()}
            assert sessions[grant.session_id].state in ("closed", "lost")
    fresh.wait(lambda: not fresh.worker_states(), 5, "the worker's folder to be removed")


@comes_back_in_time
async def test_a_killed_agent_comes_back_and_adopts_the_worker(
    fresh: PoolAndNode, held: Callable[[PoolClient], Held]
) -> None:
    async with PoolClient(fresh.endpoint) as client:
        keeper = held(client)
        async with keeper.holder:
            grant = await attached(fresh, client, keeper)
            before = fresh.worker_pids()
            fresh.kill("node")
            assert fresh.worker_pids() == before
            fresh.start_node()
            await until(lambda: "adopted a worker" in fresh.log("node"), 15, "the adoption")
            # Longer than the fence: only an agent that renews keeps the worker serving.
            await asyncio.sleep(2 * FENCE_SECONDS + 1)
            assert fresh.worker_pids() == before
            assert (await worker_stats(fresh, grant.session_id)).state == "attached"
            assert keeper.ends == {}
            await client.release(grant.lease_id, close_session=True)
            fresh.wait_free(5)


@comes_back_in_time
async def test_an_upgraded_agent_ends_a_worker_of_another_version_and_its_holder_hears_why(
    fresh: PoolAndNode, held: Callable[[PoolClient], Held]
) -> None:
    async with PoolClient(fresh.endpoint) as client:
        keeper = held(client)
        async with keeper.holder:
            grant = await attached(fresh, client, keeper)
            fresh.kill("node")
            (state,) = fresh.home.glob("run/*/workers/*/state.json")
            state.write_text(json.dumps(json.loads(state.read_text()) | {"protocol": WORKER_PROTOCOL - 1}))
            fresh.start_node()
            await until(lambda: grant.lease_id in keeper.ends, 20, "the holder to be told")
            assert (keeper.ends[grant.lease_id].state, keeper.ends[grant.lease_id].reason) == (
                "ended",
                "upgrade",
            )
            fresh.wait(lambda: not fresh.worker_pids(), 5, "the worker to end")
            sessions = {session.id: session for session in await client.sessions()}
            assert (sessions[grant.session_id].state, sessions[grant.session_id].reason) == (
                "closed",
                "upgrade",
            )
    log = fresh.log("node")
    assert "adopted a worker" not in log
    (line,) = [line for line in log.splitlines() if "a worker of another version is not adopted" in line]
    assert f"worker_protocol={WORKER_PROTOCOL - 1}" in line
    assert f"agent_protocol={WORKER_PROTOCOL}" in line
    fresh.wait(lambda: not fresh.worker_states(), 5, "the worker's folder to be removed")


@comes_back_in_time
async def test_a_killed_pool_comes_back_and_everything_goes_on(
    fresh: PoolAndNode, held: Callable[[PoolClient], Held]
) -> None:
    async with PoolClient(fresh.endpoint) as client:
        keeper = held(client)
        async with keeper.holder:
            grant = await attached(fresh, client, keeper)
            before = fresh.worker_pids()
            fresh.kill("pool")
            await asyncio.sleep(1)
            fresh.start_pool()
            await asyncio.sleep(2 * FENCE_SECONDS + 1)
            assert fresh.worker_pids() == before
            assert (await worker_stats(fresh, grant.session_id)).state == "attached"
            assert keeper.ends == {}
            (lease,) = await client.leases()
            assert (lease.id, lease.epoch) == (grant.lease_id, grant.epoch)


async def test_without_a_pool_a_worker_fences_itself_and_no_sooner(
    fresh: PoolAndNode, held: Callable[[PoolClient], Held]
) -> None:
    async with PoolClient(fresh.endpoint) as client:
        grant = await client.request(ask(), wait_seconds=10)
        await asyncio.sleep(HEARTBEAT_SECONDS + 0.5)
        fresh.kill("pool")
        killed = time.monotonic()
        await asyncio.sleep(FENCE_SECONDS - HEARTBEAT_SECONDS - 1.0)
        assert (await worker_stats(fresh, grant.session_id)).state == "attached"
        await asyncio.sleep(max(0.0, FENCE_SECONDS + 0.5 - (time.monotonic() - killed)))
        assert (await worker_stats(fresh, grant.session_id)).state == "fenced"


async def test_an_agent_that_never_comes_back_loses_its_shares_after_the_fence(fresh: PoolAndNode) -> None:
    async with PoolClient(fresh.endpoint) as client:
        grant = await client.request(ask(reservation=True), wait_seconds=10)
        fresh.kill("node")
        killed = time.monotonic()
        deadline = until_late(REUSE_SECONDS + 10)
        while any(device.shares for device in await client.devices()):
            state = (await worker_stats(fresh, grant.session_id)).state
            if time.monotonic() - killed < FENCE_SECONDS - HEARTBEAT_SECONDS:
                assert state == "attached"
            assert time.monotonic() < deadline
            await asyncio.sleep(0.2)
        # The safety of the pool: whoever's share is free again does not serve any more.
        assert (await worker_stats(fresh, grant.session_id)).state == "fenced"
        assert time.monotonic() - killed > FENCE_SECONDS - HEARTBEAT_SECONDS


async def test_a_frozen_worker_delays_nobody_else(
    fresh: PoolAndNode, held: Callable[[PoolClient], Held]
) -> None:
    async with PoolClient(fresh.endpoint) as client:
        keeper = held(client)
        async with keeper.holder:
            frozen = await attached(fresh, client, keeper, "0.3")
            (pid,) = fresh.worker_pids()
            other = await attached(fresh, client, keeper, "0.3")
            os.kill(pid, signal.SIGSTOP)
            try:
                await asyncio.sleep(FENCE_SECONDS + 2)
                assert (await worker_stats(fresh, other.session_id)).state == "attached"
                assert other.lease_id not in keeper.ends
                await client.close_session(frozen.session_id, "release")
                await until(lambda: pid not in fresh.worker_pids(), 25, "the frozen worker to be killed")
                fresh.wait(lambda: sum(len(d["shares"]) for d in fresh.devices()) == 1, 10, "its share")
            finally:
                if pid in fresh.worker_pids():
                    os.kill(pid, signal.SIGCONT)


async def test_an_agent_that_is_told_to_end_takes_its_workers_along(fresh: PoolAndNode) -> None:
    async with PoolClient(fresh.endpoint) as client:
        await client.request(ask(reservation=True), wait_seconds=10)
        assert fresh.kill("node", signal.SIGTERM) == 0
        assert fresh.worker_pids() == []
        assert not any(device.shares for device in await client.devices())


@comes_back_in_time
async def test_an_agent_can_leave_its_workers_to_the_next(fresh: PoolAndNode) -> None:
    async with PoolClient(fresh.endpoint) as client:
        grant = await client.request(ask(reservation=True), wait_seconds=10)
        fresh.kill("node")
        fresh.start_node("--leave-workers")
        await until(lambda: "adopted a worker" in fresh.log("node"), 15, "the adoption")
        before = fresh.worker_pids()
        assert fresh.kill("node", signal.SIGTERM) == 0
        assert fresh.worker_pids() == before != []
        fresh.start_node()
        await until(lambda: fresh.log("node").count("adopted a worker") == 2, 15, "the second adoption")
        await asyncio.sleep(2 * FENCE_SECONDS)
        assert (await worker_stats(fresh, grant.session_id)).state == "attached"


def test_two_agents_of_one_name_do_not_share_a_machine(stack: PoolAndNode) -> None:
    running = stack.processes["node"]
    stack.start_node()
    second = stack.processes["node"]
    stack.processes["node"] = running
    assert second.wait(20) == 1
    assert "Another agent of node 'n1' runs on this machine" in stack.log("node")

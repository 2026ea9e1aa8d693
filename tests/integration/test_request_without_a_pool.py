"""A request meets a pool that is away for a moment: one that may wait goes on, the others say so soon."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest
from gpupool.client import pool
from gpupool.client.errors import PoolUnavailableError
from gpupool.client.pool import NO_ANSWER, RETRY_SECONDS, PoolClient
from gpupool.client.types import LeaseRequest, QueuePlace
from gpupool.shares import Share

from tests.support.patience import until_late
from tests.support.pool_node import PoolAndNode

_REQUEST = LeaseRequest(Share.parse("0.5"), label="test")


@pytest.fixture(scope="module")
def stack() -> Iterator[PoolAndNode]:
    with PoolAndNode(real_worker=False) as running:
        yield running


@pytest.fixture
def places() -> list[QueuePlace]:
    return []


async def test_one_that_may_wait_goes_on_when_the_pool_is_back(
    stack: PoolAndNode, places: list[QueuePlace], monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a busy machine a pool may take longer than that to start.
    monkeypatch.setattr(pool, "REQUEUE_SECONDS", 600.0)
    async with PoolClient(stack.endpoint) as client:
        await client.leases()
        stack.kill("pool")
        asked = asyncio.create_task(client.request(_REQUEST, wait_seconds=600, on_queued=places.append))
        deadline = until_late(20)
        while not places:
            assert time.monotonic() < deadline and not asked.done()
            await asyncio.sleep(0.05)
        await asyncio.sleep(RETRY_SECONDS + 0.5)
        assert not asked.done()
        assert [(one.place, one.reason) for one in places] == [(0, NO_ANSWER)]
        stack.start_pool()
        grant = await asked
        assert [share.milli for share in grant.shares] == [500]
        await client.release(grant.lease_id, close_session=True)


@pytest.mark.parametrize(("heard", "wait_seconds"), [(False, 600.0), (True, 0.0)])
async def test_a_pool_that_never_answered_and_a_request_that_does_not_wait_are_an_error_soon(
    stack: PoolAndNode, places: list[QueuePlace], heard: bool, wait_seconds: float
) -> None:
    async with PoolClient(stack.endpoint) as client:
        if heard:
            await client.leases()
        stack.kill("pool")
        try:
            with pytest.raises(PoolUnavailableError):
                await client.request(_REQUEST, wait_seconds=wait_seconds, on_queued=places.append)
            # Whoever is asked to be patient is told so.
            assert places == []
        finally:
            stack.start_pool()

"""The renewal of leases: how long it has been failing is a fact about leases that are held."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import pytest
from gpupool.client import holder as holder_module
from gpupool.client.errors import PoolUnavailableError
from gpupool.client.holder import JITTER, LEASE_SECONDS, RENEW_SECONDS, LeaseHolder
from gpupool.client.types import LeaseStatus, Usage
from gpupool.pool.model.timers import Timers
from traitlets import TraitError

from jupyter_gpupool.server.extension import GpuPoolExtension


class Pool:
    """Renews everything, or nothing while it is down."""

    down = False

    async def renew(self, lease_ids: Sequence[str]) -> dict[str, LeaseStatus]:
        if self.down:
            raise PoolUnavailableError("unix:/nowhere", "connection refused")
        return {lease: LeaseStatus(lease, "attached", "", Usage()) for lease in lease_ids}


def holder_of(pool: Any) -> LeaseHolder:
    return LeaseHolder(pool, on_ended=lambda status: None)


async def test_failing_begins_with_the_first_failure_and_ends_with_a_success() -> None:
    pool = Pool()
    holder = holder_of(pool)
    holder.hold("lease1")
    pool.down = True
    await holder.renew_now()
    since = holder.failing_since
    await holder.renew_now()
    assert since is not None
    assert holder.failing_since == since
    pool.down = False
    await holder.renew_now()
    assert holder.failing_since is None


async def test_a_lease_held_after_an_outage_does_not_inherit_it() -> None:
    pool = Pool()
    holder = holder_of(pool)
    holder.hold("lease1")
    pool.down = True
    await holder.renew_now()
    holder.drop("lease1")  # given up: the pool has been silent for too long
    holder.hold("lease2")
    assert holder.failing_since is None


async def test_silence_is_told_once_and_on_time_also_while_a_renewal_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(holder_module, "LEASE_SECONDS", 0.3)
    pool: Any = Pool()
    told: list[float] = []

    async def waits(_: Sequence[str]) -> dict[str, LeaseStatus]:
        await asyncio.sleep(3600)
        return {}

    holder = LeaseHolder(
        pool,
        on_ended=lambda status: None,
        on_silence=lambda: told.append(time.monotonic()),
        interval_seconds=0.05,
    )
    async with holder:
        holder.hold("lease1")
        await asyncio.sleep(0.5)
        assert told == [], "it answers"
        pool.renew, asked_at = waits, time.monotonic()
        async with asyncio.timeout(5):
            while not told:
                await asyncio.sleep(0.01)
        assert told[0] - asked_at > 0.15
        await asyncio.sleep(0.2)
        assert len(told) == 1


async def test_who_was_stopped_for_long_asks_before_it_calls_the_pool_silent() -> None:
    holder = holder_of(Pool())
    holder.hold("lease1")
    holder._answered_at -= 2 * LEASE_SECONDS
    assert holder._silence_due(now := time.monotonic()) > now


async def test_a_fault_about_one_lease_keeps_nothing_from_the_others() -> None:
    told: list[str] = []

    def renewed(status: LeaseStatus) -> None:
        told.append(status.lease_id)
        raise OSError("no space left on the device")

    pool: Any = Pool()
    holder = LeaseHolder(pool, on_ended=lambda status: None, on_renewed=renewed)
    holder.hold("lease1")
    holder.hold("lease2")
    await holder.renew_now()
    assert told == ["lease1", "lease2"]


def test_holders_count_the_seconds_that_the_pool_counts() -> None:
    assert (Timers().renew, Timers().holder) == (RENEW_SECONDS, LEASE_SECONDS)


def test_a_server_renews_so_often_that_one_renewal_may_be_lost() -> None:
    slowest = GpuPoolExtension.class_traits()["renew_seconds"].max
    assert 2 * (1 + JITTER) * slowest < LEASE_SECONDS
    with pytest.raises(TraitError, match="renew_seconds"):
        GpuPoolExtension(renew_seconds=30.0)

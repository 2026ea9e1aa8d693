"""A lease that is taken back with notice: when its holder is told, when it rests, and what comes again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from gpupool.client.holder import LeaseHolder
from gpupool.client.reasons import COMES_BACK
from gpupool.client.returning import PAUSE_SECONDS, hand_over, pause_seconds
from gpupool.client.session_file import SessionFile
from gpupool.client.types import LeaseStatus, Notice, Usage
from gpupool.sentences.reasons import REASONS


class Pool:
    """One lease; what a test says of it is told at each renewal."""

    notice: Notice | None = None
    state, reason = "attached", ""
    renewals = 0

    async def renew(self, lease_ids: Sequence[str]) -> dict[str, LeaseStatus]:
        self.renewals += 1
        return {
            lease: LeaseStatus(lease, self.state, self.reason, Usage(), self.notice) for lease in lease_ids
        }


def notice(seconds: float, reason: str = "reclaim") -> Notice:
    return Notice(reason, seconds, "Project b needs it.")


def test_what_is_asked_for_again() -> None:
    assert {*REASONS} & COMES_BACK == {"reclaim", "preempt", "consolidate", "drain", "lost"}


@pytest.mark.parametrize(("longest", "pause"), [(30.0, PAUSE_SECONDS), (6.0, 2.0), (300.0, PAUSE_SECONDS)])
def test_it_rests_before_the_end_and_no_longer_than_needed(longest: float, pause: float) -> None:
    assert pause_seconds(longest) == pause


async def test_the_last_moments_are_told_once_and_again_for_another_notice() -> None:
    pool: Any = Pool()
    told: list[float] = []
    holder = LeaseHolder(
        pool,
        on_ended=lambda status: None,
        on_last_moments=lambda status: told.append(status.notice.seconds_left if status.notice else -1),
    )
    holder.hold("l1")
    for left in (30.0, 20.5):
        pool.notice = notice(left)
        await holder.renew_now()
    assert told == []
    for left in (9.5, 4.0):
        pool.notice = notice(left)
        await holder.renew_now()
    assert told == [9.5]
    pool.notice = None  # not taken back after all
    await holder.renew_now()
    pool.notice = notice(30.0)
    await holder.renew_now()
    assert told == [9.5]
    pool.notice = notice(1.0)
    await holder.renew_now()
    assert told == [9.5, 1.0]


async def test_the_last_moments_come_in_time_and_the_end_is_heard_soon() -> None:
    """Renewals are far apart; what a notice needs comes between them."""
    pool: Any = Pool()
    rested, ended = asyncio.Event(), asyncio.Event()
    async with LeaseHolder(
        pool,
        on_ended=lambda status: ended.set(),
        on_last_moments=lambda status: rested.set(),
        interval_seconds=5.0,
    ) as holder:
        holder.hold("l1")
        pool.notice = notice(0.3)
        await holder.renew_now()
        pool.notice = notice(0.05)
        async with asyncio.timeout(8):
            await rested.wait()
            pool.state, pool.reason = "ended", "reclaim"
            before = pool.renewals
            async with asyncio.timeout(2):
                await ended.wait()
    assert pool.renewals == before + 1


@pytest.mark.parametrize(("reason", "released"), [("reclaim", [("l1", "reclaim")]), ("consolidate", [])])
async def test_a_lease_goes_back_when_the_process_is_done_with_it(
    tmp_path: Path, reason: str, released: list[tuple[str, str]]
) -> None:
    calls: list[tuple[str, str]] = []

    async def release(lease: str, why: str) -> None:
        calls.append((lease, why))

    file = SessionFile(tmp_path / "session")
    record = file.write("waiting", session="5e", message="Project b needs it.")
    task = asyncio.create_task(hand_over(release, file, "l1", notice(5.0, reason), record.generation))
    await asyncio.sleep(0.15)
    assert not task.done()
    (tmp_path / "session.settled").write_text(f"{record.generation - 1}\n")  # said of an earlier file
    await asyncio.sleep(0.15)
    assert not task.done()
    (tmp_path / "session.settled").write_text(f"{record.generation}\n")
    async with asyncio.timeout(2):
        await task
    assert calls == released
    file.remove()
    assert list(tmp_path.iterdir()) == []


async def test_who_is_not_done_in_time_leaves_it_to_the_pool(tmp_path: Path) -> None:
    async def release(lease: str, why: str) -> None:
        raise AssertionError(f"{lease} was released")

    file = SessionFile(tmp_path / "session")
    record = file.write("waiting", session="5e")
    async with asyncio.timeout(2):
        await hand_over(release, file, "l1", notice(0.2), record.generation)

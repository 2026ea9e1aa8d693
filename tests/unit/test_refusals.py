"""A program that asks again whenever it is refused fills the ledger with lines: it is slowed down, and nobody else is."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
from gpupool.pool.api import refusals
from gpupool.pool.api.refusals import Refusals

DAY = 24 * 3600


class Clock:
    """Of a test that waits for nothing."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds + 0.001


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(refusals, "time", clock)
    monkeypatch.setattr(refusals, "asyncio", clock)
    return clock


@pytest.mark.parametrize("side_by_side", [1, 50])
async def test_a_day_of_refusals_has_so_many_lines_and_no_more(clock: Clock, side_by_side: int) -> None:
    of_all, began, lines = Refusals(), clock.now, 0
    while clock.now < began + DAY:
        for _ in range(side_by_side):
            await of_all.admit("ann", None)
        for _ in range(side_by_side):
            of_all.count("ann")
            lines += 1
    each_day = DAY / refusals.SECONDS_FOR_ONE
    assert each_day < lines <= refusals.AT_ONCE + each_day + 2 * side_by_side


async def test_others_do_not_wait(clock: Clock) -> None:
    of_all, began = Refusals(), clock.now
    for _ in range(refusals.AT_ONCE):
        await of_all.admit("ann", None)
        of_all.count("ann")
    await of_all.admit("bob", None)
    assert clock.now == began
    await of_all.admit("ann", None)
    assert clock.now >= began + refusals.SECONDS_FOR_ONE


async def test_a_crowd_that_waits_is_refused_without_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    class RefusedError(Exception):
        pass

    async def refuse(context: Any, code: object, reason: str, said: object) -> NoReturn:
        raise RefusedError(reason)

    held = asyncio.Event()

    async def sleep(_: float) -> None:
        await held.wait()

    monkeypatch.setattr(refusals, "refuse", refuse)
    monkeypatch.setattr(refusals, "AT_ONCE", 1)
    monkeypatch.setattr(refusals, "asyncio", SimpleNamespace(sleep=sleep))
    monkeypatch.setattr(refusals, "_MOST_WAITING", 2)
    of_all = Refusals()
    of_all.count("ann")
    waiting = [asyncio.create_task(of_all.admit("ann", None)) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(RefusedError, match="too-many-requests"):
        await of_all.admit("ann", None)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert not any(task.done() and not task.cancelled() for task in waiting)


async def test_those_of_whom_none_was_refused_of_late_are_forgotten(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refusals, "_MOST_USERS", 2)
    of_all = Refusals()
    of_all.count("ann")
    clock.now += 2 * refusals.SECONDS_FOR_ONE
    for user in ("bob", "cid"):
        of_all.count(user)
    assert set(of_all._of) == {"bob", "cid"}

"""What one user may cost the event loop with questions whose answers have to be worked out."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import grpc
import pytest
from gpupool.pool.api import looks
from gpupool.pool.api.looks import Turns


class Refused(Exception):
    """The call is over."""


@pytest.fixture(autouse=True)
def raises(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refusals are errors."""

    async def refuse(context: Any, code: grpc.StatusCode, reason: str, said: object) -> None:
        raise Refused(reason)

    monkeypatch.setattr(looks, "refuse", refuse)


def work() -> float:
    time.sleep(0.02)
    return time.monotonic()


async def test_who_asks_again_and_again_waits_and_others_do_not() -> None:
    turns = Turns(50.0, 20)  # after 0.02 s of work, a second of rest
    mine = [asyncio.ensure_future(turns.make("ann", None, work)) for _ in range(2)]
    await asyncio.sleep(0)
    other = await turns.make("bob", None, work)
    first, second = await asyncio.gather(*mine)
    assert first < other < second


async def test_too_many_at_once_are_refused_and_the_rest_is_answered() -> None:
    turns = Turns(0.0, 3)
    answers = await asyncio.gather(*(turns.make("ann", None, work) for _ in range(5)), return_exceptions=True)
    assert [isinstance(answer, Refused) for answer in answers] == [False] * 3 + [True] * 2
    await turns.make("ann", None, work)


async def test_work_that_fails_keeps_nobody_from_the_next() -> None:
    turns = Turns(1.0, 3)

    def fails() -> None:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        await turns.make("ann", None, fails)
    await turns.make("ann", None, work)


async def test_not_everybody_is_remembered_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looks, "_MOST_USERS", 3)
    turns = Turns(0.0, 3)
    for number in range(10):
        await turns.make(f"user{number}", None, lambda: None)
    assert len(turns._of) <= 3

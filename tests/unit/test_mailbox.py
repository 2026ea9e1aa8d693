"""What waits for a caller that reads slowly: one place and one answer, never more."""

from __future__ import annotations

import asyncio

import pytest
from gpupool.model.instructions import TellGranted, TellQueued, TellRefused
from gpupool.pool.lifecycle.mailbox import Mailbox
from gpupool.sentences import plain


def place(number: int) -> TellQueued:
    return TellQueued("ann", "k", number, plain("all 8 devices are taken"), None)


def test_of_many_places_the_newest_is_told() -> None:
    async def read() -> list[object]:
        mailbox = Mailbox()
        for number in (3, 2, 1):
            mailbox.put(place(number))
        seen: list[object] = [await mailbox.get()]
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(mailbox.get(), 0.01)
        mailbox.put(place(1))
        return [*seen, await mailbox.get()]

    assert asyncio.run(read()) == [place(1), place(1)]


def test_an_answer_comes_before_a_place_and_is_the_last_word() -> None:
    async def read() -> list[object]:
        mailbox = Mailbox()
        mailbox.put(place(1))
        mailbox.put(TellGranted("ann", "k", "l1"))
        mailbox.put(TellRefused("ann", "k", "lease-ended", plain("it ended")))
        mailbox.close()
        return [await mailbox.get(), await mailbox.get()]

    assert asyncio.run(read()) == [TellGranted("ann", "k", "l1")] * 2


def test_who_waits_already_is_woken() -> None:
    async def read() -> list[object]:
        mailbox = Mailbox()
        first = asyncio.create_task(mailbox.get())
        await asyncio.sleep(0)
        mailbox.put(place(7))
        mailbox.put(place(6))
        seen: list[object] = [await first]
        second = asyncio.create_task(mailbox.get())
        await asyncio.sleep(0)
        mailbox.close()
        return [*seen, await second]

    assert asyncio.run(read()) == [place(6), None]


def test_a_place_can_wait_and_an_answer_cannot() -> None:
    async def read() -> tuple[object, float, object, float]:
        loop = asyncio.get_running_loop()
        mailbox = Mailbox()
        begin = loop.time()
        mailbox.put(place(5))
        loop.call_later(0.02, mailbox.put, place(4))
        told = await mailbox.get(0.1)
        waited = loop.time() - begin
        begin = loop.time()
        mailbox.put(place(3))
        loop.call_later(0.02, mailbox.put, TellGranted("ann", "k", "l1"))
        answer = await mailbox.get(60.0)
        return told, waited, answer, loop.time() - begin

    told, waited, answer, after = asyncio.run(read())
    assert told == place(4)
    assert waited >= 0.1
    assert answer == TellGranted("ann", "k", "l1")
    assert after < 30

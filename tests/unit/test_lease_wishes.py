"""Wishes of a program's calls for a lease: what the holder hears at the pipe, and how it answers in the session file."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from gpupool.client.session_file import SessionFile
from gpupool.client.wishes import SUFFIX, Wishes


class Holder:
    """Attaches when it is told to."""

    def __init__(self) -> None:
        self.asked = 0
        self.given_up = 0
        self.go_on = asyncio.Event()
        self.refuses = ""
        self.answers: list[tuple[int, str]] = []

    async def attach(self) -> None:
        self.asked += 1
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.given_up += 1
            raise
        if self.refuses:
            raise ValueError(self.refuses)

    def answer(self, number: int, refusal: str) -> None:
        self.answers.append((number, refusal))


@pytest.fixture
def session(tmp_path: Path) -> Path:
    return tmp_path / "session"


@pytest_asyncio.fixture
async def holder(session: Path) -> AsyncIterator[Holder]:
    made = Holder()
    wishes = Wishes(session, made.attach, made.answer, str)
    yield made
    wishes.close()
    wishes.close()
    assert not pipe(session).exists()


def pipe(session: Path) -> Path:
    return session.with_name(session.name + SUFFIX)


def say(session: Path, text: bytes) -> None:
    """As the client runtime does: without waiting for a listener."""
    end = os.open(pipe(session), os.O_WRONLY | os.O_NONBLOCK)
    os.write(end, text)
    os.close(end)


async def until(condition: object) -> None:
    assert callable(condition)
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.005)


async def test_a_wish_is_granted(session: Path, holder: Holder) -> None:
    say(session, b"want 1\n")
    await until(lambda: holder.asked == 1)
    assert not holder.answers
    holder.go_on.set()
    await until(lambda: holder.answers == [(1, "")])


async def test_a_wish_is_refused_with_a_sentence(session: Path, holder: Holder) -> None:
    holder.refuses = "The pool is full."
    holder.go_on.set()
    say(session, b"want 7\n")
    await until(lambda: holder.answers == [(7, "The pool is full.")])


async def test_who_waits_no_more_leaves_the_queue_and_hears_nothing(session: Path, holder: Holder) -> None:
    say(session, b"want 1\n")
    await until(lambda: holder.asked == 1)
    say(session, b"done 1\n")
    await until(lambda: holder.given_up == 1)
    assert not holder.answers
    say(session, b"want 2\n")
    await until(lambda: holder.asked == 2)
    say(session, b"done 1\n")  # it is late, and not about this one
    await asyncio.sleep(0.05)
    assert holder.given_up == 1


async def test_words_in_pieces_and_nonsense(session: Path, holder: Holder) -> None:
    holder.go_on.set()
    say(session, b"want x\nwant 99999999999999\n\n\xff\xfe\nwa")
    say(session, b"nt 3\n")
    await until(lambda: holder.answers == [(3, "")])
    assert holder.asked == 1


async def test_the_pipe_is_private_and_takes_the_place_of_what_lay_there(tmp_path: Path) -> None:
    session = tmp_path / "session"
    pipe(session).write_text("left by somebody")
    holder = Holder()
    wishes = Wishes(session, holder.attach, holder.answer, str)
    found = pipe(session).stat()
    assert stat.S_ISFIFO(found.st_mode)
    assert stat.S_IMODE(found.st_mode) == 0o600
    say(session, b"want 1\n")
    await until(lambda: holder.asked == 1)
    wishes.close()
    await until(lambda: holder.given_up == 1)
    with pytest.raises(FileNotFoundError):
        say(session, b"want 2\n")


def test_the_answer_stands_in_the_session_file_from_then_on(session: Path) -> None:
    file = SessionFile(session)
    file.write("parked", session="ab")
    assert file.read().answered == 0
    file.answered = 4
    file.write("parked", session="ab")
    assert file.read().answered == 4
    assert SessionFile(session).read().answered == 4
    assert b"answered 4\n" in session.read_bytes()

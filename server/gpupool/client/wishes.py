"""A program's calls wish for a lease (`%gpu auto on`): what its holder hears, and how it answers.

The pipe ``<session file>.wishes`` carries lines: ``want 3`` when a call finds no GPU attached and waits for one, ``done 3``
when nobody waits for it any more (src/client/session/attach_again.h). The answer is the number in the session file, beside a
lease or beside the sentence that says why there is none.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

SUFFIX: Final = ".wishes"
_MOST_BYTES: Final = 4096


class Wishes:
    """Listens at one session file. Use it in one event loop; :meth:`close` ends it.

    Args:
        session_file: the pipe lies beside it.
        attach: gets a lease; what it raises is the refusal. Cancelled when nobody waits any more.
        answer: is told the number and, where there is no lease, why.
        explain: the sentence of what ``attach`` raised; None: a fault, which is raised again.
    """

    def __init__(
        self,
        session_file: Path,
        attach: Callable[[], Awaitable[object]],
        answer: Callable[[int, str], None],
        explain: Callable[[Exception], str],
    ) -> None:
        self._path = session_file.with_name(session_file.name + SUFFIX)
        self._attach = attach
        self._answer = answer
        self._explain = explain
        self._wish: tuple[int, asyncio.Task[None]] | None = None
        self._rest = b""
        self._path.unlink(missing_ok=True)
        os.mkfifo(self._path, 0o600)
        # For writing too: without a writer the pipe would be at its end, which is readable all the time.
        self._pipe = os.open(self._path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        assert stat.S_ISFIFO(os.fstat(self._pipe).st_mode)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._pipe, self._readable)

    def close(self) -> None:
        """Wishes are not heard any more; one under way is given up. May be called twice."""
        if self._pipe < 0:
            return
        self._loop.remove_reader(self._pipe)
        os.close(self._pipe)
        self._pipe = -1
        self._path.unlink(missing_ok=True)
        if self._wish is not None:
            self._wish[1].cancel()

    def _readable(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._rest += os.read(self._pipe, _MOST_BYTES)
        *lines, self._rest = self._rest.split(b"\n")
        self._rest = self._rest[-_MOST_BYTES:]
        for line in lines:
            what, _, number = line.partition(b" ")
            if number.isdigit() and len(number) < 10:
                self._said(what, int(number))

    def _said(self, what: bytes, number: int) -> None:
        if what == b"want":
            self._give_up()
            self._wish = number, self._loop.create_task(self._get(number))
        elif what == b"done" and self._wish is not None and self._wish[0] == number:
            self._give_up()

    def _give_up(self) -> None:
        if self._wish is not None:
            self._wish[1].cancel()
            self._wish = None

    async def _get(self, number: int) -> None:
        try:
            await self._attach()
        except Exception as error:
            self._answer(number, self._explain(error))
        else:
            self._answer(number, "")

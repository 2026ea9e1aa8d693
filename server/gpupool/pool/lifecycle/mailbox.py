"""What a caller that waits has not been told yet: the newest place, and an answer.

With many in the queue everybody's place changes with every grant. A caller that reads slowly, or that has been told a moment
ago, is told where it stands later, not all the places between; so what waits for it never grows, and telling places never
takes the time that granting needs.
"""

from __future__ import annotations

import asyncio

from gpupool.model import instructions

#: What a caller that waits for a request is told.
Told = instructions.TellQueued | instructions.TellGranted | instructions.TellRefused


class Mailbox:
    """For one caller of one request, in one event loop."""

    __slots__ = ("_answer", "_arrived", "_closed", "_place")

    def __init__(self) -> None:
        self._place: instructions.TellQueued | None = None
        self._answer: Told | None = None
        self._closed = False
        self._arrived: asyncio.Future[None] | None = None

    def put(self, told: Told) -> None:
        """A new place replaces an older one; after an answer nothing more is said."""
        if isinstance(told, instructions.TellQueued):
            self._place = told
        elif self._answer is None:
            self._answer = told
        self._wake()

    def close(self) -> None:
        """The pool is stopping."""
        self._closed = True
        self._wake()

    async def get(self, place_after: float = 0.0) -> Told | None:
        """The answer, if there is one, else the newest place that was not told; None: the pool is stopping.

        Args:
            place_after: seconds that a place waits for, unless an answer comes first.
        """
        loop = asyncio.get_running_loop()
        due = loop.time() + place_after
        while True:
            if self._answer is not None:
                return self._answer
            if self._closed:
                return None
            rest = due - loop.time()
            if self._place is not None and rest <= 0:
                place, self._place = self._place, None
                return place
            self._arrived = arrived = loop.create_future()
            timer = None if self._place is None else loop.call_later(rest, _arrive, arrived)
            try:
                await arrived
            finally:
                if timer is not None:
                    timer.cancel()

    def _wake(self) -> None:
        if self._arrived is not None:
            _arrive(self._arrived)


def _arrive(arrived: asyncio.Future[None]) -> None:
    if not arrived.done():
        arrived.set_result(None)

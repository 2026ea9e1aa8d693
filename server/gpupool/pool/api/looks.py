"""What calls may cost all others: so many looks at the ledger at a time, fewer of one user; and a part of the event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

import grpc
from sqlalchemy.exc import SQLAlchemyError

from gpupool.pool.access.auth import current_identity, refuse
from gpupool.sentences import param, say

Value = TypeVar("Value")

#: So many users are remembered before those are forgotten who may ask at once anyway.
_MOST_USERS: Final = 1000
#: After an answer has been worked out, its user's next one waits so many times as long: the loop is there for leases, too.
_REST: Final = 4.0
#: Questions of one user that may wait.
_MOST_WAITING: Final = 20


class Turns:
    """Turns at work of the event loop, of which one user has a part at most: whoever asks again and again waits alone.

    After work that took a while the same user's next begins some times as long later. Nothing is refused but what would wait
    behind many others of the same user.

    Args:
        rest: how many times as long as the work itself.
        most: calls of one user that may wait.
    """

    def __init__(self, rest: float = _REST, most: int = _MOST_WAITING) -> None:
        self._rest, self._most = rest, most
        self._of: dict[str, _Turn] = {}

    async def make(self, user: str, context: Any, work: Callable[..., Value], *arguments: Any) -> Value:
        """What `work` returns, when it is the turn of `user`, for whom it is; refuses the call when too many wait for theirs."""
        turn = self._turn_of(user)
        if turn.waiting >= self._most:
            said = say("too-many-requests", count=param.count(turn.waiting))
            await refuse(context, grpc.StatusCode.RESOURCE_EXHAUSTED, "too-many-requests", said)
        turn.waiting += 1
        try:
            async with turn.lock:
                await asyncio.sleep(turn.free_at - time.monotonic())
                began = time.monotonic()
                try:
                    return work(*arguments)
                finally:
                    ended = time.monotonic()
                    turn.free_at = ended + self._rest * (ended - began)
        finally:
            turn.waiting -= 1

    def _turn_of(self, user: str) -> _Turn:
        if len(self._of) >= _MOST_USERS:
            now = time.monotonic()
            self._of = {name: turn for name, turn in self._of.items() if turn.waiting or turn.free_at > now}
        return self._of.setdefault(user, _Turn())


class _Turn:
    """Of one user: the calls that wait, and when the next may begin."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.waiting = 0
        self.free_at = 0.0


class Looks:
    """Makes looks in threads of its own.

    A look under way goes on when its caller has hung up, so what is counted are looks and not calls. One that has not begun is
    dropped then.

    Args:
        at_once: looks under way; others wait.
        of_one_user: looks of one user under way, fewer than `at_once`: a user who makes many waits alone.
        name: of the threads.
    """

    def __init__(self, at_once: int, of_one_user: int, name: str) -> None:
        self._threads = ThreadPoolExecutor(at_once, thread_name_prefix=name)
        self._of_one_user = of_one_user
        self._of_user: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def make(self, context: Any, look: Callable[..., Value], *arguments: Any) -> Value:
        """What `look` returns; refuses the call when the ledger cannot be read."""
        user = current_identity().name
        turns = self._of_user.get(user)
        if turns is None:
            turns = self._of_user[user] = asyncio.Semaphore(self._of_one_user)
        await turns.acquire()
        try:
            made = self._threads.submit(look, *arguments)
        except BaseException:
            turns.release()
            raise
        loop = asyncio.get_running_loop()

        def ended(_: Future[Value]) -> None:
            with suppress(RuntimeError):  # the server has stopped, and its loop with it
                loop.call_soon_threadsafe(turns.release)

        made.add_done_callback(ended)
        try:
            return await asyncio.wrap_future(made)
        except SQLAlchemyError as error:
            # Its text has the whole statement behind the first line.
            cause = str(getattr(error, "orig", None) or error).partition("\n")[0]
            text = f"the ledger cannot be read: {cause}"
            await refuse(context, grpc.StatusCode.UNAVAILABLE, "ledger", text)

"""Looks at the ledger, in threads beside the event loop: so many at a time, and fewer of one user."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import grpc
from sqlalchemy.exc import SQLAlchemyError

from gpupool.pool.access.auth import current_identity, refuse

Value = TypeVar("Value")


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
        self._turns: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def make(self, context: Any, look: Callable[..., Value], *arguments: Any) -> Value:
        """What `look` returns; refuses the call when the ledger cannot be read."""
        user = current_identity().name
        turns = self._turns.get(user)
        if turns is None:
            turns = self._turns[user] = asyncio.Semaphore(self._of_one_user)
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

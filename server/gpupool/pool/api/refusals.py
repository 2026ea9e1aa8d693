"""A program that asks again whenever it is refused is slowed down: the ledger keeps a line of each refusal for ever."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

import grpc

from gpupool.pool.access.auth import refuse
from gpupool.pool.access.rate_limit import RateLimit
from gpupool.sentences import param, say

#: One user's requests that end without a lease: so many at once, then one in so many seconds. A day's have about 10 MB.
AT_ONCE: Final = 1000
SECONDS_FOR_ONE: Final = 5.0
#: Requests of one user that may wait until one more may be refused.
_MOST_WAITING: Final = 100
#: So many users are remembered before those are forgotten of whom none was refused of late.
_MOST_USERS: Final = 1000


class _OfUser:
    def __init__(self) -> None:
        self.limit = RateLimit(1.0 / SECONDS_FOR_ONE, AT_ONCE, time.monotonic())
        self.waiting = 0


class Refusals:
    """How many requests of each user, and changes of a lease's size, have come to nothing of late.

    Those under way when the limit is reached are refused all the same: the next ones wait the longer.
    """

    def __init__(self) -> None:
        self._of: dict[str, _OfUser] = {}

    async def admit(self, user: str, context: Any) -> None:
        """Returns when a request of this user may be looked at; refuses the call when many wait for that already."""
        mine = self._of.get(user)
        if mine is None:
            return
        if mine.waiting >= _MOST_WAITING:
            said = say("too-many-requests", count=param.count(mine.waiting))
            await refuse(context, grpc.StatusCode.RESOURCE_EXHAUSTED, "too-many-requests", said)
        mine.waiting += 1
        try:
            while True:
                seconds = mine.limit.seconds_left(time.monotonic())
                if seconds <= 0:
                    return
                await asyncio.sleep(seconds)
        finally:
            mine.waiting -= 1

    def count(self, user: str) -> None:
        """A request of this user was refused, or its caller has left the queue."""
        if user not in self._of and len(self._of) >= _MOST_USERS:
            now = time.monotonic()
            self._of = {name: x for name, x in self._of.items() if x.waiting or not x.limit.is_untouched(now)}
        self._of.setdefault(user, _OfUser()).limit.take()

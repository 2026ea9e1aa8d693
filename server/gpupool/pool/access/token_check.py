"""Whether a token is good: as the ledger says, or, while it does not answer, as it said last.

Holders renew their leases every few seconds. If the database is away for longer than a lease lives, they must not lose
them because nobody can look up who they are.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from sqlalchemy.exc import SQLAlchemyError

from gpupool.pool.access import tokens
from gpupool.pool.access.tokens import TokenInfo

#: Seconds that a database has to answer. Calls wait for it, heartbeats among them.
_ANSWER: Final = 2.0
#: After a question that failed the next is asked so many seconds later.
_PAUSE: Final = 1.0
#: So many tokens are remembered, those used last.
_MOST: Final = 10_000

_Value = TypeVar("_Value")


class LedgerSilentError(Exception):
    """The ledger does not say whether a token is good, and has not said so before."""


class TokenCheck:
    """For the event loop of a server.

    Args:
        stored: the ledger, or its database alone.
    """

    def __init__(self, stored: tokens.Stored) -> None:
        self._stored = stored
        # A file answers at once. A database on another machine may not answer at all, and the loop must go on.
        beside = stored.engine.dialect.name != "sqlite"
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tokens") if beside else None
        self._failed_at = -math.inf
        #: By the hash of the whole token.
        self._good: OrderedDict[bytes, TokenInfo] = OrderedDict()

    async def verify(self, text: str) -> TokenInfo | None:
        """The token's row if `text` is a live token.

        Raises:
            LedgerSilentError: nothing is known of it.
        """
        digest = hashlib.sha256(text.encode()).digest()
        try:
            info = await self._ask(lambda: tokens.verify(self._stored, text))
        except (SQLAlchemyError, TimeoutError) as error:
            known = self._good.get(digest)
            if known is None:
                raise LedgerSilentError(
                    "the pool cannot look up your token: its database does not answer"
                ) from error
            return known
        self._good.pop(digest, None)
        if info is not None:
            self._good[digest] = info
            if len(self._good) > _MOST:
                self._good.popitem(last=False)
        return info

    def forget(self, token_id: str) -> None:
        """It was revoked: if the ledger does not answer, this token is none that was good before."""
        for digest in [digest for digest, info in self._good.items() if info.id == token_id]:
            del self._good[digest]

    async def is_live(self, token_id: str) -> bool:
        """Whether a token that was accepted earlier still is; asked again and again by calls that last.

        If the ledger does not answer, nothing is known of a revocation, and all stays as it is.
        """
        try:
            return await self._ask(lambda: tokens.is_live(self._stored, token_id))
        except (SQLAlchemyError, TimeoutError):
            return True

    async def _ask(self, question: Callable[[], _Value]) -> _Value:
        if time.monotonic() < self._failed_at + _PAUSE:
            raise TimeoutError
        try:
            if self._thread is None:
                return question()
            async with asyncio.timeout(_ANSWER):
                return await asyncio.get_running_loop().run_in_executor(self._thread, question)
        except (SQLAlchemyError, TimeoutError):
            self._failed_at = time.monotonic()
            raise

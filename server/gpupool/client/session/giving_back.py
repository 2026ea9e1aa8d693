"""Giving a lease or a session back, whether the pool can be reached at once or not."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

from gpupool.client.errors import GpupoolError, PoolRefusedError
from gpupool.client.reasons import MOMENTARY
from gpupool.client.session.port import Pool

logger = logging.getLogger(__name__)

#: How long it is repeated; afterwards the lease has expired by itself.
RETRY_SECONDS: Final = 40.0

#: Release or close of :class:`gpupool.client.session.port.Pool`: takes an id and a reason.
PoolCall: TypeAlias = Callable[[str, str], Awaitable[Any]]


async def give_back(
    call: PoolCall,
    identity: str,
    reason: str,
    on_failure: Callable[[GpupoolError], None] = lambda _: None,
) -> None:
    """Makes the call, which is idempotent, until the pool has taken it; ``on_failure`` is told if it does not at first.

    A refusal that is only momentary (the pool cannot write its ledger) leaves everything as it was: it counts as no answer.
    """
    deadline = time.monotonic() + RETRY_SECONDS
    delay, told = 0.2, False
    while True:
        try:
            await call(identity, reason)
        except GpupoolError as error:
            if isinstance(error, PoolRefusedError) and error.reason not in MOMENTARY:
                logger.info("%s is not held any more: %s", identity, error)
                return
            if not told:
                told = True
                on_failure(error)
            if time.monotonic() + delay > deadline:
                logger.warning("%s could not be given back, it expires by itself: %s", identity, error)
                return
            await asyncio.sleep(delay)
            delay = min(2 * delay, 5.0)
            continue
        return


async def give_strays_back(
    pool: Pool, holder: str, is_stray: Callable[[str], bool], session_id: Callable[[], str | None]
) -> None:
    """A grant may have crossed the cancellation of its request: gives such leases of ``holder`` back.

    ``is_stray`` is asked of each right before. A session that was made for a stray alone ends with it; ``session_id``, the
    holder's own, parks.
    """
    with contextlib.suppress(GpupoolError):
        for lease in await pool.leases():
            if lease.holder == holder and lease.state == "attached" and is_stray(lease.id):
                await pool.release(lease.id, "release", close_session=lease.session_id != session_id())

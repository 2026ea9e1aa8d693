"""Asking for another size of the lease that is held, also while the pool is away for a moment."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from gpupool.client.errors import PoolUnavailableError
from gpupool.client.pool import NO_ANSWER, REQUEUE_SECONDS
from gpupool.client.session.asking_again import AGAIN_SECONDS
from gpupool.client.session.port import Pool
from gpupool.client.types import Grant, QueuePlace
from gpupool.shares import Share


async def change_size(
    pool: Pool,
    lease_id: str,
    share: Share,
    wait_seconds: float | None,
    *,
    wanted: Callable[[], bool],
    on_queued: Callable[[QueuePlace], None] | None,
) -> Grant:
    """The lease with its new size. It may be asked for twice: the same size again changes nothing.

    Args:
        pool: whom to ask.
        lease_id: of the lease that is held.
        share: its new size on each of its devices.
        wait_seconds: how long a pool that is away is waited for, half a minute at most; None: half a minute.
        wanted: whether anybody still waits for it, asked before each further attempt.
        on_queued: told once, as place 0, that the pool does not answer.

    Raises:
        PoolRefusedError: it does not fit.
        PoolUnavailableError: the pool is away. It may have changed the size nevertheless.
    """
    patience = REQUEUE_SECONDS if wait_seconds is None else min(REQUEUE_SECONDS, wait_seconds)
    until = time.monotonic() + patience
    told = False
    while True:
        try:
            return await pool.resize(lease_id, share)
        except PoolUnavailableError:
            if not wanted() or time.monotonic() >= until:
                raise
        if on_queued is not None and not told:
            told = True
            on_queued(QueuePlace(0, NO_ANSWER, None))
        await asyncio.sleep(min(AGAIN_SECONDS, max(0.0, until - time.monotonic())))

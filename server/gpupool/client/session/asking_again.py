"""Asking again for a lease that was taken back for others, until it comes or nobody wants it any more."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from gpupool.client.errors import PoolRefusedError, PoolUnavailableError
from gpupool.client.session.events import Granted, Refused
from gpupool.client.session.port import Pool
from gpupool.client.types import Grant, LeaseRequest, QueuePlace

#: Between two attempts while the pool does not answer, seconds.
AGAIN_SECONDS: Final = 2.0


async def ask_again(
    pool: Pool,
    request: LeaseRequest,
    wait_seconds: float | None,
    *,
    wanted: Callable[[], bool],
    on_queued: Callable[[QueuePlace], None],
    on_request: Callable[[asyncio.Future[Grant] | None], None],
) -> Granted | Refused | None:
    """What came of it; None: it was withdrawn.

    Args:
        pool: whom to ask.
        request: the same at each attempt, so that it keeps its key.
        wait_seconds: for how long; None without limit.
        wanted: whether it still is, asked before each attempt.
        on_queued: told each place in the queue.
        on_request: told the request under way, which may be cancelled, and None after it.
    """
    until = None if wait_seconds is None else time.monotonic() + wait_seconds
    while wanted():
        left = None if until is None else max(0.0, until - time.monotonic())
        answer = asyncio.ensure_future(pool.request(request, on_queued=on_queued, wait_seconds=left))
        on_request(answer)
        try:
            return Granted(await answer)
        except PoolRefusedError as error:
            return Refused(error.reason, error.explanation)
        except PoolUnavailableError as error:
            if left == 0:
                return Refused("pool-down", str(error))
        except asyncio.CancelledError:
            if is_cancelled():
                raise
            return None
        finally:
            on_request(None)
        await asyncio.sleep(AGAIN_SECONDS)
    return None


def is_cancelled() -> bool:
    """Whether the current task itself is being cancelled (and not only what it awaits)."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0

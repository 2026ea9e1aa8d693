"""Asking again for a lease that was taken back for others, until it comes or nobody wants it any more."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from gpupool.client.errors import PoolRefusedError, PoolUnavailableError
from gpupool.client.reasons import MOMENTARY, NOT_STARTED
from gpupool.client.session.events import Granted, Refused
from gpupool.client.session.port import Pool
from gpupool.client.types import LeaseRequest, QueuePlace

#: Between two attempts while the pool does not answer, or has no answer now, seconds.
AGAIN_SECONDS: Final = 2.0
#: The pause grows to this with each lease that did not start, seconds: a node that is broken may stay so for hours.
MOST_SECONDS: Final = 60.0
#: A session whose image is damaged never starts again, and each attempt takes a share from others for some time. That is the
#: answer when so many leases one after the other did not start, and so many seconds have passed since the first of them: only
#: then, as a node may be broken for a while, and a busy pool, or one that is away, leaves long pauses between few attempts.
MOST_STARTS: Final = 10
GIVE_UP_SECONDS: Final = 3600.0


async def ask_again(
    pool: Pool,
    request: LeaseRequest,
    wait_seconds: float | None,
    *,
    wanted: Callable[[], bool],
    on_queued: Callable[[QueuePlace], None],
    on_attempt: Callable[[asyncio.Future[Any] | None], None],
    clock: Callable[[], float] = time.monotonic,
) -> Granted | Refused | None:
    """What came of it; None: it was withdrawn.

    Leases that do not start, again and again for an hour, are an answer in the end.

    Args:
        pool: whom to ask.
        request: the same at each attempt, so that it keeps its key, until its lease was granted and did not start.
        wait_seconds: for how long; None without limit.
        wanted: whether it still is, asked before each attempt.
        on_queued: told each place in the queue, and as place 0 why the pool has no answer now.
        on_attempt: told the request under way, or the pause before the next one, which may be cancelled; None after it.
        clock: seconds that only grow.
    """
    until = None if wait_seconds is None else clock() + wait_seconds
    growing, anew, key = AGAIN_SECONDS, 1, request.idempotency_key
    said = ""
    since, starts = 0.0, 0

    def tell(place: QueuePlace) -> None:
        nonlocal said
        said = place.reason
        on_queued(place)

    try:
        while wanted():
            left = None if until is None else max(0.0, until - clock())
            pause = AGAIN_SECONDS
            asked = asyncio.ensure_future(pool.request(request, on_queued=tell, wait_seconds=left))
            on_attempt(asked)
            try:
                return Granted(await asked)
            except PoolRefusedError as error:
                if error.reason not in MOMENTARY or left == 0:
                    return Refused(error.reason, error.explanation)
                if error.reason in NOT_STARTED:
                    if starts == 0:
                        since = clock()
                    starts += 1
                    if starts >= MOST_STARTS and clock() - since >= GIVE_UP_SECONDS:
                        return Refused(error.reason, error.explanation)
                    anew += 1
                    request = replace(request, idempotency_key=f"{key}-{anew}")
                    pause, growing = growing, min(2 * growing, MOST_SECONDS)
                if error.explanation != said:
                    tell(QueuePlace(0, error.explanation, None))
            except PoolUnavailableError as error:
                if left == 0:
                    return Refused("pool-down", str(error))
            resting = asyncio.ensure_future(asyncio.sleep(pause if left is None else min(pause, left)))
            on_attempt(resting)
            await resting
    except asyncio.CancelledError:
        if is_cancelled():
            raise
    finally:
        on_attempt(None)
    return None


def is_cancelled() -> bool:
    """Whether the current task itself is being cancelled (and not only what it awaits)."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0

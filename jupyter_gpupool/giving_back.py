"""Giving a lease or a session back, whether the pool can be reached at once or not."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

from gpupool.client.errors import GpupoolError, PoolRefused

logger = logging.getLogger(__name__)

#: How long it is repeated; afterwards the lease has expired by itself.
RETRY_SECONDS: Final = 40.0

#: Release or close of :class:`jupyter_gpupool.pool_port.Pool`: takes an id and a reason.
PoolCall: TypeAlias = Callable[[str, str], Awaitable[Any]]


async def give_back(call: PoolCall, identity: str, reason: str) -> None:
    """Makes the call, which is idempotent, until the pool has answered."""
    deadline = time.monotonic() + RETRY_SECONDS
    delay = 0.2
    while True:
        try:
            await call(identity, reason)
        except PoolRefused as error:
            logger.info("%s is not held any more: %s", identity, error)
        except GpupoolError as error:
            if time.monotonic() + delay > deadline:
                logger.warning("%s could not be given back, it expires by itself: %s", identity, error)
                return
            await asyncio.sleep(delay)
            delay = min(2 * delay, 5.0)
            continue
        return

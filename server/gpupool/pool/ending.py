"""Ends what a server has begun."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any


async def cancel(task: asyncio.Task[Any]) -> None:
    """Returns when the task has ended."""
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task

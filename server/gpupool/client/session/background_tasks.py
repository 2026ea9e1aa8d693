"""Tasks that somebody started and nobody awaits, kept until they have ended."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

logger = logging.getLogger(__name__)

T = TypeVar("T")


class BackgroundTasks:
    """The event loop holds tasks weakly; this holds them. A failure is logged.

    Args:
        owner: whose tasks they are, for the log.
    """

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._tasks: set[asyncio.Task[Any]] = set()

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)
        return task

    async def settle(self, seconds: float) -> None:
        """Waits, at most so long, until what was started has been carried out."""
        pending = self._tasks - {asyncio.current_task()}
        if pending:
            await asyncio.wait(pending, timeout=seconds)

    def _finished(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("a background task of %s failed: %s", self._owner, error)

"""Keeps leases renewed, and tells when one ended and why."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from gpupool.client.errors import GpupoolError
from gpupool.client.pool import PoolClient
from gpupool.client.returning import NoticeWatch
from gpupool.client.types import LeaseStatus

#: The pool takes a lease back that was not renewed for so many seconds.
LEASE_SECONDS: Final = 25.0
#: Seconds between renewals.
RENEW_SECONDS: Final = 5.0
#: The most that a holder may set it to: one renewal may be lost on the way.
MOST_RENEW_SECONDS: Final = 10.0
#: Renewals of many holders must not fall together.
JITTER: Final = 0.2
#: In the last moments of a lease it is renewed this much more often: its end, or that it stays after all, is told soon.
LAST_MOMENTS: Final = 10
#: Seconds between renewals at the least.
LEAST_SECONDS: Final = 0.05

logger = logging.getLogger(__name__)


class LeaseHolder:
    """Renews every lease given to it until it is dropped or ends.

    Use it as an async context manager. The pool decides when a lease is over: while the
    pool cannot be reached the holder keeps trying, and reports an end only when the pool
    says so.

    Args:
        on_ended: called once per lease with its last status, from the event loop.
        on_renewed: called with the status (usage, notice) after each renewal.
        on_last_moments: called once for a notice, when the lease is about to end: what uses it must come to rest.
        on_silence: called once while the pool cannot be reached, when leases that it did not hear of are over there.
    """

    def __init__(
        self,
        pool: PoolClient,
        *,
        on_ended: Callable[[LeaseStatus], None],
        on_renewed: Callable[[LeaseStatus], None] | None = None,
        on_last_moments: Callable[[LeaseStatus], None] | None = None,
        on_silence: Callable[[], None] | None = None,
        interval_seconds: float = RENEW_SECONDS,
    ) -> None:
        self._pool = pool
        self._on_ended = on_ended
        self._on_renewed = on_renewed
        self._on_last_moments = on_last_moments
        self._on_silence = on_silence
        self._silent = False
        self._interval = interval_seconds
        self._leases: set[str] = set()
        self._notices: dict[str, NoticeWatch] = {}
        self._task: asyncio.Task[None] | None = None
        #: Monotonic time since which renewals fail; None while they succeed.
        self.failing_since: float | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run(), name="gpupool lease renewal")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Stops renewing; leases are not released. May be called twice."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def hold(self, lease_id: str) -> None:
        """Renews this lease from now on."""
        self._leases.add(lease_id)

    def drop(self, lease_id: str) -> None:
        """Stops renewing this lease; its end will not be reported."""
        self._leases.discard(lease_id)
        self._notices.pop(lease_id, None)
        if not self._leases:
            # Nothing is left that could fail; a lease held later starts with a clean record.
            self.failing_since, self._silent = None, False

    async def renew_now(self) -> None:
        """One renewal of everything held; called by the task, and by who cannot wait."""
        asked = sorted(self._leases)
        if not asked:
            return
        try:
            statuses = await self._pool.renew(asked)
        except GpupoolError as error:
            if self.failing_since is None:
                self.failing_since = time.monotonic()
                logger.warning("leases cannot be renewed: %s", error)
            elif not self._silent and time.monotonic() - self.failing_since >= LEASE_SECONDS:
                self._silent = True
                if self._on_silence is not None:
                    self._on_silence()
            return
        self.failing_since, self._silent = None, False
        for lease_id in asked:
            status = statuses.get(lease_id)
            if status is None or lease_id not in self._leases:
                continue
            if status.state == "attached":
                _tell(self._on_renewed, status)
                self._look_at_notice(status)
            else:
                self._leases.discard(lease_id)
                self._notices.pop(lease_id, None)
                _tell(self._on_ended, status)

    def _look_at_notice(self, status: LeaseStatus) -> None:
        now = time.monotonic()
        if status.notice is None:
            self._notices.pop(status.lease_id, None)
            return
        watch = self._notices.get(status.lease_id)
        if watch is None:
            watch = self._notices[status.lease_id] = NoticeWatch.begins(status.notice, now)
        else:
            watch.told_again(status.notice, now)
        if not watch.resting and now >= watch.rests_at:
            watch.resting = True
            _tell(self._on_last_moments, status)

    def _pause(self, now: float) -> float:
        """Seconds until the next renewal."""
        pause = self._interval * random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311
        for watch in self._notices.values():
            pause = min(pause, self._interval / LAST_MOMENTS if watch.resting else watch.rests_at - now)
        return max(pause, LEAST_SECONDS)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._pause(time.monotonic()))
            try:
                await self.renew_now()
            except Exception:
                # A fault is no reason to let the leases run out.
                logger.exception("leases were not renewed")


def _tell(callback: Callable[[LeaseStatus], None] | None, status: LeaseStatus) -> None:
    """A fault in one callback keeps nothing from the others."""
    if callback is None:
        return
    try:
        callback(status)
    except Exception:
        logger.exception("what lease %s is used for was not told how it is", status.lease_id)

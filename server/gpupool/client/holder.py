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
#: A renewal that is sent late (the process was stopped) is given so long before the pool counts as silent, at the most.
LATE_SECONDS: Final = 1.0
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
        on_silence: called once when the pool has answered no renewal for so long that leases may be over there. A call that
            a worker refuses then waits some seconds for that word: it comes on time, also while a renewal waits for its answer.
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
        #: Monotonic time of the pool's last answer about what is held.
        self._answered_at = 0.0
        #: When it was first asked after that; None: it was not.
        self._asked_at: float | None = None
        self._interval = interval_seconds
        self._leases: set[str] = set()
        self._notices: dict[str, NoticeWatch] = {}
        self._tasks: list[asyncio.Task[None]] = []
        #: Monotonic time since which renewals fail; None while they succeed.
        self.failing_since: float | None = None

    async def __aenter__(self) -> Self:
        self._tasks = [
            asyncio.create_task(self._run(), name="gpupool lease renewal"),
            asyncio.create_task(self._listen(), name="gpupool pool silence"),
        ]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Stops renewing; leases are not released. May be called twice."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def hold(self, lease_id: str) -> None:
        """Renews this lease from now on."""
        if not self._leases:
            # What has just been granted is as good as renewed.
            self._answered_at = time.monotonic()
        self._leases.add(lease_id)

    def drop(self, lease_id: str) -> None:
        """Stops renewing this lease; its end will not be reported."""
        self._leases.discard(lease_id)
        self._notices.pop(lease_id, None)
        if not self._leases:
            # Nothing is left that could fail; a lease held later starts with a clean record.
            self.failing_since, self._silent, self._asked_at = None, False, None

    async def renew_now(self) -> None:
        """One renewal of everything held; called by the task, and by who cannot wait."""
        asked = sorted(self._leases)
        if not asked:
            return
        if self._asked_at is None:
            self._asked_at = time.monotonic()
        try:
            statuses = await self._pool.renew(asked)
        except GpupoolError as error:
            if self.failing_since is None:
                self.failing_since = time.monotonic()
                logger.warning("leases cannot be renewed: %s", error)
            return
        self.failing_since, self._silent, self._asked_at = None, False, None
        self._answered_at = time.monotonic()
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

    async def _listen(self) -> None:
        """Beside the renewals, any of which may wait for its answer."""
        while True:
            now = time.monotonic()
            due = self._silence_due(now) if self._leases and not self._silent else now + self._interval
            await asyncio.sleep(max(due - now, LEAST_SECONDS))
            now = time.monotonic()
            if self._leases and not self._silent and now >= self._silence_due(now):
                self._silent = True
                self._tell_silence()

    def _silence_due(self, now: float) -> float:
        """When the pool counts as silent if it does not answer until then, monotonic; in the future if it was not asked."""
        asked_at = now if self._asked_at is None else self._asked_at
        return max(self._answered_at + LEASE_SECONDS, asked_at + min(self._interval, LATE_SECONDS))

    def _tell_silence(self) -> None:
        if self._on_silence is None:
            return
        try:
            self._on_silence()
        except Exception:
            logger.exception("what the leases are used for was not told that the pool is silent")


def _tell(callback: Callable[[LeaseStatus], None] | None, status: LeaseStatus) -> None:
    """A fault in one callback keeps nothing from the others."""
    if callback is None:
        return
    try:
        callback(status)
    except Exception:
        logger.exception("what lease %s is used for was not told how it is", status.lease_id)

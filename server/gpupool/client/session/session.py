"""The GPU session of one process: what people, code and watchers want of it.

Attach, detach and resize of one session run one after the other; :mod:`gpupool.client.session.shell`
carries them out.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncIterator, Callable
from typing import Final

from gpupool.client.session import events as events
from gpupool.client.session.giving_back import give_back
from gpupool.client.session.shell import RELEASE_SECONDS, AttachRefusedError, SessionShell
from gpupool.client.session.state import Session, State
from gpupool.client.session.words import SILENT_POOL
from gpupool.client.types import LeaseRequest, Notice, QueuePlace
from gpupool.shares import Share

__all__ = ["AttachRefusedError", "HolderSession"]

#: How long a request waits for an earlier one of the same session at least, seconds.
PENDING_SECONDS: Final = 2.0


class HolderSession(SessionShell):
    """The session of one process, from its start to its end. Use it in one event loop."""

    # --- what people and code do ----------------------------------------------------------

    async def ask(
        self,
        request: LeaseRequest,
        *,
        by: str,
        scope: str | None = None,
        hold: bool = False,
        wait_seconds: float | None = None,
        on_queued: Callable[[QueuePlace], None] | None = None,
    ) -> Session:
        """Gets a lease for a scope or the hold, or joins the one that is held, which grows where it is too small.

        ``wait_seconds`` 0 refuses at once when nothing is free, None waits without limit.
        Cancelling the task leaves the queue.

        Raises:
            AttachRefusedError: no share was given; says why.
        """
        while True:
            await self._after_return(wait_seconds, on_queued)
            async with self._turn(wait_seconds):
                if self.record.lease is not None:
                    # The pool may have ended the lease since the last renewal: a cell that
                    # joined it would fail on its first call.
                    await self._confirm_lease()
                await self._size_settles()
                if self.record.returning:
                    continue
                event = events.AttachWanted(request, by=by, scope=scope, hold=hold)
                await self._apply(event, wait_seconds=wait_seconds, on_queued=on_queued)
                record = self.record
                break
        if record.lease is None or (scope is not None and scope not in record.scopes):
            # The lease ended between the pool's answer and ours.
            raise AttachRefusedError(record.reason or "lost", record.message or record.words.nothing)
        if scope is None and record.hold is None:
            # It was detached while the pool changed its size; code that runs still has the lease.
            raise AttachRefusedError("cancelled", "The request for a GPU was withdrawn.")
        return record

    async def _after_return(
        self, wait_seconds: float | None, on_queued: Callable[[QueuePlace], None] | None
    ) -> None:
        """Waits until a lease that was taken back has come again, or nobody waits for it any more."""
        returning = self._returning
        if not self.record.returning or returning is None:
            return
        patience = None if wait_seconds is None else max(wait_seconds, PENDING_SECONDS)
        if on_queued is not None:
            self._listeners.add(on_queued)
            # Also of place 0: why it does not come now is not said again as long as that is the same.
            if self.record.queue is not None:
                on_queued(self.record.queue)
        try:
            await asyncio.wait([returning], timeout=patience)
        finally:
            if on_queued is not None:
                self._listeners.discard(on_queued)
        if self.record.returning:
            raise AttachRefusedError(
                "timeout",
                f"The GPU share of this {self.record.words.holder} was taken back. {self.record.message or ''}",
            )

    @contextlib.asynccontextmanager
    async def _turn(self, wait_seconds: float | None) -> AsyncIterator[None]:
        """One request at a time; whoever will not wait does not wait for another's either."""
        patience = None if wait_seconds is None else max(wait_seconds, PENDING_SECONDS)
        try:
            async with asyncio.timeout(patience):
                await self._lock.acquire()
        except TimeoutError:
            raise AttachRefusedError("pending", self.record.words.pending) from None
        try:
            yield
        finally:
            self._lock.release()

    async def leave_scope(self, scope: str) -> Session:
        """A cell or a ``with`` block ended; the lease goes back when nobody else holds it."""
        await self._apply(events.ScopeLeft(scope))
        return self.record

    async def detach(self, reason: str = "release", *, force: bool = False) -> Session:
        """Drops the hold and leaves the queue."""
        await self._apply(events.DetachWanted(reason, force))
        return self.record

    async def cancel_request(self) -> Session:
        """Leaves the queue."""
        await self._apply(events.RequestCancelled())
        return self.record

    async def resize(self, share: Share) -> Session:
        """Changes the size of the live lease.

        Raises:
            AttachRefusedError: nothing is attached, or the new size does not fit.
        """
        async with self._turn(0.0):
            await self._size_settles()
            await self._apply(events.ResizeWanted(share), wait_seconds=0.0)
        return self.record

    async def reset(self) -> Session:
        """Ends the GPU session with all that is in its memory, also while it computes or has failed.

        Raises:
            AttachRefusedError: the pool does not answer; the session is closed when it does.
        """
        session_id = self.record.session_id
        await self._apply(events.ResetWanted())
        if session_id in self._closing:
            raise AttachRefusedError("pool-down", self.record.words.reset_later)
        return self.record

    async def close(self, reason: str = "exit") -> None:
        """The process ended. Nothing can be attached to this object any more."""
        if self.record.state is State.CLOSED:
            return
        await self._apply(events.HolderEnded(reason))
        await self._background.settle(RELEASE_SECONDS)

    # --- what the pool says ---------------------------------------------------------------

    def observe(self, event: events.Event) -> None:
        """Feeds an event that needs no answer (idle warnings, the end of a lease)."""
        self._background.spawn(self._apply(event))

    def lease_ended(self, lease_id: str, reason: str) -> None:
        """The pool ended a lease."""
        self._background.spawn(self._lease_ended(lease_id, reason))

    def notice_told(self, lease_id: str, notice: Notice | None) -> None:
        """The pool says at a renewal whether it will take the lease back."""
        if notice is not None:
            self.notice_until = time.monotonic() + notice.seconds_left
        if notice is not None or self.record.notice is not None:
            self.observe(events.NoticeTold(lease_id, notice))

    def last_moments(self, lease_id: str) -> None:
        """The pool takes the lease back in a moment."""
        self.observe(events.LastMoments(lease_id))

    def pool_is_silent(self) -> None:
        """The pool has not answered for so long that the lease may be over there.

        Calls wait until it says whether it is, where it would be asked for again if so.
        """
        if self.record.lease is not None and self.record.returns:
            self.silent_since = time.monotonic()
            self._files.silence = SILENT_POOL
            self.publish()

    def pool_answers(self, lease_id: str) -> None:
        """It has renewed the lease."""
        if self._files.silence:
            self._files.silence = ""
            self.publish()
        if self.record.size_unsure:
            self.observe(events.LeaseRenewed(lease_id))

    @property
    def silence(self) -> str:
        """Why calls wait for the pool's word; empty: it answers, or there is no lease."""
        return self._files.silence

    def silent_for(self) -> float:
        """Seconds since calls wait for it; 0: they don't."""
        return time.monotonic() - self.silent_since if self._files.silence else 0.0

    def abandon_lease(self, detail: str) -> None:
        """Ends the lease because the pool has been silent for so long that it ends there too."""
        lease = self.record.lease
        if lease is not None:
            self.observe(events.LeaseEnded(lease.lease_id, "lost", detail=detail))
            # In case the pool comes back sooner than it gives the share to somebody else.
            self._background.spawn(give_back(self._pool.release, lease.lease_id, "lost"))

    def offer_profile(self, profile: str, software: bool) -> None:
        """Device profile shown to the process before its first attach (may be empty)."""
        if self.record.session_id is None:
            self._files.keep_profile(profile, software)

    def rested_for(self) -> float:
        """Seconds since the last lease ended; infinite while there is one or never was."""
        return math.inf if self.record.lease is not None else time.monotonic() - self._rested_at

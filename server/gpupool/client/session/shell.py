"""Carries out what the state machine of a session decides: asks the pool, rewrites the session file, tells the watchers.

:mod:`gpupool.client.session.state` decides; what comes of its instructions is fed back to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from gpupool.client.errors import GpupoolError, PoolRefusedError, PoolUnavailableError
from gpupool.client.reasons import MOMENTARY, RESIZE_UNANSWERED, SESSION_ENDS
from gpupool.client.returning import hand_over
from gpupool.client.session import events as events
from gpupool.client.session import state as machine
from gpupool.client.session.asking_again import ask_again, is_cancelled
from gpupool.client.session.background_tasks import BackgroundTasks
from gpupool.client.session.changing_size import change_size
from gpupool.client.session.files import SessionFiles
from gpupool.client.session.giving_back import PoolCall, give_back, give_strays_back
from gpupool.client.session.port import SESSION_LIVES, Pool
from gpupool.client.session.renewed_lease import RenewedLease
from gpupool.client.session.state import HOLDING, Session
from gpupool.client.session.words import Words
from gpupool.client.types import Grant, LeaseRequest, Notice, QueuePlace

logger = logging.getLogger(__name__)

#: How long a scope's end waits for the pool to take its lease back, seconds.
RELEASE_SECONDS: Final = 5.0
#: How long a cell that joins a lease waits for the pool's word that it lives, seconds.
CONFIRM_SECONDS: Final = 1.0


class AttachRefusedError(GpupoolError):
    """A share was not given; ``str()`` is one sentence for the user, ``reason`` its id."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class SessionShell:
    """The state machine of one process's session, with its pool and its files.

    Args:
        holder: an opaque id by which the pool's lists name who holds it.
        pool: where shares come from.
        files: read by the process's client runtime; written here.
        words: how the process and its people are told what happens.
        return_seconds: how long it waits for a lease that was taken back for others; None without limit, 0 not at all.
        renewed: renews the lease that is held.
        on_change: called after each change of what is shown, from the event loop.
    """

    def __init__(
        self,
        holder: str,
        pool: Pool,
        files: SessionFiles,
        *,
        words: Words,
        return_seconds: float | None,
        renewed: RenewedLease,
        on_change: Callable[[], None],
    ) -> None:
        self.holder = holder
        self.record = Session(returns=return_seconds != 0, words=words)
        self._files = files
        self.attached_at = 0.0
        #: When the pool takes the lease back, monotonic; only with a notice.
        self.notice_until = 0.0
        #: When calls began to wait for a pool that is silent, monotonic; only while they do.
        self.silent_since = 0.0
        self._pool = pool
        self._return_seconds = return_seconds
        #: One request at a time.
        self._lock = asyncio.Lock()
        self._returning: asyncio.Task[None] | None = None
        #: The request under way, or the pause before it is made again.
        self._request: asyncio.Future[Any] | None = None
        #: The change of size under way.
        self._resizing: asyncio.Task[GpupoolError | None] | None = None
        #: Gives leases back that may have crossed the end of their requests.
        self._straying: asyncio.Task[None] | None = None
        #: Keys of the requests that the pool has, or may have.
        self._at_pool: set[str] = set()
        self._handing_over: asyncio.Task[None] | None = None
        #: Told each place in the queue.
        self._listeners: set[Callable[[QueuePlace], None]] = set()
        self._rested_at = -math.inf
        #: Sessions that the pool has not closed yet.
        self._closing: set[str] = set()
        self._renewed = renewed
        self._changed = on_change
        self._background = BackgroundTasks(f"{words.holder} {holder}")

    def publish(self) -> None:
        """Writes the session file and tells the watchers."""
        lease = self.record.lease
        self._files.write(self.record)
        self._renewed.become(lease.lease_id if lease is not None else None)
        self._changed()

    def stepped(self, before: Session, event: events.Event) -> None:
        """Called after each event, before anything is done about it: for what a kind of holder keeps beside the record."""

    def not_given_back(self, error: GpupoolError) -> None:
        """Called when the pool does not hear that something goes back to it; it is told again, for some time."""

    def _step(self, event: events.Event) -> tuple[events.Instruction, ...]:
        before = self.record
        self.record, instructions = machine.step(before, event)
        if self.record.state not in HOLDING and before.state in HOLDING:
            self._rested_at = time.monotonic()
        if self.record.state in HOLDING and before.state not in HOLDING:
            self.attached_at = time.monotonic()
        if self._handing_over is not None and not self.record.resting:
            # The lease has ended, or stays after all.
            self._handing_over.cancel()
            self._handing_over = None
        self.stepped(before, event)
        return instructions

    async def _apply(
        self,
        event: events.Event,
        *,
        wait_seconds: float | None = None,
        on_queued: Callable[[QueuePlace], None] | None = None,
    ) -> None:
        instructions = self._step(event)
        for instruction in instructions:
            match instruction:
                case events.Publish():
                    self.publish()
                case events.RequestLease(request):
                    await self._ask(request, wait_seconds, on_queued)
                case events.ResizeLease():
                    await self._change_size(instruction, wait_seconds, on_queued)
                case events.CancelRequest():
                    if self._request is not None:
                        self._request.cancel()
                case events.ReleaseLease(lease_id, reason):
                    await self._give_back(self._release, lease_id, reason)
                case events.CloseSession(session_id, reason):
                    self._closing.add(session_id)
                    await self._give_back(self._close_session, session_id, reason)
                case events.AskAgain(request):
                    self._returning = self._background.spawn(self._return(request))
                case events.HandOver(lease_id, notice):
                    self._handing_over = self._background.spawn(self._hand_over(lease_id, notice))
                case events.Reject(reason, message):
                    raise AttachRefusedError(reason, message)

    async def _ask(
        self,
        request: LeaseRequest,
        wait_seconds: float | None,
        on_queued: Callable[[QueuePlace], None] | None,
    ) -> None:
        answer = asyncio.ensure_future(self._answer(request, wait_seconds))
        self._request = answer
        if on_queued is not None:
            self._listeners.add(on_queued)
        try:
            grant = await answer
        except (PoolRefusedError, PoolUnavailableError) as error:
            await self._refused(error, wait_seconds, on_queued)
            return
        except asyncio.CancelledError:
            withdrawn = not is_cancelled()
            await self._apply(events.RequestCancelled())
            if answer.done() and not answer.cancelled() and answer.exception() is None:
                self._background.spawn(self._release_unwanted(answer.result()))
            self._give_strays_back()
            if withdrawn:
                raise AttachRefusedError("cancelled", "The request for a GPU was withdrawn.") from None
            raise
        except Exception:
            # A fault, not an answer: whoever asks next must not find this request pending.
            await self._apply(events.Refused("error", "The request for a GPU failed."))
            raise
        finally:
            self._request = None
            self._at_pool.discard(request.idempotency_key)
            if on_queued is not None:
                self._listeners.discard(on_queued)
        self._files.keep_profile(grant.profile, grant.software)
        await self._apply(events.Granted(grant))
        if self.record.lease is not grant:
            raise AttachRefusedError("cancelled", "The request for a GPU was withdrawn.")

    async def _answer(self, request: LeaseRequest, wait_seconds: float | None) -> Grant:
        await self._strays_gone()
        self._at_pool.add(request.idempotency_key)
        return await self._pool.request(request, on_queued=self._queued, wait_seconds=wait_seconds)

    def _queued(self, place: QueuePlace) -> None:
        if self._step(events.Queued(place)):
            self.publish()
            for listener in list(self._listeners):
                listener(place)

    async def _return(self, request: LeaseRequest) -> None:
        """Waits for a lease that was taken back for others."""
        own = asyncio.current_task()
        await self._strays_gone()
        self._at_pool.add(request.idempotency_key)
        try:
            event = await ask_again(
                self._pool,
                request,
                self._return_seconds,
                # A later lease that was taken back has a task of its own, for its own request.
                wanted=lambda: self.record.returning and self._returning is own,
                on_queued=self._queued,
                on_attempt=self._asks,
            )
        except Exception:
            # A fault, not an answer: nobody may find this request pending for ever.
            await self._apply(events.Refused("error", "The request for a GPU failed."))
            raise
        finally:
            self._at_pool.discard(request.idempotency_key)
        if event is None:
            self._give_strays_back()
            return
        if isinstance(event, events.Granted):
            self._files.keep_profile(event.grant.profile, event.grant.software)
        await self._apply(event)

    def _asks(self, request: asyncio.Future[Any] | None) -> None:
        self._request = request

    async def _hand_over(self, lease_id: str, notice: Notice) -> None:
        file = self._files.session
        left = replace(notice, seconds_left=max(0.0, self.notice_until - time.monotonic()))
        await hand_over(self._pool.release, file, lease_id, left, file.read().generation)

    async def _refused(
        self,
        error: PoolRefusedError | PoolUnavailableError,
        wait_seconds: float | None,
        on_queued: Callable[[QueuePlace], None] | None,
    ) -> None:
        reason = error.reason if isinstance(error, PoolRefusedError) else "pool-down"
        retried = self.record.asking is not None and self.record.asking.request.session_id
        refused = events.Refused(reason, str(error))
        await self._apply(refused, wait_seconds=wait_seconds, on_queued=on_queued)
        if reason == "unknown-session" and retried:
            return
        raise AttachRefusedError(reason, str(error)) from error

    async def _change_size(
        self,
        change: events.ResizeLease,
        wait_seconds: float | None,
        on_queued: Callable[[QueuePlace], None] | None,
    ) -> None:
        # The pool may have changed the size although nobody waits any more: see it through.
        task = self._background.spawn(self._resize(change, wait_seconds, on_queued))
        self._resizing = task
        try:
            refusal = await asyncio.shield(task)
        except asyncio.CancelledError:
            await self._apply(events.RequestCancelled())
            raise
        if refusal is None:
            return
        if change.gives_back:
            # Memory in use cannot shrink: the larger share stays until the next cell ends, or the hold.
            logger.info("the lease of %s keeps its size: %s", self.holder, refusal)
            return
        reason = refusal.reason if isinstance(refusal, PoolRefusedError) else "pool-down"
        raise AttachRefusedError(reason, str(refusal)) from refusal

    async def _resize(
        self,
        change: events.ResizeLease,
        wait_seconds: float | None,
        on_queued: Callable[[QueuePlace], None] | None,
    ) -> GpupoolError | None:
        try:
            grant = await change_size(
                self._pool,
                change.lease_id,
                change.share,
                wait_seconds,
                wanted=lambda: self._waits_for_size(change.lease_id),
                on_queued=on_queued,
            )
        except GpupoolError as error:
            # Where its worker has not answered the pool, or another change is under way, it may still get the new size.
            refused = isinstance(error, PoolRefusedError) and error.reason not in RESIZE_UNANSWERED
            await self._apply(events.ResizeRefused(change.lease_id, unanswered=not refused))
            return error
        except BaseException:
            await self._apply(events.ResizeRefused(change.lease_id, unanswered=True))
            raise
        await self._apply(events.Resized(grant))
        return None

    def _waits_for_size(self, lease_id: str) -> bool:
        """Whether somebody waits for another size of this lease; not a cell that has been interrupted."""
        lease, asking = self.record.lease, self.record.asking
        if lease is None or lease.lease_id != lease_id or asking is None or asking.gives_back:
            return False
        return asking.hold or asking.scope is not None

    async def _size_settles(self) -> None:
        """To be awaited before each request: what a cell gives back at its end is under way outside of its turn."""
        while self._resizing is not None and not self._resizing.done():
            await asyncio.wait([self._resizing])

    async def _give_back(self, call: PoolCall, identity: str, reason: str) -> None:
        """Release or close; waits shortly, then goes on in the background."""
        task = self._background.spawn(give_back(call, identity, reason, self.not_given_back))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(task), RELEASE_SECONDS)

    async def _release(self, lease_id: str, reason: str) -> None:
        await self._pool.release(lease_id, reason)

    async def _close_session(self, session_id: str, reason: str) -> None:
        try:
            await self._pool.close_session(session_id, reason)
        except PoolRefusedError as error:
            if error.reason not in MOMENTARY:
                # It is not there, or nobody's to close: that does not change.
                self._closing.discard(session_id)
            raise
        self._closing.discard(session_id)

    async def _release_unwanted(self, grant: Grant) -> None:
        """The answer came in the moment in which nobody wanted it any more."""
        with contextlib.suppress(GpupoolError):  # it ends by itself in half a minute
            await self._pool.release(grant.lease_id, "release", close_session=grant.new_session)

    def _give_strays_back(self) -> None:
        self._straying = self._background.spawn(self._release_strays(self._straying))

    async def _strays_gone(self) -> None:
        """To be awaited before each request: its lease would be taken for one of them."""
        if self._straying is not None:
            await asyncio.wait([self._straying])

    async def _release_strays(self, before: asyncio.Task[None] | None) -> None:
        """One after the other: whoever asks next waits for the last."""
        if before is not None:
            await asyncio.wait([before])
        await give_strays_back(self._pool, self.holder, self._is_stray, lambda: self.record.session_id)

    def _is_stray(self, lease_id: str) -> bool:
        """Not while the pool has a request: this may be its lease. A stray that stays ends in half a minute."""
        lease = self.record.lease
        return not self._at_pool and (lease is None or lease.lease_id != lease_id)

    async def _confirm_lease(self) -> None:
        """Asks the pool whether the lease still lives.

        A pool that is away, or has no answer now, takes nothing from a session that holds a share. If it stays away for
        longer than a lease lives, calls wait for it.
        """
        lease = self.record.lease
        assert lease is not None
        if self._renewed.is_failing:
            return
        try:
            async with asyncio.timeout(CONFIRM_SECONDS):
                statuses = await self._pool.renew([lease.lease_id])
        except (PoolUnavailableError, TimeoutError):
            return
        except PoolRefusedError as error:
            if error.reason in MOMENTARY:
                return
            raise AttachRefusedError(error.reason, error.explanation) from None
        status = statuses.get(lease.lease_id)
        if status is not None and status.state != "attached":
            await self._lease_ended(lease.lease_id, status.reason)

    async def _lease_ended(self, lease_id: str, reason: str) -> None:
        """The pool says that the lease is over; whether the memory still lives it says elsewhere."""
        lease = self.record.lease
        if lease is None or lease.lease_id != lease_id:
            return
        alive = True
        with contextlib.suppress(GpupoolError):
            known = {info.id: info for info in await self._pool.sessions()}
            info = known.get(lease.session_id)
            alive = info is not None and info.state in SESSION_LIVES
            if info is not None and not alive and info.reason in SESSION_ENDS:
                reason = info.reason
        held = time.monotonic() - self.attached_at
        await self._apply(events.LeaseEnded(lease_id, reason or "lost", alive, held_seconds=held))

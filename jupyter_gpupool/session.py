"""The GPU session of one launch of a kernel: the state machine with its pool and its file.

:mod:`jupyter_gpupool.session_state` decides; this shell asks the pool, rewrites the session
file and tells the watchers. Attach, detach and resize of one kernel run one after the other.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import math
import secrets
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from gpupool.client.errors import GpupoolError, PoolRefused, PoolUnavailable
from gpupool.client.returning import hand_over
from gpupool.client.types import Ask, Grant, Notice, QueuePlace
from gpupool.shares import Share

from jupyter_gpupool import session_events as events
from jupyter_gpupool import session_state as machine
from jupyter_gpupool.asking_again import ask_again, is_cancelled, with_what_is_left
from jupyter_gpupool.background_tasks import BackgroundTasks
from jupyter_gpupool.giving_back import PoolCall, give_back
from jupyter_gpupool.kernel_files import KernelFiles
from jupyter_gpupool.pool_port import SESSION_LIVES, Pool
from jupyter_gpupool.released import Release, release_of
from jupyter_gpupool.session_state import HOLDING, Session, State
from jupyter_gpupool.session_words import NOT_ATTACHED, PENDING
from jupyter_gpupool.shown import Shown
from jupyter_gpupool.terms import Terms
from jupyter_gpupool.usage_history import UsageHistory

logger = logging.getLogger(__name__)

ANY_TERMS: Final = Terms()
#: How long a cell's end waits for the pool to take its lease back, seconds.
RELEASE_SECONDS: Final = 5.0
#: How long a request waits for an earlier one of the same kernel at least, seconds.
PENDING_SECONDS: Final = 2.0


class AttachRefused(Exception):
    """A share was not given; ``str()`` is one sentence for the user, ``reason`` its id."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class KernelSession:
    """One launch of one kernel. A restart of the kernel makes a new object.

    Args:
        kernel_id: the Jupyter kernel.
        pool: where shares come from.
        path: the session file of this kernel; written here, read by its client runtime.
        user: on whose behalf the pool is asked.
        return_seconds: how long it waits for a lease that was taken back for others; None without limit, 0 not at all.
        hold_lease, drop_lease: start and stop the renewal of a lease id.
        on_change: called after each change of what is shown, from the event loop.
    """

    def __init__(
        self,
        kernel_id: str,
        pool: Pool,
        path: Path,
        *,
        user: str,
        return_seconds: float | None = None,
        hold_lease: Callable[[str], None],
        drop_lease: Callable[[str], None],
        on_change: Callable[[KernelSession], None],
    ) -> None:
        self.kernel_id = kernel_id
        self.label = ""
        self.record = Session(returns=return_seconds != 0)
        self.history = UsageHistory()
        self.shown = Shown()
        self.attached_at = 0.0
        self.kept_until = 0.0
        #: Idle seconds that were chosen for this kernel: 0 never, None the server's default.
        self.idle_choice: float | None = None
        #: The last release that nobody at this kernel asked for, or a Detach; None since the next attach.
        self.released: Release | None = None
        #: When the pool takes the lease back, monotonic; only with a notice.
        self.notice_until = 0.0
        self._return_seconds = return_seconds
        self._returning: asyncio.Task[None] | None = None
        #: Told each place in the queue.
        self._listeners: set[Callable[[QueuePlace], None]] = set()
        self._rested_at = -math.inf
        self.files = KernelFiles(path)
        self._capability = secrets.token_hex(32)
        self._pool = pool
        self._user = user
        self._hold_lease = hold_lease
        self._drop_lease = drop_lease
        self.on_change = on_change
        self._lock = asyncio.Lock()
        self._request: asyncio.Future[Grant] | None = None
        self._background = BackgroundTasks(f"kernel {kernel_id}")
        self._held_lease: str | None = None
        self._when_closed: Callable[[], None] = lambda: None

    # --- capability ---------------------------------------------------------------------

    @property
    def capability(self) -> str:
        """The secret that lets this launch of the kernel, and nobody else, ask for its own GPU."""
        return self._capability

    def verify(self, capability: str) -> bool:
        """Constant-time check of a presented capability."""
        return self.record.state is not State.CLOSED and hmac.compare_digest(
            self._capability.encode(), capability.encode()
        )

    # --- what people and cells do -------------------------------------------------------

    async def attach(
        self,
        share: Share,
        *,
        by: str,
        scope: str | None = None,
        hold: bool = False,
        count: int = 1,
        nodes: str = "auto",
        wait_seconds: float | None = None,
        duration_seconds: float = 0.0,
        strict: bool = False,
        terms: Terms = ANY_TERMS,
        on_queued: Callable[[QueuePlace], None] | None = None,
    ) -> Session:
        """Gets a lease for the holder, or joins the one that the kernel has.

        ``wait_seconds`` 0 refuses at once when nothing is free, None waits without limit.
        Cancelling the task leaves the queue.

        Raises:
            AttachRefused: no share was given; says why.
        """
        ask = Ask(
            share=share,
            count=count,
            nodes=nodes,
            on_behalf_of=self._user,
            label=self.label,
            holder=self.kernel_id,
            duration_seconds=duration_seconds,
            strict=strict,
            project=terms.project,
            kind=terms.kind,
            priority=terms.priority,
            filters=terms.filters,
            pools=terms.pools,
        )
        while True:
            await self._after_return(wait_seconds, on_queued)
            async with self._turn(wait_seconds):
                if self.record.lease is not None:
                    # The pool may have ended the lease since the last renewal: a cell that
                    # joined it would fail on its first call.
                    await self._confirm_lease()
                if self.record.returning:
                    continue
                event = events.AttachWanted(ask, by=by, scope=scope, hold=hold)
                await self._apply(event, wait_seconds=wait_seconds, on_queued=on_queued)
                record = self.record
                break
        if record.lease is None or (scope is not None and scope not in record.scopes):
            # The lease ended between the pool's answer and ours.
            raise AttachRefused(record.reason or "lost", record.message or NOT_ATTACHED)
        return record

    async def attach_again(self, release: Release, *, wait_seconds: float | None) -> Session:
        """Undoes a release: the same share on the same terms, held by whom it was held by.

        Raises:
            AttachRefused: no share was given; says why.
        """
        ask = release.ask
        return await self.attach(
            ask.share,
            by=release.by,
            hold=True,
            count=ask.count,
            nodes=ask.nodes,
            wait_seconds=wait_seconds,
            duration_seconds=ask.duration_seconds,
            strict=ask.strict,
            terms=Terms(ask.project, ask.kind, ask.priority, ask.filters, ask.pools),
        )

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
            if self.record.queue is not None and self.record.queue.place:
                on_queued(self.record.queue)
        try:
            await asyncio.wait([returning], timeout=patience)
        finally:
            if on_queued is not None:
                self._listeners.discard(on_queued)
        if self.record.returning:
            raise AttachRefused(
                "timeout", f"The GPU share of this kernel was taken back. {self.record.message or ''}"
            )

    @contextlib.asynccontextmanager
    async def _turn(self, wait_seconds: float | None) -> AsyncIterator[None]:
        """One request of this kernel at a time; whoever will not wait does not wait for another's either."""
        patience = None if wait_seconds is None else max(wait_seconds, PENDING_SECONDS)
        try:
            await asyncio.wait_for(self._lock.acquire(), patience)
        except TimeoutError:
            raise AttachRefused("pending", PENDING) from None
        try:
            yield
        finally:
            self._lock.release()

    async def leave_scope(self, scope: str) -> Session:
        """A ``%%gpu`` cell ended; the lease goes back when nobody else holds it."""
        await self._apply(events.ScopeLeft(scope))
        return self.record

    async def detach(self, reason: str = "release", *, force: bool = False) -> Session:
        """Drops the hold and leaves the queue."""
        await self._apply(events.DetachWanted(reason, force))
        return self.record

    async def cancel_request(self) -> Session:
        """Leaves the queue."""
        await self._apply(events.AskCancelled())
        return self.record

    async def resize(self, share: Share) -> Session:
        """Changes the size of the live lease.

        Raises:
            AttachRefused: nothing is attached, or the new size does not fit.
        """
        async with self._lock:
            await self._apply(events.ResizeWanted(share))
        return self.record

    async def keep(self, seconds: float) -> Session:
        """Puts the idle release off until at least ``seconds`` from now."""
        self.kept_until = max(self.kept_until, time.monotonic() + seconds)
        await self._apply(events.Used())
        return self.record

    async def choose_idle(self, seconds: float | None) -> None:
        """Sets after how long without use the GPU goes back; a countdown under way begins anew by it."""
        self.idle_choice = seconds
        await self._apply(events.Used())

    async def close(self, reason: str = "exit") -> None:
        """The kernel ended. Nothing can be attached to this object any more."""
        if self.record.state is State.CLOSED:
            return
        self._when_closed()
        await self._apply(events.KernelEnded(reason))
        await self._background.settle(RELEASE_SECONDS)
        self.files.remove()

    def when_closed(self, then: Callable[[], None]) -> None:
        """Has ``then`` called when this launch is closed."""
        self._when_closed = then

    # --- what the watchers report -------------------------------------------------------

    def observe(self, event: events.Event) -> None:
        """Feeds an event that needs no answer (idle warnings, the end of a lease)."""
        self._background.spawn(self._apply(event))

    def lease_ended(self, lease_id: str, reason: str) -> None:
        """The pool ended a lease of this kernel."""
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

    def abandon_lease(self, detail: str) -> None:
        """Ends the lease because the pool has been silent for so long that it ends there too."""
        lease = self.record.lease
        if lease is not None:
            self.observe(events.LeaseEnded(lease.lease_id, "lost", detail=detail))
            # In case the pool comes back sooner than it gives the share to somebody else.
            self._background.spawn(give_back(self._pool.release, lease.lease_id, "lost"))

    def offer_profile(self, profile: str, software: bool) -> None:
        """Device profile shown to the kernel before its first attach (may be empty)."""
        if self.record.session_id is None:
            self.files.keep_profile(profile, software)

    def rested_for(self) -> float:
        """Seconds since the last lease ended; infinite while there is one or never was."""
        return math.inf if self.record.lease is not None else time.monotonic() - self._rested_at

    def publish(self) -> None:
        """Writes the session file and tells the watchers."""
        self.files.write(self.record)
        self._renew_what_is_held()
        self.on_change(self)

    # --- instructions -------------------------------------------------------------------

    async def _apply(
        self,
        event: events.Event,
        *,
        wait_seconds: float | None = None,
        on_queued: Callable[[QueuePlace], None] | None = None,
    ) -> None:
        before = self.record
        self.record, instructions = machine.step(before, event)
        if self.record.state not in HOLDING and before.state in HOLDING:
            self._rested_at = time.monotonic()
            self.released = release_of(
                before,
                self.record,
                unused_seconds=event.unused_seconds if isinstance(event, events.DetachWanted) else 0.0,
                memory_bytes=sum(self.history.latest.memory_used) if self.history.latest else 0,
                at=time.time(),
            )
        if self.record.state in HOLDING and before.state not in HOLDING:
            self.attached_at = time.monotonic()
            self.kept_until = 0.0
            self.released = None
        for instruction in instructions:
            match instruction:
                case events.Publish():
                    self.publish()
                case events.RequestLease(ask):
                    await self._ask(ask, wait_seconds, on_queued)
                case events.ResizeLease(lease_id, share):
                    await self._change_size(lease_id, share, shrink=isinstance(event, events.ScopeLeft))
                case events.CancelRequest():
                    if self._request is not None:
                        self._request.cancel()
                case events.ReleaseLease(lease_id, reason):
                    await self._give_back(self._pool.release, lease_id, reason)
                case events.CloseSession(session_id, reason):
                    await self._give_back(self._pool.close_session, session_id, reason)
                case events.AskAgain(ask):
                    self._returning = self._background.spawn(self._return(ask))
                case events.HandOver(lease_id, notice):
                    self._background.spawn(self._hand_over(lease_id, notice))
                case events.Reject(reason, message):
                    raise AttachRefused(reason, message)

    async def _ask(
        self, ask: Ask, wait_seconds: float | None, on_queued: Callable[[QueuePlace], None] | None
    ) -> None:
        request = asyncio.ensure_future(
            self._pool.request(ask, on_queued=self._queued, wait_seconds=wait_seconds)
        )
        self._request = request
        if on_queued is not None:
            self._listeners.add(on_queued)
        try:
            grant = await request
        except PoolRefused as error:
            await self._refused(error.reason, error.explanation, wait_seconds, on_queued)
            return
        except PoolUnavailable as error:
            await self._refused("pool-down", str(error), wait_seconds, on_queued)
            return
        except asyncio.CancelledError:
            withdrawn = not is_cancelled()
            await self._apply(events.AskCancelled())
            self._background.spawn(self._release_strays())
            if withdrawn:
                raise AttachRefused("cancelled", "The request for a GPU was withdrawn.") from None
            raise
        except Exception:
            # A fault, not an answer: whoever asks next must not find this request pending.
            await self._apply(events.Refused("error", "The request for a GPU failed."))
            raise
        finally:
            self._request = None
            if on_queued is not None:
                self._listeners.discard(on_queued)
        self.files.keep_profile(grant.profile, grant.software)
        await self._apply(events.Granted(grant))
        if self.record.lease is not grant:
            raise AttachRefused("cancelled", "The request for a GPU was withdrawn.")

    def _queued(self, place: QueuePlace) -> None:
        self.record, instructions = machine.step(self.record, events.Queued(place))
        if instructions:
            self.publish()
            for listener in list(self._listeners):
                listener(place)

    async def _return(self, ask: Ask) -> None:
        """Waits for a lease that was taken back for others."""
        event = await ask_again(
            self._pool,
            with_what_is_left(ask, time.monotonic() - self.attached_at),
            self._return_seconds,
            wanted=lambda: self.record.returning,
            on_queued=self._queued,
            on_request=self._asks,
        )
        if event is None:
            await self._release_strays()
            return
        if isinstance(event, events.Granted):
            self.files.keep_profile(event.grant.profile, event.grant.software)
        await self._apply(event)

    def _asks(self, request: asyncio.Future[Grant] | None) -> None:
        self._request = request

    async def _hand_over(self, lease_id: str, notice: Notice) -> None:
        file = self.files.session
        left = replace(notice, seconds_left=max(0.0, self.notice_until - time.monotonic()))
        await hand_over(self._pool.release, file, lease_id, left, file.read().generation)

    async def _refused(
        self,
        reason: str,
        explanation: str,
        wait_seconds: float | None,
        on_queued: Callable[[QueuePlace], None] | None,
    ) -> None:
        retried = self.record.asking is not None and self.record.asking.ask.session_id
        await self._apply(events.Refused(reason, explanation), wait_seconds=wait_seconds, on_queued=on_queued)
        if reason == "unknown-session" and retried:
            return
        raise AttachRefused(reason, explanation)

    async def _change_size(self, lease_id: str, share: Share, *, shrink: bool) -> None:
        # The pool may have changed the size although nobody waits any more: see it through.
        refusal = await asyncio.shield(self._background.spawn(self._resize(lease_id, share)))
        if refusal is not None:
            if shrink:
                # The larger share stays until the hold ends: memory in use cannot shrink.
                logger.info("the lease of kernel %s keeps its size: %s", self.kernel_id, refusal)
                return
            reason = refusal.reason if isinstance(refusal, PoolRefused) else "pool-down"
            raise AttachRefused(reason, str(refusal))

    async def _resize(self, lease_id: str, share: Share) -> GpupoolError | None:
        try:
            grant = await self._pool.resize(lease_id, share)
        except GpupoolError as error:
            await self._apply(events.ResizeRefused(lease_id))
            return error
        except BaseException:
            await self._apply(events.ResizeRefused(lease_id))
            raise
        await self._apply(events.Resized(grant))
        return None

    async def _give_back(self, call: PoolCall, identity: str, reason: str) -> None:
        """Release or close; waits shortly, then goes on in the background."""
        task = self._background.spawn(give_back(call, identity, reason))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(task), RELEASE_SECONDS)

    async def _release_strays(self) -> None:
        """A grant may have crossed the cancellation of its request: give such a lease back.

        A session that was made for it alone ends with it; the kernel's own parks.
        """
        with contextlib.suppress(GpupoolError):
            for lease in await self._pool.leases():
                ours = self.record.lease is not None and self.record.lease.lease_id == lease.id
                if lease.holder == self.kernel_id and lease.state == "attached" and not ours:
                    new = lease.session_id != self.record.session_id
                    await self._pool.release(lease.id, "release", close_session=new)

    async def _confirm_lease(self) -> None:
        lease = self.record.lease
        assert lease is not None
        try:
            statuses = await self._pool.renew([lease.lease_id])
        except PoolUnavailable as error:
            raise AttachRefused("pool-down", str(error)) from None
        except PoolRefused as error:
            raise AttachRefused(error.reason, error.explanation) from None
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
            states = {info.id: info.state for info in await self._pool.sessions()}
            alive = states.get(lease.session_id) in SESSION_LIVES
        await self._apply(events.LeaseEnded(lease_id, reason or "lost", alive))

    def _renew_what_is_held(self) -> None:
        lease_id = self.record.lease.lease_id if self.record.lease is not None else None
        if lease_id == self._held_lease:
            return
        if self._held_lease is not None:
            self._drop_lease(self._held_lease)
        if lease_id is not None:
            self._hold_lease(lease_id)
        self._held_lease = lease_id

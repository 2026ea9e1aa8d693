"""The GPU session of one launch of a kernel: what people, cells and watchers want of it.

Attach, detach and resize of one kernel run one after the other; :mod:`jupyter_gpupool.server.session.shell`
carries them out.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from gpupool.client.types import Ask, Notice, QueuePlace
from gpupool.request.gpu_request import GpuRequest
from gpupool.shares import Share

from jupyter_gpupool.server.pool.port import Pool
from jupyter_gpupool.server.session import events as events
from jupyter_gpupool.server.session.capability import Capability, successor
from jupyter_gpupool.server.session.giving_back import give_back
from jupyter_gpupool.server.session.released import Release
from jupyter_gpupool.server.session.renewed_lease import RenewedLease
from jupyter_gpupool.server.session.shell import RELEASE_SECONDS, AttachRefused, SessionShell
from jupyter_gpupool.server.session.shown import Lacking
from jupyter_gpupool.server.session.state import Session, State
from jupyter_gpupool.server.session.words import NOT_ATTACHED, PENDING

__all__ = ["AttachRefused", "KernelSession"]

logger = logging.getLogger(__name__)

#: How long a request waits for an earlier one of the same kernel at least, seconds.
PENDING_SECONDS: Final = 2.0
_RESET_LATER: Final = (
    "The GPU pool does not answer; it is told to end the GPU session as soon as it does. The kernel cannot use that "
    "session any more."
)


class KernelSession(SessionShell):
    """One launch of one kernel. A restart of the kernel makes a new object.

    Args:
        kernel_id, pool, path, return_seconds, on_change: as in :class:`SessionShell`.
        user: on whose behalf the pool is asked.
        hold_lease, drop_lease: start and stop the renewal of a lease id.
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
        super().__init__(
            kernel_id,
            pool,
            path,
            return_seconds=return_seconds,
            renewed=RenewedLease(hold_lease, drop_lease),
            on_change=lambda: on_change(self),
        )
        self.label = ""
        self.on_change = on_change
        #: Idle seconds that were chosen for this kernel: 0 never, None the server's default.
        self.idle_choice: float | None = None
        self._user = user
        self._capability = Capability(time.monotonic())
        self._lock = asyncio.Lock()
        self._when_closed: Callable[[], None] = lambda: None

    # --- capability ---------------------------------------------------------------------

    @property
    def capability(self) -> str:
        """The secret that lets this launch of the kernel, and nobody else, ask for its own GPU; it changes."""
        return self._capability.secret

    def offer_capability(self) -> None:
        """Writes it where the kernel finds it. Raises OSError: then the kernel cannot ask for anything."""
        self.files.write_capability(self._capability.secret)

    def renew_capability(self) -> None:
        """Replaces it when it is time to. To be called about every second."""
        now = time.monotonic()
        if self._capability.is_due(now) and self.record.state is not State.CLOSED:
            renewed = successor()
            try:
                self.files.write_capability(renewed)
            except OSError as error:
                # The former one stays: a full disk must not lock the kernel out.
                logger.warning("the capability of kernel %s was not renewed: %s", self.kernel_id, error)
            else:
                self._capability.replace(renewed, now)

    def verify(self, capability: str) -> bool:
        """Constant-time check of a presented capability."""
        return self.record.state is not State.CLOSED and self._capability.opens(capability, time.monotonic())

    # --- what people and cells do -------------------------------------------------------

    async def attach(
        self,
        request: GpuRequest,
        *,
        by: str,
        scope: str | None = None,
        hold: bool = False,
        on_queued: Callable[[QueuePlace], None] | None = None,
    ) -> Session:
        """Gets a lease for the holder, or joins the one that the kernel has.

        Cancelling the task leaves the queue.

        Raises:
            AttachRefused: no share was given; says why.
        """
        ask = Ask.of(request, on_behalf_of=self._user, label=self.label, holder=self.kernel_id)
        wait_seconds = request.patience
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
        self.shown.out_of_memory = None
        if record.lease is None or (scope is not None and scope not in record.scopes):
            # The lease ended between the pool's answer and ours.
            raise AttachRefused(record.reason or "lost", record.message or NOT_ATTACHED)
        return record

    async def attach_again(self, release: Release, *, wait_seconds: float | None) -> Session:
        """Undoes a release: the same share on the same terms, held by whom it was held by.

        Raises:
            AttachRefused: no share was given; says why.
        """
        return await self.attach(replace(release.ask, wait_seconds=wait_seconds), by=release.by, hold=True)

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
            async with asyncio.timeout(patience):
                await self._lock.acquire()
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

    async def reset(self) -> Session:
        """Ends the GPU session with all that is in its memory, also while it computes or has failed.

        Raises:
            AttachRefused: the pool does not answer; the session is closed when it does.
        """
        session_id = self.record.session_id
        await self._apply(events.ResetWanted())
        if session_id in self._closing:
            raise AttachRefused("pool-down", _RESET_LATER)
        return self.record

    def report(self, *, failed_cell: str, out_of_memory: Lacking | None) -> None:
        """Takes what the kernel says of its session; empty, None: nothing of that kind."""
        self.shown.failed_cell = failed_cell
        self.shown.out_of_memory = out_of_memory
        self.on_change(self)

    async def keep(self, seconds: float) -> Session:
        """Puts the idle release off until at least ``seconds`` from now."""
        self.kept_until = max(self.kept_until, time.monotonic() + seconds)
        await self._apply(events.Used())
        return self.record

    async def choose_idle(self, seconds: float | None, *, warn_seconds: float) -> None:
        """Sets after how long without use the GPU goes back; it is not taken sooner than a warning takes."""
        self.idle_choice = seconds
        await self.keep(warn_seconds)

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

"""The GPU session of one launch of a kernel: what people, cells and watchers want of it.

What every holder of a share does stands in :mod:`gpupool.client.session.session`; here is what only a kernel has: a
capability, an idle choice, a history of use, and what is shown of its last release.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from gpupool.client.holder import LeaseHolder
from gpupool.client.session import events as events
from gpupool.client.session.renewed_lease import RenewedLease
from gpupool.client.session.session import AttachRefusedError, HolderSession
from gpupool.client.session.state import HOLDING, Session, State
from gpupool.client.types import LeaseRequest, QueuePlace, Usage
from gpupool.request.gpu_request import GpuRequest

from jupyter_gpupool.server.pool.port import Pool
from jupyter_gpupool.server.session.capability import Capability, successor
from jupyter_gpupool.server.session.kernel_files import KernelFiles
from jupyter_gpupool.server.session.released import Release, release_of, with_later_report
from jupyter_gpupool.server.session.shown import Lacking, Shown
from jupyter_gpupool.server.session.usage_history import UsageHistory
from jupyter_gpupool.server.session.words import GIVEN_BACK, KERNEL_WORDS

__all__ = ["AttachRefusedError", "KernelSession"]

logger = logging.getLogger(__name__)


class KernelSession(HolderSession):
    """One launch of one kernel. A restart of the kernel makes a new object.

    Args:
        kernel_id, pool, path, return_seconds, on_change: as of :class:`HolderSession`; ``path`` is the session file.
        leases: renews the lease that it holds.
    """

    def __init__(
        self,
        kernel_id: str,
        pool: Pool,
        path: Path,
        *,
        return_seconds: float | None = None,
        leases: LeaseHolder,
        on_change: Callable[[KernelSession], None],
    ) -> None:
        self.files = KernelFiles(path)
        super().__init__(
            kernel_id,
            pool,
            self.files,
            words=KERNEL_WORDS,
            return_seconds=return_seconds,
            renewed=RenewedLease(leases),
            on_change=lambda: on_change(self),
        )
        self.label = ""
        self.on_change = on_change
        #: Idle seconds that were chosen for this kernel: 0 never, None the server's default.
        self.idle_choice: float | None = None
        self._capability = Capability(time.monotonic())
        self.history = UsageHistory()
        self.shown = Shown()
        self.kept_until = 0.0
        #: When work was last seen in flight on its GPU, monotonic.
        self.work_seen_at = 0.0
        #: The last release that nobody at this kernel asked for, or a Detach; None since the next attach.
        self.released: Release | None = None
        #: Its share may still be in use: the pool does not lend it to others yet.
        self.draining = False
        self._when_closed: Callable[[], None] = lambda: None
        #: What is asked for in the place of the request that is withdrawn now.
        self._instead: GpuRequest | None = None

    @property
    def kernel_id(self) -> str:
        """The Jupyter kernel's."""
        return self.holder

    @property
    def waiting(self) -> bool:
        """It waits for a lease, also in the moment in which its request is replaced by another one."""
        return self.record.waiting or self._instead is not None

    def stepped(self, before: Session, event: events.Event) -> None:
        after = self.record
        self.shown.follow(before, after)
        if after.state not in HOLDING and before.state in HOLDING:
            self.released = release_of(
                before,
                after,
                unused_seconds=event.unused_seconds if isinstance(event, events.DetachWanted) else 0.0,
                memory_bytes=sum(self.history.latest.memory_used) if self.history.latest else 0,
                at=time.time(),
            )
            self.draining = self.released is not None and after.session_id is not None
        if after.state in HOLDING and before.state not in HOLDING:
            self.kept_until = 0.0
            self.released = None
            self.draining = False
        if after.session_id != before.session_id:
            self.history.begin_anew()

    def used(self, usage: Usage, now: float) -> None:
        """Takes what its worker reported, read at ``now`` (Unix time, seconds)."""
        self.history.add(usage, now)
        if self.released is not None:
            self.released = with_later_report(self.released, self.record.session_id, usage)

    def pool_is_silent(self) -> None:
        super().pool_is_silent()
        if not self.record.returns:
            # The session may still live on its node: the next attach asks for it first.
            self.abandon_lease(GIVEN_BACK)

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
            AttachRefusedError: no share was given; says why.
        """
        while True:
            wanted = LeaseRequest.of(request, label=self.label, holder=self.kernel_id)
            try:
                record = await self.ask(
                    wanted, by=by, scope=scope, hold=hold, wait_seconds=request.patience, on_queued=on_queued
                )
            except AttachRefusedError:
                if self._instead is None:
                    raise
                patience = request.wait_seconds
                # If somebody else was quicker, it waits for that as long as it wanted to.
                request, self._instead = replace(self._instead, wait_seconds=patience), None
                continue
            except BaseException:
                # Nobody asks any more, neither for this nor for what was to replace it.
                self._instead = None
                raise
            self._instead = None
            self.shown.out_of_memory = None
            return record

    async def take(self, request: GpuRequest) -> Session:
        """Asks for something else in the place of what waits; whoever waits, a cell or a person, gets that."""
        self._instead = request
        return await self.cancel_request()

    async def attach_again(self, release: Release, *, wait_seconds: float | None) -> Session:
        """Undoes a release: the same share on the same terms, held by whom it was held by.

        Raises:
            AttachRefusedError: no share was given; says why.
        """
        return await self.attach(
            replace(release.request, wait_seconds=wait_seconds), by=release.by, hold=True
        )

    def report(self, *, failed_cell: str, out_of_memory: Lacking | None) -> None:
        """Takes what the kernel says of its session; empty, None: nothing of that kind."""
        self.shown.failed_cell = failed_cell
        self.shown.out_of_memory = out_of_memory
        self.on_change(self)

    @property
    def kept_seconds(self) -> float:
        """For how long idleness releases nothing from now."""
        return max(0.0, self.kept_until - time.monotonic())

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
        if self.record.state is not State.CLOSED:
            self._when_closed()
        await super().close(reason)

    def when_closed(self, then: Callable[[], None]) -> None:
        """Has ``then`` called when this launch is closed."""
        self._when_closed = then

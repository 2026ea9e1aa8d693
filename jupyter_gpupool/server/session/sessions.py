"""All kernels' GPU sessions of one Jupyter server, and the renewal of their leases."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from gpupool.client.endpoint import private_directory
from gpupool.client.errors import GpupoolError
from gpupool.client.holder import RENEW_SECONDS, LeaseHolder
from gpupool.client.session import events as events
from gpupool.client.session.own_directory import own_directory as directory_of_process
from gpupool.client.session.port import SESSION_LIVES
from gpupool.client.session.state import State
from gpupool.client.types import LeaseStatus

from jupyter_gpupool.server.pool.port import Pool
from jupyter_gpupool.server.session.released import DIED, Release, release_by_death
from jupyter_gpupool.server.session.session import KernelSession

if TYPE_CHECKING:
    from gpupool.client.pool import PoolClient

logger = logging.getLogger(__name__)

#: How long a starting kernel waits for the pool's first device profile, seconds.
PROFILE_SECONDS: Final = 2.0
#: How long the end of the server waits until all sessions are closed, seconds.
CLOSE_SECONDS: Final = 8.0

_KERNEL_ID = re.compile(r"[A-Za-z0-9_-]{1,128}")

OnChange = Callable[[KernelSession], None]


class Sessions:
    """Kernel id → session of its present launch.

    Args:
        pool: where shares come from.
        directory: where session files are written, each server's in a directory of its own; made private to its owner.
        on_change: called after each change of state of any kernel.
        renew_seconds: interval of lease renewals.
        return_seconds: how long a kernel waits for a lease that was taken back for others; None without limit,
            0 not at all.
        own_directory: it is this program's by its name: closed where it is open to others, else refused.
    """

    def __init__(
        self,
        pool: Pool,
        directory: Path,
        *,
        on_change: OnChange,
        renew_seconds: float = RENEW_SECONDS,
        return_seconds: float | None = None,
        own_directory: bool = False,
    ) -> None:
        self.pool = pool
        # A volume of a Hub's user may come back open to its group.
        parent = private_directory(directory, tighten=own_directory)
        self._place = contextlib.ExitStack()
        # A server that is killed leaves its kernels' session files, which the next one removes.
        self._directory = self._place.enter_context(directory_of_process(parent, os.getpid()))
        self._on_change = on_change
        self._kernels: dict[str, KernelSession] = {}
        #: Kernels whose last launch has ended; the server lists them for some seconds more.
        self._ended: set[str] = set()
        #: What was chosen for a kernel outlives its restarts: idle seconds, 0 for never.
        self._idle_choices: dict[str, float] = {}
        #: What kernels held when they died, until Jupyter has started them again.
        self._deaths: dict[str, Release] = {}
        self._launches = itertools.count(1)
        self._return_seconds = return_seconds
        self._ending: set[asyncio.Task[None]] = set()
        self._holder = LeaseHolder(
            # The holder needs no more of it than the port has.
            cast("PoolClient", pool),
            on_ended=self._lease_ended,
            on_renewed=self._lease_renewed,
            on_last_moments=self._last_moments,
            on_silence=self._pool_is_silent,
            interval_seconds=renew_seconds,
        )

    async def start(self) -> None:
        await self._holder.__aenter__()

    async def stop(self, reason: str = "exit") -> None:
        """Closes every session; the server ends."""
        for kernel_id in list(self._kernels):
            self.end_in_background(kernel_id, reason)
        if self._ending:  # those of kernels that have ended just before, too
            await asyncio.wait(self._ending, timeout=CLOSE_SECONDS)
        await self._holder.close()
        self._place.close()

    # --- kernels --------------------------------------------------------------------------

    async def launch(self, kernel_id: str) -> KernelSession:
        """A kernel is about to start: a new session with a new capability.

        The session of an earlier launch is closed: a restarted kernel has new memory, and
        what the old one had on the GPU can be reached by nobody.
        """
        if not _KERNEL_ID.fullmatch(kernel_id):
            raise ValueError(f"{kernel_id!r} is not a kernel id")
        previous = self._kernels.pop(kernel_id, None)
        if previous is not None:
            await previous.close("exit")
        session = KernelSession(
            kernel_id,
            self.pool,
            # Not shared with an earlier launch, which may still be closing and then removes its file.
            self._directory / f"{kernel_id}-{next(self._launches)}.session",
            return_seconds=self._return_seconds,
            leases=self._holder,
            on_change=self._on_change,
        )
        session.idle_choice = self._idle_choices.get(kernel_id)
        session.released = self._deaths.pop(kernel_id, None)
        session.draining = session.released is not None
        session.offer_profile(*await self._first_profile())
        session.offer_capability()
        self._kernels[kernel_id] = session
        self._ended.discard(kernel_id)
        session.publish()
        return session

    async def kernel_ended(self, kernel_id: str, reason: str = "exit") -> None:
        """A kernel was shut down or died for good; idempotent."""
        session = self._kernels.pop(kernel_id, None)
        if session is not None:
            self._ended.add(kernel_id)
            await session.close(reason)

    def note_death(self, kernel_id: str) -> None:
        """The process of a kernel has ended unasked. If the server starts the kernel again, its row says what it held."""
        session = self._kernels.get(kernel_id)
        if session is not None:
            # If it dies again before it held anything, what was said of its first death is still true.
            of_before = session.released if session.released and session.released.reason == DIED else None
            release = release_by_death(session.record, at=time.time()) or of_before
            if release is not None:
                self._deaths[kernel_id] = release

    async def choose_idle(
        self, session: KernelSession, seconds: float | None, *, warn_seconds: float
    ) -> None:
        """After how long without use the kernel's GPU goes back: 0 never, None the server's default."""
        if seconds is None:
            self._idle_choices.pop(session.kernel_id, None)
        else:
            self._idle_choices[session.kernel_id] = seconds
        await session.choose_idle(seconds, warn_seconds=warn_seconds)

    def has_ended(self, kernel_id: str) -> bool:
        """Whether the kernel's last launch has ended and none followed."""
        return kernel_id in self._ended

    def forget(self, live: set[str]) -> None:
        """Drops what is known of kernels that do not exist any more."""
        for of_kernels in (self._idle_choices, self._deaths):
            for kernel_id in of_kernels.keys() - live:
                del of_kernels[kernel_id]
        self._ended &= live

    def end_in_background(self, kernel_id: str, reason: str = "exit") -> None:
        task = asyncio.ensure_future(self.kernel_ended(kernel_id, reason))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    @property
    def ending(self) -> bool:
        """Whether sessions of ended kernels are still being closed."""
        return bool(self._ending)

    def get(self, kernel_id: str) -> KernelSession | None:
        return self._kernels.get(kernel_id)

    def __iter__(self) -> Iterator[KernelSession]:
        return iter(list(self._kernels.values()))

    def authenticate(self, kernel_id: str, capability: str) -> KernelSession | None:
        """The session that this capability opens, or None."""
        session = self._kernels.get(kernel_id)
        return session if session is not None and session.verify(capability) else None

    async def _first_profile(self) -> tuple[str, bool]:
        """Profile of the pool's first healthy device; empty when the pool does not answer soon."""
        try:
            devices = await asyncio.wait_for(self.pool.devices(), PROFILE_SECONDS)
        except (GpupoolError, TimeoutError):
            return "", False
        for device in devices:
            if device.healthy and device.profile:
                return device.profile, device.software
        return "", False

    # --- leases ---------------------------------------------------------------------------

    def _lease_ended(self, status: LeaseStatus) -> None:
        session = self._of_lease(status.lease_id)
        if session is not None:
            session.lease_ended(status.lease_id, status.reason)

    def _lease_renewed(self, status: LeaseStatus) -> None:
        session = self._of_lease(status.lease_id)
        if session is not None:
            session.pool_answers(status.lease_id)
            session.notice_told(status.lease_id, status.notice)

    def _last_moments(self, status: LeaseStatus) -> None:
        session = self._of_lease(status.lease_id)
        if session is not None:
            session.last_moments(status.lease_id)

    def _pool_is_silent(self) -> None:
        for session in self:
            session.pool_is_silent()

    def renew_capabilities(self) -> None:
        """Replaces what kernels show to ask for their GPUs, from time to time. To be called about every second."""
        for session in self:
            session.renew_capability()

    async def renew_now(self) -> None:
        """Asks the pool about all leases at once, when there is reason to think that one ended."""
        await self._holder.renew_now()

    async def check_parked(self) -> None:
        """Notices parked sessions whose worker is gone. To be called about every 30 s."""
        parked = [session for session in self if session.record.state is State.PARKED]
        if not parked:
            return
        try:
            known = {info.id: info for info in await self.pool.sessions()}
        except GpupoolError:
            return
        for session in parked:
            session_id = session.record.session_id
            info = known.get(session_id or "")
            state = info.state if info is not None else "closed"
            if session_id is not None and state not in SESSION_LIVES:
                # Of one whose node is silent, or whose process ended by itself, nobody has said why.
                closed = info is not None and info.state == "closed" and info.reason != "exit"
                reason = info.reason if info is not None and closed else ""
                session.observe(events.SessionEnded(session_id, lost=state == "lost", reason=reason))

    def _of_lease(self, lease_id: str) -> KernelSession | None:
        for session in self:
            if session.record.lease is not None and session.record.lease.lease_id == lease_id:
                return session
        return None

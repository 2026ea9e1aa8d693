"""Every second: what attached kernels use, whether they are idle, and what to do about it."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable
from typing import Final

from gpupool.client.errors import GpupoolError
from gpupool.client.session import events as events
from gpupool.client.session.state import HOLDING, State
from gpupool.client.types import Usage

from jupyter_gpupool.server.session.session import KernelSession
from jupyter_gpupool.server.session.sessions import Sessions
from jupyter_gpupool.server.session.shown import MemoryPlace
from jupyter_gpupool.server.session.usage_history import sample_time
from jupyter_gpupool.server.watching.busy import BusyTracker
from jupyter_gpupool.server.watching.idle import IdleLimits, Rung, Signals, Verdict, climb, judge

logger = logging.getLogger(__name__)

TICK_SECONDS: Final = 1.0
#: A usage call that takes longer is skipped: the next tick asks again.
USAGE_SECONDS: Final = 3.0
#: A GPU that was used so lately counts as working, for those who stop idle servers, seconds.
RECENT_SECONDS: Final = 5.0
#: How long a parked session's counters are still read; workers report them every few seconds.
AFTER_SECONDS: Final = 10.0
#: A scope outlives its cell by so long at most, when the kernel could not say that it ended, seconds.
SCOPE_GRACE_SECONDS: Final = 5.0
#: How often it is asked where the sessions' memory lies, seconds.
MEMORY_SECONDS: Final = 2.0
#: How often kernels and parked sessions are compared with what really exists, seconds.
RECONCILE_SECONDS: Final = 30.0


#: States of a session in which its worker serves no lease.
_ENDED: Final = frozenset({"parked", "fenced", "lost", "closed"})


class Watch:
    """The clock of the extension.

    Args:
        sessions: whose leases are watched.
        busy: which kernels run a cell.
        limits: of idle time; read at each tick, so that configuration may change.
        live_kernels: ids of the kernels that the server manages.
        on_active: told at each tick the kernels whose lease is in use, if there are any.
    """

    def __init__(
        self,
        sessions: Sessions,
        busy: BusyTracker,
        limits: Callable[[], IdleLimits],
        live_kernels: Callable[[], list[str]],
        on_active: Callable[[list[str]], None],
    ) -> None:
        self._sessions = sessions
        self._busy = busy
        self._limits = limits
        self._live_kernels = live_kernels
        self._on_active = on_active
        self._reconciled_at = time.monotonic()
        self._looked_at_memory = -math.inf
        #: Launched kernels that the server did not list at the latest comparison.
        self._unlisted: frozenset[KernelSession] = frozenset()
        self._task: asyncio.Task[None] | None = None
        #: Scope → the cells that ran when it began, one of which it belongs to.
        self._cells: dict[str, frozenset[str]] = {}
        #: Scope → when it began.
        self._entered_at: dict[str, float] = {}
        #: Scope → when all of these had ended.
        self._over_since: dict[str, float] = {}

    def start(self) -> None:
        self._task = asyncio.ensure_future(self._run())

    async def stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    def verdict(self, session: KernelSession) -> Verdict:
        """Where a held lease stands on the idle ladder."""
        return judge(self._limits().policy(session.idle_choice), self._signals(session))

    def _signals(self, session: KernelSession) -> Signals:
        usage = session.history.latest
        # The last report grows old with the silence of the pool; what ran then has ended with the lease, or waits.
        silent = session.silent_for()
        return Signals(
            now=time.monotonic(),
            attached_at=session.attached_at,
            # A cell under %%gpu counts by itself: its execute_request may have begun
            # before the subscription did.
            cell_running=bool(session.record.scopes) or self._busy.busy(session.kernel_id),
            last_cell_at=self._busy.last_ended_at(session.kernel_id),
            gpu_idle_seconds=usage.idle_seconds + silent if usage is not None else silent or None,
            gpu_in_flight=usage is not None and not silent and (usage.in_flight or usage.work == "running"),
            last_work_at=session.work_seen_at,
            kept_until=session.kept_until,
        )

    def scope_entered(self, kernel_id: str, scope: str) -> None:
        """A ``%%gpu`` cell of this kernel got its share."""
        self._cells[scope] = self._busy.open_requests(kernel_id)
        self._entered_at[scope] = time.monotonic()

    async def _run(self) -> None:
        while True:
            started = time.monotonic()
            try:
                await self.tick()
            except Exception:
                # A fault in one tick must not end the idle release of all kernels.
                logger.exception("the idle watch failed once")
            await asyncio.sleep(max(0.1, TICK_SECONDS - (time.monotonic() - started)))

    async def tick(self) -> None:
        """One look at everything."""
        self._sessions.renew_capabilities()
        self._end_stale_scopes()
        attached = [session for session in self._sessions if session.record.state in HOLDING]
        # A session that has just parked is read some more: its last counters arrive late.
        rested = [session for session in self._sessions if self._is_read_on(session)]
        await asyncio.gather(*(self._sample(session) for session in [*attached, *rested]))
        await asyncio.gather(self._look_at_memory(), self._look_after_ended())
        active = [session.kernel_id for session in attached if self._climb(session) is Rung.ACTIVE]
        if active:
            self._on_active(active)
        if time.monotonic() - self._reconciled_at >= RECONCILE_SECONDS:
            self._reconciled_at = time.monotonic()
            await self._reconcile()

    def _is_read_on(self, session: KernelSession) -> bool:
        """Whether the counters of a session without a lease may still change."""
        usage = session.history.latest
        working = usage is not None and usage.work != ""
        return session.record.state not in HOLDING and (session.rested_for() < AFTER_SECONDS or working)

    async def _look_after_ended(self) -> None:
        """Whether shares that were given back are free: one question for all."""
        ended = {
            session.released.lease_id: session
            for session in self._sessions
            if session.draining and session.released is not None
        }
        if not ended:
            return
        try:
            known = await asyncio.wait_for(self._sessions.pool.leases(), USAGE_SECONDS)
        except (GpupoolError, TimeoutError) as error:
            logger.debug("the pool does not say which leases it has: %s", error)
            return
        held = {lease.id for lease in known}
        for lease_id, session in ended.items():
            if (
                lease_id not in held
                and session.released is not None
                and session.released.lease_id == lease_id
            ):
                session.draining = False
                session.on_change(session)

    async def _look_at_memory(self) -> None:
        """Where the sessions' memory lies, and what stands in the way of moving it: one question for all."""
        now = time.monotonic()
        shown = {
            session.record.session_id: session for session in self._sessions if session.record.session_id
        }
        if not shown or now - self._looked_at_memory < MEMORY_SECONDS:
            return
        self._looked_at_memory = now
        try:
            known = await asyncio.wait_for(self._sessions.pool.sessions(), USAGE_SECONDS)
        except (GpupoolError, TimeoutError) as error:
            logger.debug("the pool does not say where memory lies: %s", error)
            return
        for info in known:
            session = shown.get(info.id)
            if session is not None and session.shown.memory != (memory := MemoryPlace.of(info)):
                session.shown.memory = memory
                session.on_change(session)

    def _end_stale_scopes(self) -> None:
        """Ends scopes whose cell is over although its kernel did not say so (it had no sockets left, say)."""
        now = time.monotonic()
        alive = {scope: session for session in self._sessions for scope in session.record.scopes}
        for known in (self._cells, self._entered_at, self._over_since):
            for scope in known.keys() - alive.keys():
                del known[scope]
        for scope in list(self._cells):
            if not self._is_over(scope, alive[scope].kernel_id):
                self._over_since.pop(scope, None)
            elif now - self._over_since.setdefault(scope, now) >= SCOPE_GRACE_SECONDS:
                logger.warning("a cell of kernel %s ended without a word", alive[scope].kernel_id)
                alive[scope].observe(events.ScopeLeft(scope))

    def _is_over(self, scope: str, kernel_id: str) -> bool:
        """Whether the cell of a scope has ended, as far as this server has heard."""
        running = self._busy.open_requests(kernel_id)
        # The kernel asked for the share before this server read that the cell had begun.
        if not self._cells[scope]:
            self._cells[scope] = running
        if cells := self._cells[scope]:
            return not cells & running
        # It was short, or the subscription came too late. Cells run one after the other: if one has ended since, this one has.
        return self._busy.last_ended_at(kernel_id) > self._entered_at[scope]

    async def _sample(self, session: KernelSession) -> None:
        session_id = session.record.session_id
        if session_id is None:
            return
        try:
            usage: Usage = await asyncio.wait_for(self._sessions.pool.usage(session_id), USAGE_SECONDS)
        except (GpupoolError, TimeoutError) as error:
            logger.debug("no usage of session %s: %s", session_id, error)
            return
        if session.record.session_id != session_id:
            return  # it ended meanwhile
        session.used(usage, sample_time())
        try:
            session.files.usage.write(usage)
        except OSError as error:
            logger.debug("no usage file of session %s: %s", session_id, error)
        if usage.state in _ENDED and session.record.state in HOLDING:
            # Reclaimed, fenced or lost: the cell must not learn it only at the next renewal.
            await self._sessions.renew_now()

    def _climb(self, session: KernelSession) -> Rung:
        if session.record.state not in HOLDING:
            return Rung.IDLE
        policy = self._limits().policy(session.idle_choice)
        signals = self._signals(session)
        warned = session.record.state is State.WARNED and session.record.notice is None
        verdict, session.kept_until = climb(policy, signals, warned=warned)
        if not verdict.gpu_seconds:
            session.work_seen_at = signals.now
        match verdict.rung:
            case Rung.RELEASE:
                session.observe(events.DetachWanted("idle", unused_seconds=verdict.idle_seconds))
            case Rung.WARNED:
                session.observe(events.Warned(math.ceil(verdict.countdown or 0)))
            case _:
                session.observe(events.Used())
        # Work that comes in short bursts is rarely under way at the moment of a look.
        return Rung.ACTIVE if verdict.idle_seconds < RECENT_SECONDS else verdict.rung

    async def _reconcile(self) -> None:
        """Kernels may vanish without a word; their sessions must not outlive them."""
        live = set(self._live_kernels())
        unlisted = frozenset(session for session in self._sessions if session.kernel_id not in live)
        # The server lists a kernel only when it has started: one that is missing for the first time may be starting.
        for session in unlisted & self._unlisted:
            await self._sessions.kernel_ended(session.kernel_id, "exit")
        self._unlisted = unlisted
        self._sessions.forget(live)
        for kernel_id in self._busy.watched() - live:
            self._busy.forget(kernel_id)
        await self._sessions.check_parked()

"""The share of one process: held, taken back with notice, asked for again.

Of a command under `gpupool run`, and of a program that attaches by itself (:mod:`gpupool.client.own_session`).
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from gpupool.client.errors import GpupoolError, PoolRefused, PoolUnavailable
from gpupool.client.holder import LeaseHolder
from gpupool.client.pool import PoolClient
from gpupool.client.returning import comes_back, hand_over
from gpupool.client.session_file import SessionFile, SessionRecord, write_private
from gpupool.client.types import Ask, Grant, LeaseStatus, Notice, QueuePlace, Usage
from gpupool.client.usage_file import UsageFile
from gpupool.sentences import reasons
from gpupool.shares import Share

#: Reasons of a lease's end that are the session's too.
SESSION_ENDED: Final = frozenset({"lost", "reset", "stopped"})
#: Between two attempts to ask again while the pool does not answer, seconds.
_AGAIN_SECONDS: Final = 2.0


class HeldShare:
    """What a process holds, from the grant on.

    Args:
        directory: where the session file and the profile are written.
        ask: what was asked for.
        wait_again: how long it waits for a share that was taken back for others; None without limit, 0 not at all.
        interval: seconds between renewals.
        say: is told, one sentence each, what happens to the share.
        say_queued: is told each place in the queue when it is asked for again.
        asks_later: after its end the process may ask for another share, with what is on the device: the session
            file then says ``parked``, else ``closed``.
        file: the session file, if another writes it too; None: ``session`` in the directory.
    """

    def __init__(
        self,
        pool: PoolClient,
        directory: Path,
        ask: Ask,
        grant: Grant,
        *,
        wait_again: float | None,
        interval: float,
        say: Callable[[str], None],
        say_queued: Callable[[QueuePlace], None],
        asks_later: bool = False,
        file: SessionFile | None = None,
    ) -> None:
        self._say = say
        self._say_place = say_queued
        self._asks_later = asks_later
        self._pool = pool
        self._ask = ask
        self._grant = grant
        self._held = True
        self._held_since = time.monotonic()
        self._wait_again = wait_again
        self._notice: Notice | None = None
        self._resting = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._decided = asyncio.Event()
        #: Why it is not held any more (an id), and the sentence for people; empty: it is, or is asked for again.
        self.over = self.message = ""
        self.queue: QueuePlace | None = None
        self.usage: Usage | None = None
        self._profile = directory / "profile"
        self.file = SessionFile(directory / "session") if file is None else file
        self._usage = UsageFile(self.file.path)
        self.holder = LeaseHolder(
            pool,
            on_ended=self._ended,
            on_renewed=self._renewed,
            on_last_moments=self._rest,
            interval_seconds=interval,
        )
        self._take(grant)

    async def settle(self) -> None:
        """The command has ended: says why its share was taken back, if it was just now."""
        await self._cancel_tasks()
        if self._held and self.holder.failing_since is None:
            # A program that failed because its share was taken away ends sooner than the next renewal.
            await self.holder.renew_now()
            await self._cancel_tasks()
        self.holder.drop(self._grant.lease_id)

    @property
    def grant(self) -> Grant:
        """What is held, or was held last."""
        return self._grant

    @property
    def held(self) -> bool:
        return self._held

    @property
    def notice(self) -> Notice | None:
        """That the pool takes it back."""
        return self._notice

    async def decided(self) -> None:
        """Returns when it is held, or nobody asks for it again."""
        await self._decided.wait()

    async def resize(self, share: Share) -> None:
        """Changes its size. Raises PoolRefused with numbers where it does not fit."""
        grant = await self._pool.resize(self._grant.lease_id, share)
        self._ask = replace(self._ask, share=share)
        self._grant = grant
        self._write_attached()

    def tell(self) -> None:
        """Writes the session file again: what goes with it has changed."""
        if self._held and not self._resting:
            self._write_attached()

    async def park(self, message: str) -> None:
        """Gives it back; what is on the device stays. ``message`` is what later calls are told."""
        await self._cancel_tasks()
        self.holder.drop(self._grant.lease_id)
        held, self._held = self._held, False
        # Said first: a thread whose call the worker refuses must not read the old lease again.
        self._is_over("exit", message)
        if held:
            await self._pool.release(self._grant.lease_id, "exit")

    async def let_go(self) -> None:
        """Renews it no more, and asks for no other; its session is being closed."""
        await self._cancel_tasks()
        self._held = False
        await self.holder.close()

    async def give_back(self) -> None:
        """The share, and the session with what is on the device."""
        await self._cancel_tasks()
        try:
            if self._held:
                await self._pool.release(self._grant.lease_id, "exit", close_session=True)
            else:
                await self._pool.close_session(self._grant.session_id, "exit")
        except GpupoolError as error:
            self._say(f"the share was not given back now; it ends by itself in half a minute ({error})")

    # --- what the holder reports ----------------------------------------------------------------

    def _renewed(self, status: LeaseStatus) -> None:
        self.usage = status.usage
        self._usage.write(status.usage)
        if status.notice is not None and self._notice is None:
            self._say(
                f"this share is taken back in {math.ceil(status.notice.seconds_left)} s: {status.notice.explanation}"
            )
        elif status.notice is None and self._notice is not None:
            self._say("this share is not taken back after all")
            if self._resting:
                self._resting = False
                self._write_attached()
        self._notice = status.notice

    def _rest(self, status: LeaseStatus) -> None:
        assert status.notice is not None
        if self._wait_again == 0 or not comes_back(status.notice.reason, noticed=True):
            return  # whoever gives up may use it to the end
        self._resting = True
        record = self._say_waiting(f"This share is taken back: {status.notice.explanation}")
        self._spawn(
            hand_over(self._pool.release, self.file, status.lease_id, status.notice, record.generation)
        )

    def _ended(self, status: LeaseStatus) -> None:
        noticed, self._notice = self._notice, None
        self._held = self._resting = False
        why = reasons.because(status.reason) or status.state
        message = f"The pool took this program's GPU share back: {why}."
        if status.reason == "reset":  # its user's own doing
            message = "This program's GPU session was ended, and its share is free again."
        if self._wait_again == 0 or not comes_back(status.reason, noticed=noticed is not None):
            self._say(message)
            self._is_over(status.reason or "lost", message)
            return
        self._decided.clear()
        self._say(f"{message} It goes on when it gets a share again.")
        self._say_waiting(message)
        self._spawn(self._return(message))

    # --- asking again -----------------------------------------------------------------------------

    async def _return(self, why: str) -> None:
        ask = self._next_ask()
        until = None if self._wait_again is None else time.monotonic() + self._wait_again
        while True:
            left = None if until is None else max(0.0, until - time.monotonic())
            try:
                grant = await self._pool.request(ask, on_queued=partial(self._queued, why), wait_seconds=left)
            except PoolUnavailable as error:
                if left == 0:
                    self._gives_up(why, str(error))
                    return
                await asyncio.sleep(_AGAIN_SECONDS)
            except PoolRefused as refusal:
                self._gives_up(why, refusal.explanation)
                return
            else:
                break
        if grant.new_session:
            # It has nothing of what the program has on the device.
            self._gives_up(why, "what it had in GPU memory is lost.")
            with contextlib.suppress(GpupoolError):  # it ends by itself in half a minute
                await self._pool.release(grant.lease_id, "exit", close_session=True)
            return
        self._say("this program has a GPU share again and goes on")
        self._take(grant)

    def _next_ask(self) -> Ask:
        left = self._ask.duration_seconds
        if left:
            left = max(1.0, left - (time.monotonic() - self._held_since))
        self._ask = replace(self._ask, duration_seconds=left)
        return replace(
            self._ask, session_id=self._grant.session_id, idempotency_key=f"{self._grant.lease_id}-again"
        )

    def _queued(self, why: str, place: QueuePlace) -> None:
        self.queue = place
        self._say_place(place)
        self._say_waiting(f"{why} It waits at place {place.place}: {place.reason}")

    def _gives_up(self, why: str, reason: str) -> None:
        message = f"{why} It does not wait for another: {reason}"
        self._say(message)
        self._is_over("refused", message)

    # --- the session file -------------------------------------------------------------------------

    def _take(self, grant: Grant) -> None:
        self._grant, self._held, self._held_since = grant, True, time.monotonic()
        self.queue = None
        self._decided.set()
        if grant.profile:
            write_private(self._profile, grant.profile.encode())
        self._write_attached()
        self.holder.hold(grant.lease_id)

    def _write_attached(self) -> None:
        profile = str(self._profile) if self._profile.exists() else ""
        self.file.write_attached(self._grant, profile=profile, resumes=self._wait_again != 0)

    def _say_waiting(self, message: str) -> SessionRecord:
        profile = str(self._profile) if self._profile.exists() else ""
        return self.file.write(
            "waiting",
            session=self._grant.session_id,
            message=message,
            software=self._grant.software,
            profile=profile,
        )

    def _is_over(self, reason: str, message: str) -> None:
        self.over, self.message = reason, message
        self._decided.set()
        self.file.write(
            "parked" if self._asks_later else "closed",
            session=self._grant.session_id,
            message=message,
            software=self._grant.software,
            profile=str(self._profile) if self._profile.exists() else "",
        )

    # --- tasks ------------------------------------------------------------------------------------

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _cancel_tasks(self) -> None:
        for task in list(self._tasks):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

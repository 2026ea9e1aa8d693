"""The GPU session of a program that nobody else holds a share for: a notebook run by papermill, a script, a command.

It asks the pool itself, renews its own lease, and tells the program by the session file. The rules are those of every
holder (:mod:`gpupool.client.session`): a share is kept while a *scope* (a cell, a ``with`` block) or the *hold* needs it,
then it goes back and what is in GPU memory stays for the next one.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Self

from gpupool.client.errors import GpupoolError
from gpupool.client.holder import LeaseHolder
from gpupool.client.pool import PoolClient
from gpupool.client.program.told import told
from gpupool.client.session import events as events
from gpupool.client.session.files import SessionFiles
from gpupool.client.session.renewed_lease import RenewedLease
from gpupool.client.session.session import AttachRefusedError, HolderSession
from gpupool.client.session.state import HOLDING, Session
from gpupool.client.session.words import PROGRAM_WORDS, Words
from gpupool.client.types import Grant, GrantedShare, LeaseRequest, LeaseStatus, QueuePlace, Usage


@dataclass(frozen=True, slots=True)
class Wanted:
    """What one scope or the hold asks for. ``wait_seconds`` None waits without limit."""

    request: LeaseRequest
    scope: str = ""
    hold: bool = False
    wait_seconds: float | None = None


class ProgramSession(HolderSession):
    """What one program holds over its life. An async context manager: at its end everything goes back.

    Args:
        directory: where the session file and what belongs to it are written; private to the user.
        holder: how lists show who holds it.
        interval: seconds between renewals.
        say: is told, one sentence each, what happens to the share.
        say_place: is told each place in the queue while a lease that was taken back is asked for again.
        return_seconds: how long it waits for such a lease; None without limit, 0 not at all.
        asks_later: whether the program may ask for another share after the end of one.
    """

    def __init__(
        self,
        pool: PoolClient,
        directory: Path,
        *,
        holder: str,
        interval: float,
        say: Callable[[str], None],
        say_place: Callable[[QueuePlace], None] = lambda _: None,
        return_seconds: float | None = None,
        asks_later: bool = True,
        words: Words = PROGRAM_WORDS,
    ) -> None:
        self._leases = LeaseHolder(
            pool,
            on_ended=lambda status: self.lease_ended(status.lease_id, status.reason),
            on_renewed=self._lease_renewed,
            on_last_moments=lambda status: self.last_moments(status.lease_id),
            on_silence=self.pool_is_silent,
            interval_seconds=interval,
        )
        self.files = SessionFiles(directory / "session", asks_later=asks_later, say=say)
        super().__init__(
            holder,
            pool,
            self.files,
            words=words,
            return_seconds=return_seconds,
            renewed=RenewedLease(self._leases),
            on_change=lambda: None,
        )
        self._say = say
        self._say_place = say_place
        self._asks_later = asks_later
        self._ends = False
        self._devices = pool.devices
        #: What the pool said at the last renewal of the lease that is held; None: nothing yet.
        self.usage: Usage | None = None
        #: The lease that is held, or was held last.
        self.latest: Grant | None = None

    async def __aenter__(self) -> Self:
        await self._leases.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # --- what the program does ------------------------------------------------------------------

    async def prepare(self) -> None:
        """Writes the session file before the first request: compilers must know beforehand what kind of GPU it will be.

        Raises:
            GpupoolError: the pool does not answer.
        """
        devices = [device for device in await self._devices() if device.healthy]
        software = bool(devices) and all(device.software for device in devices)
        self.offer_profile(next((device.profile for device in devices if device.profile), ""), software)
        self.publish()

    async def attach(
        self, wanted: Wanted, on_queued: Callable[[QueuePlace], None] | None = None, *, by: str = ""
    ) -> None:
        """Gets a share for a scope or the hold, or joins the one that is held.

        ``by``: who asks; empty: a line of the program, which counts as in a Jupyter server.

        Raises:
            AttachRefusedError: no share was given; says why.
        """
        await self.ask(
            replace(wanted.request, holder=self.holder),
            by=by or ("attach" if wanted.hold else "magic"),
            scope=wanted.scope or None,
            hold=wanted.hold,
            wait_seconds=wanted.wait_seconds,
            on_queued=on_queued,
        )

    def auto(self, wanted: Wanted | None, *, as_before: bool = False) -> None:
        """Calls of the program that find no GPU attached get one from now on, as a hold; None: they fail.

        ``as_before``: what was held last, if there was something, instead of the share that ``wanted`` names.
        """

        async def attach() -> None:
            assert wanted is not None
            request, last = wanted.request, self.record.request
            if as_before and last is not None:
                request = replace(request, share=last.share, count=last.count)
            fresh = replace(request, idempotency_key=secrets.token_hex(16))
            await self.attach(replace(wanted, request=fresh, hold=True), by="auto")

        self.files.hear(attach if wanted is not None else None, self.publish, str)
        self.publish()

    async def drop_hold(self) -> None:
        """Gives back what no scope needs, and leaves the queue. Raises AttachRefusedError where there is nothing."""
        if self.record.lease is None and self.record.asking is None:
            raise AttachRefusedError("not-attached", self.record.words.not_attached)
        await self.detach("exit")

    async def settle(self) -> None:
        """The command has ended: says why its share was taken back, if it was just now."""
        # A program that failed because its share was taken away ends sooner than the next renewal.
        if self.record.lease is not None:
            with contextlib.suppress(AttachRefusedError):
                await self._confirm_lease()

    async def close(self, reason: str = "exit") -> None:
        """The program ended: gives back the share, and the session with what is on the device."""
        self._ends = True
        await self._leases.close()
        await super().close(reason)

    @property
    def shares(self) -> tuple[GrantedShare, ...]:
        """What is held now."""
        return self.record.lease.shares if self.record.lease is not None else ()

    # --- what is special about it ---------------------------------------------------------------

    def stepped(self, before: Session, event: events.Event) -> None:
        after = self.record
        if after.state in HOLDING:
            self.latest = after.lease
            if before.state not in HOLDING:
                self.usage = None
        if isinstance(event, events.Queued) and after.returning:
            self._say_place(event.place)
        sentence = told(before, after, event)
        if sentence is not None:
            self._say(sentence)
        # Whoever may ask again is told by a refused call how to, which the sentence doesn't say.
        if after != before and not self._asks_later:
            self.files.end_is_told = sentence is not None

    def not_given_back(self, error: GpupoolError) -> None:
        self._say(f"the share was not given back now; it ends by itself in half a minute ({error})")

    def _lease_renewed(self, status: LeaseStatus) -> None:
        self.pool_answers(status.lease_id)
        self.usage = status.usage
        self.notice_told(status.lease_id, status.notice)
        with contextlib.suppress(OSError):  # monitors show old figures while the disk is full
            self.files.usage.write(status.usage)

    async def _release(self, lease_id: str, reason: str) -> None:
        # At the end of the program nothing of its session is wanted: work on the device need not come to rest first.
        await self._pool.release(lease_id, reason, close_session=self._ends)

    async def _release_strays(self, before: asyncio.Task[None] | None) -> None:
        """Leaves them to their end, half a minute later: names of holders are not unique beyond one machine."""

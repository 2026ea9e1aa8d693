"""The GPU session of a process that nobody else holds a share for: a notebook run by papermill, a script, a console.

It lives in a process of its own (:mod:`gpupool.client.keeper_process`), asks the pool as `gpupool run` does, and tells
the program by the session file. The rules are those of a notebook's kernel: a share is kept while a *scope* (a cell, a
``with`` block) or the *hold* needs it, then it goes back and what is in GPU memory stays for the next one.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from gpupool.client.errors import GpupoolError, PoolRefused, QueueTimeout
from gpupool.client.granted_size import describe, exceeds, fits
from gpupool.client.held_share import SESSION_ENDED, HeldShare
from gpupool.client.pool import PoolClient
from gpupool.client.session_file import SessionFile, SessionFileError, write_private
from gpupool.client.types import Ask, Device, GrantedShare, QueuePlace
from gpupool.client.wishes import Wishes
from gpupool.shares import Share

_KEPT: Final = "No GPU is attached; what is in GPU memory is kept. Put %%gpu 0.2 above the cell, or use gpupool.attach(0.2)."
_NOTHING: Final = "No GPU is attached."
_RESET: Final = "The GPU session was reset: arrays in GPU memory are lost, Python variables stay. The next attach begins another."
#: How long a reset waits for another thread's ask, seconds.
_RESET_PATIENCE: Final = 10.0


@dataclass(frozen=True, slots=True)
class Wanted:
    """What one scope or the hold asks for. ``wait_seconds`` None waits without limit."""

    ask: Ask
    scope: str = ""
    hold: bool = False
    wait_seconds: float | None = None


class OwnSession:
    """What one process holds over its life. Use it in one event loop.

    Args:
        directory: where the session file and the profile are written; private to the user.
        holder: how lists show who holds it.
        interval: seconds between renewals.
        say: is told, one sentence each, what happens to the share.
    """

    def __init__(
        self, pool: PoolClient, directory: Path, *, holder: str, interval: float, say: Callable[[str], None]
    ) -> None:
        self.file = SessionFile(directory / "session")
        self._directory = directory
        self._pool = pool
        self._holder = holder
        self._interval = interval
        self._say = say
        self._share: HeldShare | None = None
        self._session_id = ""
        self._strict = False
        self._scopes: dict[str, Share] = {}
        self._hold: Share | None = None
        self._lock = asyncio.Lock()
        self._asking: QueuePlace | None = None
        self._last: Ask | None = None
        self._by = ""
        self._wishes: Wishes | None = None
        self._reason, self._message = "", _NOTHING

    # --- what the program does ------------------------------------------------------------------

    async def prepare(self) -> None:
        """Writes the session file before the first ask: compilers must know beforehand what kind of GPU it will be.

        Raises:
            GpupoolError: the pool does not answer.
        """
        devices = [device for device in await self._pool.devices() if device.healthy]
        software = bool(devices) and all(device.software for device in devices)
        profile = next((device.profile for device in devices if device.profile), "")
        if profile:
            write_private(self._directory / "profile", profile.encode())
        shown = str(self._directory / "profile") if profile else ""
        self.file.write("none", message=_NOTHING, software=software, profile=shown)

    async def attach(
        self, wanted: Wanted, on_queued: Callable[[QueuePlace], None] | None = None
    ) -> dict[str, Any]:
        """Gets a share, or joins the one that is held, which grows where it is too small; the session then.

        Cancelling the task leaves the queue.

        Raises:
            PoolRefused: no share was given; says why.
            PoolUnavailable: the pool cannot be reached.
        """
        async with self._turn(wanted.wait_seconds):
            share = self._share
            if share is not None:
                await self._confirmed(share, wanted.wait_seconds)
            if self._share is None:
                await self._ask(wanted, on_queued)
            else:
                await self._join(self._share, wanted)
            if wanted.scope:
                self._scopes[wanted.scope] = wanted.ask.share
            if wanted.hold:
                self._hold = wanted.ask.share
        return self.view()

    def auto(self, wanted: Wanted | None, *, as_before: bool = False) -> None:
        """Calls of the program that find no GPU attached get one from now on, as a hold; None: they fail.

        ``as_before``: what was held last, if there was something, instead of the share that ``wanted`` names.
        """
        if self._wishes is not None:
            self._wishes.close()
            self._wishes = None
            if self._share is None:
                self._rest(self._message)
        if wanted is None:
            return

        async def attach() -> None:
            ask, last = wanted.ask, self._last
            if as_before and last is not None:
                ask = replace(ask, share=last.share, count=last.count)
            fresh = replace(ask, idempotency_key=secrets.token_hex(16))
            await self.attach(replace(wanted, ask=fresh, hold=True))
            self._by = "auto"

        self._wishes = Wishes(self.file.path, attach, self._answered, str)

    def _answered(self, wish: int, refusal: str) -> None:
        self.file.answered = wish
        if self._share is not None:
            self._share.tell()
        else:
            self._rest(
                f"%gpu auto is on, but no GPU could be attached: {refusal}" if refusal else self._message
            )

    async def leave(self, scope: str) -> dict[str, Any]:
        """A scope ended; the share goes back, or to the size of what is left, when nobody else needs it."""
        async with self._lock:
            if self._scopes.pop(scope, None) is not None:
                await self._settle()
        return self.view()

    async def detach(self) -> dict[str, Any]:
        """Drops the hold. Raises PoolRefused where nothing is attached."""
        async with self._lock:
            if self._share is None:
                raise PoolRefused("not-attached", "No GPU is attached to this program.")
            self._hold = None
            await self._settle()
        return self.view()

    async def resize(self, share: Share) -> dict[str, Any]:
        """Changes the size of what is held. Raises PoolRefused."""
        async with self._lock:
            if self._share is None:
                raise PoolRefused("not-attached", "No GPU is attached to this program.")
            await self._share.resize(share)
            if self._hold is not None:
                self._hold = share
        return self.view()

    async def reset(self) -> dict[str, Any]:
        """Ends the session with all that is in its memory, whatever it does; the next attach begins another one.

        Raises:
            PoolRefused: another thread asks for a GPU.
            PoolUnavailable: the pool ends it later.
        """
        async with self._turn(_RESET_PATIENCE):
            share, session_id = self._share, self._session_id
            if not session_id:
                return self.view()
            self._share = self._hold = None
            self._scopes.clear()
            self._session_id = ""
            self._reason, self._message = "reset", _RESET
            if share is not None:
                await share.let_go()
            # Said first: a thread whose call ends with the session must not read the old lease again.
            self.file.write("closed", reason="reset", message=_RESET, **self._shown())
            await self._pool.close_session(session_id, "reset")
        return self.view()

    @property
    def shares(self) -> tuple[GrantedShare, ...]:
        """What is held now."""
        return self._share.grant.shares if self._share is not None else ()

    async def close(self) -> None:
        """The program ended: gives back the share, and the session with what is on the device."""
        self.auto(None)
        share, self._share = self._share, None
        if share is not None:
            await share.holder.close()
            await share.give_back()
        elif self._session_id:
            with contextlib.suppress(GpupoolError):  # it is closed within the hour
                await self._pool.close_session(self._session_id, "exit")
        self.file.remove()

    def view(self) -> dict[str, Any]:
        """The session, in the words in which a Jupyter server tells a kernel of its own."""
        share = self._share
        held = share is not None and share.held
        grant = share.grant if share is not None and held else None
        usage = share.usage if share is not None else None
        place = self._asking or (share.queue if share is not None else None)
        state = "attached" if held else "queued" if place else "parked" if self._session_id else "none"
        notice = share.notice if share is not None else None
        return {
            "state": "warned" if held and notice is not None else state,
            "reason": None if held else (share.over if share is not None else self._reason) or None,
            "message": None if held else (share.message if share is not None else self._message),
            "held": self._hold is not None,
            "by": self._by if held else None,
            "session_id": self._session_id or None,
            "description": describe(grant) if grant is not None else None,
            "share": (
                {"milli": grant.shares[0].milli, "mib": grant.shares[0].mib, "count": len(grant.shares)}
                if grant is not None
                else None
            ),
            "software": grant.software if grant is not None else False,
            "queue": {"place": place.place, "reason": place.reason} if place is not None else None,
            "notice": (
                {"seconds_left": round(notice.seconds_left), "reason": notice.reason, "returns": True}
                if notice is not None
                else None
            ),
            "usage": (
                {
                    "device_seconds": usage.device_seconds,
                    "calls": usage.calls,
                    "asks": usage.asks,
                    "memory_bytes": sum(usage.memory_used),
                    "memory_peak_bytes": sum(usage.memory_peak),
                    "work": usage.work,
                    "kernel": usage.kernel,
                    "work_seconds": usage.work_seconds,
                    "failure": usage.failure,
                    "failed_kernel": usage.failed_kernel,
                }
                if usage is not None
                else None
            ),
        }

    async def pool_view(self) -> dict[str, Any]:
        """Devices, shares and queue; a pool that does not answer is a view too, with ``ok`` false."""
        try:
            devices, queue = await asyncio.gather(self._pool.devices(), self._pool.queue())
        except GpupoolError as error:
            return {"ok": False, "error": str(error), "devices": [], "queue": []}
        entries = [{**asdict(entry), "mine": entry.holder == self._holder} for entry in queue]
        return {"ok": True, "devices": [self._device_view(device) for device in devices], "queue": entries}

    def _device_view(self, device: Device) -> dict[str, Any]:
        shares = [{**asdict(share), "mine": share.holder == self._holder} for share in device.shares]
        plain = replace(device, profile="", shares=(), labels={})
        return {**asdict(plain), "shares": shares}

    # --- asking -----------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _turn(self, wait_seconds: float | None) -> AsyncIterator[None]:
        """One ask at a time; whoever will not wait does not wait for another's either."""
        patience = None if wait_seconds is None else max(1.0, wait_seconds)
        try:
            async with asyncio.timeout(patience):
                await self._lock.acquire()
        except TimeoutError:
            raise QueueTimeout("Another thread of this program already asks for a GPU.") from None
        try:
            yield
        finally:
            self._lock.release()

    async def _confirmed(self, share: HeldShare, wait_seconds: float | None) -> None:
        """Whether it is still held; one that was taken back for others is waited for."""
        if share.held and share.holder.failing_since is None:
            await share.holder.renew_now()
        patience = None if wait_seconds is None else max(1.0, wait_seconds)
        try:
            await asyncio.wait_for(share.decided(), patience)
        except TimeoutError:
            raise QueueTimeout(
                "The GPU share of this program was taken back, and has not come again."
            ) from None
        if share.over:
            await self._forget(share)

    async def _forget(self, share: HeldShare) -> None:
        """The lease is over; whoever held it does not any more."""
        await share.holder.close()
        self._reason, self._message = share.over, share.message
        if share.over in SESSION_ENDED:
            self._session_id = ""
        self._share, self._hold = None, None
        self._scopes.clear()

    async def _ask(self, wanted: Wanted, on_queued: Callable[[QueuePlace], None] | None) -> None:
        if wanted.ask.strict and self._session_id and not self._strict:
            text = "The GPU session of this program began without a hard cap (strict), and keeps its way of sharing."
            raise PoolRefused("not-strict", text)

        def queued(place: QueuePlace) -> None:
            self._asking = place
            self.file.write("queued", session=self._session_id, message=f"No GPU is attached yet: {place.reason}",
                            **self._shown())  # fmt: skip
            if on_queued is not None:
                on_queued(place)

        ask = replace(wanted.ask, holder=self._holder, session_id=self._session_id)
        started = time.monotonic()
        try:
            try:
                grant = await self._pool.request(ask, on_queued=queued, wait_seconds=wanted.wait_seconds)
            except PoolRefused as refusal:
                if refusal.reason != "unknown-session" or not self._session_id:
                    raise
                # The pool forgot the parked session; a new one can still be had.
                self._session_id = ""
                waited = time.monotonic() - started
                left = None if wanted.wait_seconds is None else max(0.0, wanted.wait_seconds - waited)
                fresh = replace(ask, session_id="", idempotency_key=f"{ask.idempotency_key}-new")
                grant = await self._pool.request(fresh, on_queued=queued, wait_seconds=left)
        except BaseException:
            self._rest(self._message)
            raise
        finally:
            self._asking = None
        self._last, self._by = wanted.ask, "magic"
        if grant.new_session:
            self._strict = wanted.ask.strict
        if grant.new_session and self._session_id:
            self._say("the GPU state of this program was lost; arrays on the GPU must be made again")
        self._session_id = grant.session_id
        self._share = HeldShare(
            self._pool,
            self._directory,
            ask,
            grant,
            wait_again=None,
            interval=self._interval,
            say=self._say,
            say_queued=lambda place: None,
            asks_later=True,
            file=self.file,
        )
        await self._share.holder.__aenter__()

    def _rest(self, message: str) -> None:
        """Says in the session file that nothing is held."""
        state = "parked" if self._session_id else "none"
        self.file.write(state, session=self._session_id, message=message, **self._shown())

    def _shown(self) -> dict[str, Any]:
        """What the file says of the devices, whatever the state."""
        try:
            before = self.file.read()
        except SessionFileError:
            return {}
        return {"software": before.software, "profile": before.profile}

    async def _join(self, share: HeldShare, wanted: Wanted) -> None:
        held = len(share.grant.shares)
        if wanted.ask.count not in (held, 1):
            text = f"This program already holds a share of {held} GPU{'s' if held > 1 else ''}, not of {wanted.ask.count}."
            raise PoolRefused("in-use", text)
        if not fits(wanted.ask.share, share.grant):
            await share.resize(wanted.ask.share)

    # --- giving back --------------------------------------------------------------------------------

    async def _settle(self) -> None:
        """The share goes back when nobody needs it, and becomes smaller when only the hold does."""
        share = self._share
        if share is None:
            return
        if self._scopes or self._hold is not None:
            if not self._scopes and self._hold is not None and exceeds(share.grant, self._hold):
                with contextlib.suppress(GpupoolError):  # more than that is used: it stays as large
                    await share.resize(self._hold)
            return
        if share.over:
            await self._forget(share)
            return
        self._share, self._reason, self._message = None, "exit", _KEPT
        await share.holder.close()
        try:
            await share.park(_KEPT)
        except GpupoolError as error:
            self._say(f"the share was not given back now; it ends by itself in half a minute ({error})")

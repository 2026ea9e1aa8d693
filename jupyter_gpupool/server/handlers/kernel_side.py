"""The API of kernels: each may ask for its own GPU, with the capability of its launch.

No user is logged in here and no cookie is read, so the checks of logged-in requests do not
apply; :meth:`KernelSideHandler.prepare` lets nothing pass but a valid capability.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
from collections.abc import Callable
from dataclasses import replace
from http import HTTPStatus
from typing import Any

from gpupool.client.errors import GpupoolError
from gpupool.client.granted_size import describe
from gpupool.client.refused_memory import RefusedMemory, larger_share
from gpupool.client.session.state import HOLDING, Session
from gpupool.client.types import QueuePlace
from gpupool.request.forms import of_body
from jupyter_server.auth.decorator import allow_unauthenticated
from tornado import web
from tornado.iostream import StreamClosedError

from jupyter_gpupool.server.handlers import views
from jupyter_gpupool.server.handlers.asked import (
    AutoBody,
    BadRequestError,
    ReportBody,
    keep_seconds,
    share_of,
    text_of,
)
from jupyter_gpupool.server.handlers.base import GpupoolHandler, RefusalError, reason_of
from jupyter_gpupool.server.rest.kernel_side import (
    AttachedLine,
    AttachLine,
    OwnKernel,
    QueuedLine,
    RefusedLine,
    WaitingLine,
)
from jupyter_gpupool.server.rest.pool import Choices
from jupyter_gpupool.server.session.joined import said_of
from jupyter_gpupool.server.session.session import KernelSession
from jupyter_gpupool.server.session.shown import Lacking

_SCHEME = "gpupool-kernel"
#: The kernel takes a silent server for gone; so long waits in the queue are interrupted by a sign of life, seconds.
_SIGN_OF_LIFE_SECONDS = 20.0


class KernelSideHandler(GpupoolHandler):
    """Base of the kernel's routes. ``session`` is the kernel that asks."""

    # A kernel's own requests say nothing about whether its user is there.
    _track_activity = False
    session: KernelSession

    async def prepare(self) -> None:  # type: ignore[override]
        await super().prepare()
        scheme, _, credentials = self.request.headers.get("Authorization", "").partition(" ")
        kernel_id, _, capability = credentials.strip().partition(":")
        session = None
        if scheme == _SCHEME:
            session = (await self.extension.sessions()).authenticate(kernel_id, capability)
        if session is None:
            raise web.HTTPError(HTTPStatus.FORBIDDEN, "The kernel's capability is not valid (any more).")
        self.session = session

    def check_xsrf_cookie(self) -> None:
        """Not needed: a page cannot know the capability, and no cookie gives access."""

    async def view(self) -> OwnKernel:
        record = self.session.record
        path = (await self.notebook_paths()).get(self.session.kernel_id, "")
        kernel = views.kernel_view(self.extension, self.session, name="kernel", path=path)
        description = describe(record.lease) if record.lease is not None else None
        return {**kernel, "description": description, "kept_seconds": math.ceil(self.session.kept_seconds)}

    async def learn_label(self) -> None:
        """Has the session say to the pool what people call this kernel now."""
        paths = await self.notebook_paths()
        self.session.label = views.label_of(paths.get(self.session.kernel_id, ""), "kernel")


class AttachHandler(KernelSideHandler):
    """``POST self/attach``: streams JSON lines, ``queued`` … and at last ``attached`` or ``refused``."""

    _attach: asyncio.Task[Session] | None = None
    _outlives_cell = False

    @allow_unauthenticated
    async def post(self) -> None:
        body = self.asked()
        scope = text_of(body, "scope")
        # Code in a thread (`with gpupool.attach(0.2):`) may run longer than the cell that started it.
        self._outlives_cell = body.get("outlives_cell") is True
        hold = body.get("hold") is True
        if scope is None and not hold:
            raise BadRequestError("A request names the cell that it is for (scope), or asks to hold.")
        asked = self.request_of(body)
        await self.learn_label()
        self.set_header("Content-Type", "application/x-ndjson")
        places: asyncio.Queue[QueuePlace] = asyncio.Queue()
        named, former = of_body(body), self.session.record.lease
        # A share that somebody asked for before is not this request's to give back, granted or not.
        first = former is None and self.session.record.asking is None
        attach = self._attach = asyncio.ensure_future(
            self.session.attach(
                asked,
                by="attach" if hold or scope is None else "magic",
                scope=scope,
                hold=hold,
                on_queued=places.put_nowait,
            )
        )
        try:
            await self._tell(attach, places, scope, lambda record: said_of(named, record, former, hold=hold))
        except StreamClosedError:
            # The cell was interrupted, or the kernel died, while it waited.
            await self._withdraw(attach, scope, holds=hold and first)

    def on_connection_close(self) -> None:
        super().on_connection_close()
        if self._attach is not None:
            self._attach.cancel()

    async def _tell(
        self,
        attach: asyncio.Task[Session],
        places: asyncio.Queue[QueuePlace],
        scope: str | None,
        said: Callable[[Session], str | None],
    ) -> None:
        while not attach.done():
            place = asyncio.ensure_future(places.get())
            await asyncio.wait(
                [attach, place], timeout=_SIGN_OF_LIFE_SECONDS, return_when=asyncio.FIRST_COMPLETED
            )
            if place.done():
                queued: QueuedLine = {
                    "event": "queued",
                    **views.place_view(place.result(), self.extension.reader),
                }
                await self._line(queued)
                continue
            place.cancel()
            if not attach.done():
                await self._line(WaitingLine(event="waiting"))
        try:
            record = attach.result()
        except asyncio.CancelledError:
            raise StreamClosedError from None
        except Exception as error:
            reason, message = reason_of(error)
            if reason is None:
                self.log.exception("attach of kernel %s failed", self.session.kernel_id, exc_info=error)
                reason, message = "internal", "The Jupyter server failed to attach a GPU; see its log."
            await self._line(RefusedLine(event="refused", reason=reason, message=message))
            return
        if scope is not None and not self._outlives_cell:
            self.extension.watch.scope_entered(self.session.kernel_id, scope)
        software = bool(record.lease and record.lease.software)
        view = await self.view()
        # A kernel whose session file cannot be written does not find the share, and only this says why.
        sentence = self.session.files.problem or said(record)
        attached: AttachedLine = {"event": "attached", **view, "software": software, "said": sentence}
        await self._line(attached)

    async def _line(self, value: AttachLine) -> None:
        self.write(json.dumps(value) + "\n")
        await self.flush()

    async def _withdraw(self, attach: asyncio.Task[Any], scope: str | None, *, holds: bool) -> None:
        """Nobody reads the answer: what was granted meanwhile goes back."""
        attach.cancel()
        granted = False
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await attach
            granted = True
        if scope is not None:
            await self.session.leave_scope(scope)
        if granted and holds:
            await self.session.detach("release")


class ReleaseHandler(KernelSideHandler):
    """``POST self/release``: a ``%%gpu`` cell ended."""

    @allow_unauthenticated
    async def post(self) -> None:
        scope = text_of(self.asked(), "scope")
        if scope is None:
            raise BadRequestError("The request names no cell (scope).")
        await self.session.leave_scope(scope)
        self.answer(await self.view())


class DetachHandler(KernelSideHandler):
    """``POST self/detach``: drops the hold of this kernel."""

    @allow_unauthenticated
    async def post(self) -> None:
        record = self.session.record
        if record.state not in HOLDING and record.asking is None:
            raise RefusalError("not-attached", "No GPU is attached to this kernel.")
        await self.session.detach("release")
        self.answer(await self.view())


class ResetHandler(KernelSideHandler):
    """``POST self/reset``: ends this kernel's GPU session; answers when the pool has closed it."""

    @allow_unauthenticated
    async def post(self) -> None:
        await self.session.reset()
        self.answer(await self.view())


class ReportHandler(KernelSideHandler):
    """``POST self/report {failed_cell?, out_of_memory?}``: what only the kernel knows of its session.

    ``failed_cell``: the cell whose error ended the session, such as ``[3]``. ``out_of_memory {asked, share, used,
    largest_free, needed, device}``: the last refused allocation, in bytes; the answer's ``usage.out_of_memory`` has a
    ``larger_share`` with room for it. What is left out stays as it is, null takes it back.
    """

    @allow_unauthenticated
    async def post(self) -> None:
        shown = self.session.shown
        told = shown.out_of_memory.refused if shown.out_of_memory is not None else None
        report = ReportBody.read(self.asked(), shown.failed_cell, told)
        if report != ReportBody(shown.failed_cell, told):
            lacking = await self._lacking(report.refused) if report.refused is not None else None
            self.session.report(failed_cell=report.failed_cell, out_of_memory=lacking)
        self.answer(await self.view())

    async def _lacking(self, refused: RefusedMemory) -> Lacking:
        lease = self.session.record.lease
        if lease is None:
            return Lacking(refused)
        pool = (await self.extension.sessions()).pool
        try:
            devices = await asyncio.wait_for(pool.devices(), views.POOL_SECONDS)
        except (GpupoolError, TimeoutError):
            return Lacking(refused)  # the numbers are told all the same
        return Lacking(refused, larger_share(refused, lease.shares, devices))


class ResizeHandler(KernelSideHandler):
    """``POST self/resize``: another share on the same device."""

    @allow_unauthenticated
    async def post(self) -> None:
        body = self.asked()
        if "share" not in body:
            raise BadRequestError("The new share is missing.", "bad-share")
        await self.session.resize(share_of(body))
        self.answer(await self.view())


class KeepHandler(KernelSideHandler):
    """``POST self/keep``: no idle release for so many minutes."""

    @allow_unauthenticated
    async def post(self) -> None:
        seconds = keep_seconds(self.asked(), self.extension.idle_limits)
        if self.session.record.state not in HOLDING:
            raise RefusalError("not-attached", "No GPU is attached to this kernel.")
        await self.session.keep(seconds)
        self.answer(await self.view())


class AutoHandler(KernelSideHandler):
    """``POST self/auto``: the kernel's calls attach by themselves from now on, or do not any more.

    They wish for a GPU by a pipe beside the session file, and wait in C: whatever locks the program holds meanwhile,
    nothing of it has to run.
    """

    @allow_unauthenticated
    async def post(self) -> None:
        body = self.asked()
        session = self.session
        mode = AutoBody.read(body).mode
        asked = self.request_of(body)

        async def attach() -> None:
            await self.learn_label()
            last = session.record.request
            as_before = mode is not None and mode.share is None and last is not None
            # Without a share of its own the mode takes what the kernel had last: its memory fits into that.
            same = (
                replace(asked, share=last.share, count=last.count)
                if as_before and last is not None
                else asked
            )
            await session.attach(same, by="auto", hold=True)

        def explain(error: Exception) -> str:
            reason, message = reason_of(error)
            if reason is None:
                self.log.exception("auto attach of kernel %s failed", session.kernel_id, exc_info=error)
            return message or "The Jupyter server failed to attach a GPU; see its log."

        session.files.hear(attach if mode is not None else None, session.publish, explain)
        session.shown.auto = mode
        session.publish()
        self.answer(await self.view())


class StatusHandler(KernelSideHandler):
    """``GET self/status``: this kernel's session, as the front end sees it."""

    @allow_unauthenticated
    async def get(self) -> None:
        self.answer(await self.view())


class PoolHandler(KernelSideHandler):
    """``GET self/pool``: the pool, as the front end sees it."""

    @allow_unauthenticated
    async def get(self) -> None:
        self.answer(await views.pool_view(self.extension))


class ChoicesHandler(KernelSideHandler):
    """``GET self/choices``: what a request can name in this pool, for completion."""

    @allow_unauthenticated
    async def get(self) -> None:
        # Imported here: it brings the messages of gRPC, which a server without kernels needs none of.
        from gpupool.client.choices import choices

        pool = (await self.extension.sessions()).pool
        found = await choices(pool, await self.extension.pool_user())
        self.answer(
            Choices(
                projects=found["projects"],
                names=found["names"],
                nodes=found["nodes"],
                labels=found["labels"],
                node_pools=found["node_pools"],
            )
        )

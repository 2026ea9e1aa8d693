"""The API of the JupyterLab front end and of the widget: authenticated and authorized."""

from __future__ import annotations

import asyncio
import math
from http import HTTPStatus
from typing import Any

from gpupool.client.errors import GpupoolError
from gpupool.client.session.state import HOLDING
from jupyter_server.auth.decorator import authorized
from tornado import web

from jupyter_gpupool.server.handlers import views
from jupyter_gpupool.server.handlers.asked import BadRequestError, keep_seconds, share_of
from jupyter_gpupool.server.handlers.base import GpupoolHandler, RefusalError
from jupyter_gpupool.server.rest.kernels import Kernel, Kernels
from jupyter_gpupool.server.session.session import AttachRefusedError, KernelSession
from jupyter_gpupool.server.session.sessions import Sessions
from jupyter_gpupool.server.session.usage_history import sample_time

#: How long Attach waits for the first answer before it replies: most grants are immediate.
_FIRST_ANSWER_SECONDS = 0.5
_ENDED = "This kernel has ended."
_NO_ENVIRONMENT = (
    "This kernel was started without GPU support; restart it, and if that does not help see the server's log."
)


class FrontEndHandler(GpupoolHandler):
    """What the handlers below share: kernels by id, with the name that people know."""

    async def session_of(self, kernel_id: str) -> KernelSession:
        if kernel_id not in self.kernel_manager:
            raise RefusalError("unknown-kernel", f"There is no kernel {kernel_id}.")
        session = (await self.extension.sessions()).get(kernel_id)
        if session is None:
            raise RefusalError("no-environment", await self.why_none(kernel_id))
        return session

    async def why_none(self, kernel_id: str) -> str:
        """Why a kernel has no session that could be attached."""
        return _ENDED if (await self.extension.sessions()).has_ended(kernel_id) else _NO_ENVIRONMENT

    async def view(self, session: KernelSession) -> Kernel:
        path = (await self.notebook_paths()).get(session.kernel_id, "")
        name = self.kernel_manager.get_kernel(session.kernel_id).kernel_name
        return views.kernel_view(self.extension, session, name=name, path=path)


class PollHandler(FrontEndHandler):
    """Reads that pages repeat: they must not count as activity of the user."""

    _track_activity = False

    def moment(self, name: str) -> float | None:
        """A query argument that is a time, Unix seconds; below 0 it is counted from now. None: not given."""
        raw = self.get_query_argument(name, None)
        if raw is None:
            return None
        try:
            value = float(raw)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise BadRequestError(f"{name} must be a Unix time in seconds, {raw[:40]!r} is not.")
        return sample_time() + value if value < 0 else value


class PoolHandler(PollHandler):
    """``GET api/pool``: devices, shares, queue."""

    @web.authenticated
    @authorized
    async def get(self) -> None:
        self.answer(await views.pool_view(self.extension))


class KernelsHandler(PollHandler):
    """``GET api/kernels``: every kernel of this server; ``samples_since=T`` adds what each has used since then."""

    @web.authenticated
    @authorized
    async def get(self) -> None:
        since = self.moment("samples_since")
        names = await self.notebook_paths()
        sessions: Sessions | None = None
        problem: str | None = None
        try:
            sessions = await self.extension.sessions()
        except GpupoolError as error:
            problem = str(error)
        kernels: list[Kernel] = []
        for kernel_id in self.kernel_manager.list_kernel_ids():
            name = self.kernel_manager.get_kernel(kernel_id).kernel_name
            path = names.get(kernel_id, "")
            session = sessions.get(kernel_id) if sessions is not None else None
            if session is None:
                message = problem if problem is not None else await self.why_none(kernel_id)
                kernels.append(
                    views.plain_kernel_view(self.extension, kernel_id, name=name, path=path, message=message)
                )
            else:
                view = views.kernel_view(self.extension, session, name=name, path=path)
                # A notebook may have been renamed since it asked for its GPU.
                session.label = view["label"]
                if since is not None:
                    view["samples"] = views.history_view(session, since)
                kernels.append(view)
        self.answer(Kernels(kernels=kernels))


class AttachHandler(FrontEndHandler):
    """``POST api/kernels/{id}/attach``: holds a share for the kernel until it is detached."""

    @web.authenticated
    @authorized
    async def post(self, kernel_id: str) -> None:
        asked = self.request_of(self.asked())
        session = await self.session_of(kernel_id)
        if session.record.waiting:
            raise RefusalError("pending", "This kernel already waits for a GPU.")
        session.label = (await self.view(session))["label"]
        attach = asyncio.ensure_future(session.attach(asked, by="sidebar", hold=True))
        await self.answer_attach(session, attach)

    async def answer_attach(self, session: KernelSession, attach: asyncio.Future[Any]) -> None:
        """Answers when the kernel is attached or queued; what refuses it at once is an error."""
        # The request goes on after this answer; a refusal is then read from the kernel's state.
        attach.add_done_callback(self._attach_ended)
        done, _ = await asyncio.wait([attach], timeout=_FIRST_ANSWER_SECONDS)
        if done:
            attach.result()
        self.answer(await self.view(session), status=HTTPStatus.ACCEPTED)

    def _attach_ended(self, attach: asyncio.Future[Any]) -> None:
        error = None if attach.cancelled() else attach.exception()
        if error is not None and not isinstance(error, AttachRefusedError):
            self.log.error("the attach of a kernel failed", exc_info=error)


class DetachHandler(FrontEndHandler):
    """``POST api/kernels/{id}/detach``; ``{"force": true}`` takes the GPU from a running cell too."""

    @web.authenticated
    @authorized
    async def post(self, kernel_id: str) -> None:
        body = self.asked()
        session = await self.session_of(kernel_id)
        if session.record.state not in HOLDING and session.record.asking is None:
            raise RefusalError("not-attached", "No GPU is attached to this kernel.")
        force = body.get("force") is True
        if session.record.state in HOLDING and not (force or session.record.scopes):
            # Code below %%gpu keeps its share; nothing says so of a cell that uses what was attached by hand.
            self._refuse_while_it_runs(kernel_id)
        await session.detach("release", force=force)
        self.answer(await self.view(session))

    def _refuse_while_it_runs(self, kernel_id: str) -> None:
        if self.extension.busy.busy(kernel_id):
            raise RefusalError(
                "running",
                "A cell of this kernel is running. If it uses the GPU, its next call there will fail.",
            )


class ResetHandler(FrontEndHandler):
    """``POST api/kernels/{id}/reset``: ends the kernel's GPU session with all that is in its memory."""

    @web.authenticated
    @authorized
    async def post(self, kernel_id: str) -> None:
        session = await self.session_of(kernel_id)
        await session.reset()
        self.answer(await self.view(session))


class KeepHandler(FrontEndHandler):
    """``POST api/kernels/{id}/keep``: no idle release for so many minutes."""

    @web.authenticated
    @authorized
    async def post(self, kernel_id: str) -> None:
        seconds = keep_seconds(self.asked(), self.extension.idle_limits)
        session = await self.session_of(kernel_id)
        if session.record.state not in HOLDING:
            raise RefusalError("not-attached", "No GPU is attached to this kernel.")
        await session.keep(seconds)
        self.answer(await self.view(session))


class ResizeHandler(FrontEndHandler):
    """``POST api/kernels/{id}/resize``: another share on the same device."""

    @web.authenticated
    @authorized
    async def post(self, kernel_id: str) -> None:
        body = self.asked()
        if "share" not in body:
            raise BadRequestError("The new share is missing.", "bad-share")
        share = share_of(body)
        session = await self.session_of(kernel_id)
        await session.resize(share)
        self.answer(await self.view(session))


class QueueHandler(FrontEndHandler):
    """``DELETE api/kernels/{id}/queue``: leaves the queue."""

    @web.authenticated
    @authorized
    async def delete(self, kernel_id: str) -> None:
        session = await self.session_of(kernel_id)
        if not session.record.waiting:
            raise RefusalError("not-queued", "This kernel does not wait for a GPU.")
        await session.cancel_request()
        self.answer(await self.view(session))


class TakeHandler(FrontEndHandler):
    """``POST api/kernels/{id}/take``: something else in the place of what the kernel, or its cell, waits for."""

    @web.authenticated
    @authorized
    async def post(self, kernel_id: str) -> None:
        asked = self.request_of(self.asked())
        session = await self.session_of(kernel_id)
        if not views.may_take(session.record):
            raise RefusalError("not-queued", "This kernel does not wait for a GPU.")
        await session.take(asked)
        self.answer(await self.view(session), status=HTTPStatus.ACCEPTED)


class UsageHandler(PollHandler):
    """``GET api/kernels/{id}/usage?since=T``: samples of one second after Unix time T."""

    @web.authenticated
    @authorized
    async def get(self, kernel_id: str) -> None:
        since = self.moment("since")
        session = await self.session_of(kernel_id)
        self.answer(views.samples_view(self.extension, session, since or 0.0))

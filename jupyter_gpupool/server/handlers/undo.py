"""Taking back the release of a kernel's GPU."""

from __future__ import annotations

import asyncio
import time

from gpupool.durations import duration_text
from jupyter_server.auth.decorator import authorized
from tornado import web

from jupyter_gpupool.server.handlers.base import RefusalError
from jupyter_gpupool.server.handlers.front_end import AttachHandler
from jupyter_gpupool.server.session.released import UNDO_SECONDS, undo_seconds


class UndoHandler(AttachHandler):
    """``POST api/kernels/{id}/undo``: attaches what was released last, with the same terms and its memory."""

    @web.authenticated
    @authorized
    async def post(self, kernel_id: str) -> None:
        session = await self.session_of(kernel_id)
        if session.record.waiting:
            raise RefusalError("pending", "This kernel already waits for a GPU.")
        release = session.released
        if release is None:
            raise RefusalError("nothing-to-undo", "No GPU of this kernel was released since its last attach.")
        if not undo_seconds(release, session.record, time.time()):
            raise RefusalError(
                "nothing-to-undo",
                f"The release of {duration_text(time.time() - release.at)} ago cannot be undone: that is offered for "
                f"{duration_text(UNDO_SECONDS)}, while what was in GPU memory is kept; press Attach to ask anew.",
            )
        session.label = (await self.view(session))["label"]
        wait = self.extension.default_wait_seconds
        await self.answer_attach(
            session,
            asyncio.ensure_future(session.attach_again(release, wait_seconds=None if wait < 0 else wait)),
        )

"""``POST api/pool/start``: a pool on this machine, where none is configured."""

from __future__ import annotations

from jupyter_server.auth.decorator import authorized
from tornado import web

from jupyter_gpupool.server.handlers import views
from jupyter_gpupool.server.handlers.base import GpupoolHandler


class StartPoolHandler(GpupoolHandler):
    """Answers with the pool when it lends its GPUs."""

    @web.authenticated
    @authorized
    async def post(self) -> None:
        await self.extension.start_pool()
        self.answer(await views.pool_view(self.extension))

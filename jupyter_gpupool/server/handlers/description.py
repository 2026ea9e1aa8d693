"""What can be asked here, for programs."""

from __future__ import annotations

from jupyter_server.auth.decorator import authorized
from tornado import web

from jupyter_gpupool.server.handlers.base import GpupoolHandler
from jupyter_gpupool.server.rest.description import description


class DescriptionHandler(GpupoolHandler):
    """``GET api/openapi.json``: all routes, in the words of OpenAPI 3.1."""

    _track_activity = False

    @web.authenticated
    @authorized
    async def get(self) -> None:
        self.finish(description())

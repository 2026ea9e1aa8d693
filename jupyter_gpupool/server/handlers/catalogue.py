"""The words of the pool's sentences, which the page renders itself."""

from __future__ import annotations

from gpupool.sentences.render import CATALOGUE
from jupyter_server.auth.decorator import authorized
from tornado import web

from jupyter_gpupool.server.handlers.front_end import PollHandler


class CatalogueHandler(PollHandler):
    """``GET api/catalogue``: templates by the id of the sentence."""

    @web.authenticated
    @authorized
    async def get(self) -> None:
        # A browser keeps it, and asks with its ETag whether it is still the one.
        self.set_header("Cache-Control", "private, no-cache")
        self.finish(CATALOGUE.read_bytes())

"""What holds for every route of the extension."""

from __future__ import annotations

from typing import Any

import pytest
from tornado import web

from jupyter_gpupool.server.handlers import routes


@pytest.mark.parametrize(("pattern", "handler"), routes())
def test_a_read_is_no_activity_of_the_user(pattern: str, handler: type[Any]) -> None:
    """Pages repeat every read: one that counts keeps a server alive that a Hub should cull."""
    if handler.get is not web.RequestHandler.get:
        assert handler._track_activity is False, pattern

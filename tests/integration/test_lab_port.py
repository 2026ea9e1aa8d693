"""`gpupool lab --port`: another program has the port, or takes it before JupyterLab does."""

from __future__ import annotations

import json
import socket
from urllib.parse import urlsplit

from tests.support.stack import Stack


def test_a_port_that_is_taken_is_not_fatal() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = other.getsockname()[1]
        with Stack("--port", str(taken)) as stack:
            port = urlsplit(stack.url).port
            assert port is not None
            assert port != taken
            assert json.loads((stack.home / "lab.json").read_text())["port"] == port
            # It is ours that answers.
            assert stack.api("GET", "api/status")["kernels"] == 0

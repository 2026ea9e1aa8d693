"""A JupyterHub's `GET /hub/api/user` over real HTTP, whose every answer a test chooses."""

from __future__ import annotations

import http.server
import json
import threading
import time
from types import TracebackType
from typing import Any, Self


class ScriptedHub:
    """`users`: token → what the Hub says of its owner. `asked`: the tokens that it was asked about, in order."""

    def __init__(self) -> None:
        self.users: dict[str, dict[str, Any]] = {}
        self.asked: list[str] = []
        self.delay = 0.0
        #: Answers this in place of all else: an HTTP status and a body.
        self.instead: tuple[int, bytes] | None = None
        self._server: http.server.ThreadingHTTPServer | None = None
        self.port = 0

    @property
    def api_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hub/api"

    def user(self, token: str, name: str, *groups: str, **more: Any) -> None:
        """Lets `token` be one of that user's server."""
        scopes = [f"access:servers!server={name}/", f"users:activity!user={name}"]
        self.users[token] = {
            "kind": "user",
            "name": name,
            "groups": list(groups),
            "admin": False,
            "scopes": scopes,
            **more,
        }

    def start(self) -> None:
        """Listens; after `stop` on the same port again."""
        hub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                token = self.headers.get("Authorization", "").removeprefix("token ")
                hub.asked.append(token)
                time.sleep(hub.delay)
                status, body = hub.instead or (403, b'{"status": 403, "message": "Forbidden"}')
                if hub.instead is None and token in hub.users and self.path == "/hub/api/user":
                    status, body = 200, json.dumps(hub.users[token]).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                return

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        """Nobody listens any more."""
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

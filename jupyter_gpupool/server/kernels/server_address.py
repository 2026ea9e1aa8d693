"""Where a kernel on this machine reaches the server that started it."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote


def local_server_url(server: Any) -> str:
    """The server's URL for its own kernels, with base URL, ends with ``/``.

    ``server`` is a ``ServerApp``. Wildcard addresses become the loopback address: the kernel
    runs beside the server, and a public name may lead through a proxy that wants a login.
    """
    base = str(server.base_url).strip("/")
    path = f"/{base}/" if base else "/"
    if server.sock:
        return f"http+unix://{quote(str(server.sock), safe='')}{path}"
    scheme = "https" if server.certfile else "http"
    host = str(server.ip)
    if host in ("", "*", "0.0.0.0", "localhost"):  # noqa: S104 (compared, not bound)
        host = "127.0.0.1"
    elif host in ("::", "[::]"):
        host = "::1"
    if ":" in host:
        host = f"[{host.strip('[]')}]"
    return f"{scheme}://{host}:{int(server.port)}{path}"

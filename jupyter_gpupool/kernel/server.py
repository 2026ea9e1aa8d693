"""A kernel's calls to the server that started it, with the capability of its launch.

Only the standard library: a kernel environment need not have an HTTP client, and proxies of
the environment are for the web, not for the way to the own server.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import ssl
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from gpupool.client.keeper import GivenUp

from jupyter_gpupool.kernel.errors import GpuError

#: An ordinary call that takes longer has failed, seconds.
CALL_SECONDS: Final = 20.0
#: Silence on the stream of an attach after which the server counts as gone; it gives a sign of life each 20 s.
STREAM_SECONDS: Final = 90.0
#: Longest line of a stream; the longest real one is a fraction of this.
MOST_BYTES: Final = 1024 * 1024
#: Longest answer: a pool with thousands of devices and requests is listed in some tens of MiB.
MOST_ANSWER_BYTES: Final = 256 * MOST_BYTES

NO_SERVER: Final = "This kernel was not started by a Jupyter server with jupyter-gpupool."

GONE: Final = (
    "The Jupyter server that started this kernel has ended, or does not know the kernel any more, so there is "
    "nobody to ask for a GPU. Restart the kernel from JupyterLab."
)


class _UnixConnection(http.client.HTTPConnection):
    """HTTP to a server that listens on a Unix socket."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Server:
    """The kernel-side API of the server extension.

    Methods raise :class:`GpuError` with one sentence when the server refuses or cannot be reached.

    ``capability_file``: holds this launch's capability, which the server replaces every few minutes.
    """

    def __init__(
        self, url: str, kernel_id: str, capability_file: Path, certificate: str | None = None
    ) -> None:
        self._url = urlsplit(url)
        self._certificate = certificate
        self._kernel_id = kernel_id
        self._capability_file = capability_file

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Server:
        """The server named by the environment that the kernel was started with."""
        found = os.environ if environment is None else environment
        url = found.get("GPUPOOL_SERVER_URL")
        kernel_id = found.get("GPUPOOL_KERNEL_ID")
        capability_file = found.get("GPUPOOL_CAPABILITY_FILE")
        if not (url and kernel_id and capability_file):
            raise GpuError(NO_SERVER, "no-server")
        return cls(url, kernel_id, Path(capability_file), found.get("GPUPOOL_SERVER_CERTIFICATE"))

    def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        seconds: float = CALL_SECONDS,
    ) -> dict[str, Any]:
        """One request, one JSON object; without an answer it fails after ``seconds``."""
        connection = self._connection(seconds)
        try:
            response = self._send(connection, method, path, body)
            try:
                raw = response.read(MOST_ANSWER_BYTES)
            except (OSError, http.client.HTTPException) as error:
                raise _unreachable(error) from None
            return _checked(response.status, raw)
        finally:
            connection.close()

    def stream(
        self, path: str, body: Mapping[str, Any], patience: float, given_up: GivenUp | None = None
    ) -> Generator[dict[str, Any]]:
        """One request, JSON lines as they come.

        Closing the iterator ends the request, and so does ``given_up``, from another thread.
        """
        connection = self._connection(patience)
        try:
            response = self._send(connection, "POST", path, body)
            if given_up is not None:
                given_up.when(lambda: _hang_up(connection))
            if response.status != http.client.OK:
                _checked(response.status, response.read(MOST_BYTES))
            while True:
                try:
                    line = response.readline(MOST_BYTES)
                except (OSError, http.client.HTTPException) as error:
                    raise _unreachable(error) from None
                if not line:
                    return
                yield _checked(http.client.OK, line)
        finally:
            connection.close()

    def _connection(self, timeout: float) -> http.client.HTTPConnection:
        host, port = self._url.hostname or "", self._url.port
        if self._url.scheme == "http+unix":
            return _UnixConnection(unquote(self._url.netloc), timeout)
        if self._url.scheme == "https":
            context = ssl.create_default_context(cafile=self._certificate)
            # The certificate bears the server's public name; this is the loopback way to it.
            context.check_hostname = False
            # That certificate is trusted by itself, whoever issued it.
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
            return http.client.HTTPSConnection(host, port, timeout=timeout, context=context)
        return http.client.HTTPConnection(host, port, timeout=timeout)

    def _send(
        self, connection: http.client.HTTPConnection, method: str, path: str, body: Mapping[str, Any] | None
    ) -> http.client.HTTPResponse:
        target = f"{self._url.path.rstrip('/')}/gpupool/{path}"
        payload = None if body is None and method == "GET" else json.dumps(body or {})
        try:
            connection.request(method, target, body=payload, headers=self._headers())
            return connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            raise _unreachable(error) from None

    def _headers(self) -> dict[str, str]:
        try:
            capability = self._capability_file.read_text("ascii").strip()
        except FileNotFoundError:
            # It goes with the launch: a server that ended, or one that took this kernel for gone, removed it.
            raise GpuError(GONE, "server-down") from None
        except (OSError, ValueError) as error:
            # The server may be there: this process has no descriptors left, say. A scope stays owed to it.
            why = getattr(error, "strerror", None) or "it is no text"
            raise GpuError(
                f"The kernel cannot ask its Jupyter server for a GPU: {self._capability_file} cannot be read ({why}).",
                "server-down",
            ) from None
        return {
            "Authorization": f"gpupool-kernel {self._kernel_id}:{capability}",
            "Content-Type": "application/json",
        }


def _hang_up(connection: http.client.HTTPConnection) -> None:
    """Ends a read of another thread; closing the socket would not."""
    with contextlib.suppress(OSError):
        if connection.sock is not None:
            connection.sock.shutdown(socket.SHUT_RDWR)


def _unreachable(error: Exception) -> GpuError:
    if isinstance(error, TimeoutError):
        detail = "no answer in time"
    else:
        detail = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return GpuError(f"The Jupyter server of this kernel does not answer ({detail}).", "server-down")


def _checked(status: int, raw: bytes) -> dict[str, Any]:
    try:
        value = json.loads(raw)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise GpuError(f"The Jupyter server answered something unexpected (HTTP {status}).", "server-error")
    if status >= http.client.BAD_REQUEST:
        message = value.get("message") or f"The Jupyter server answered HTTP {status}."
        if status == http.client.FORBIDDEN:
            message = f"{message} Restart the kernel: it was started by another server, or before a restart."
        raise GpuError(str(message), str(value.get("reason") or "server-error"))
    return value

"""Where the pool server listens, and the errors that keep it from starting."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import grpc.aio

from gpupool.client.endpoint import private_directory
from gpupool.client.errors import DirectoryUnusableError
from gpupool.pool.access.tls_files import TlsFiles, TlsFilesUnusableError

#: sun_path has 108 bytes with its final zero.
_MAX_SOCKET_PATH: Final = 107


class ServeError(RuntimeError):
    """The server cannot start; `str()` is one sentence for people."""


class AddressError(ServeError):
    """What was given is not host:port."""


def host_and_port(listen: str) -> tuple[str, int]:
    """The parts of `host:port`.

    Raises:
        AddressError: it is something else, or no such port can be.
    """
    host, _, port = listen.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or len(port) > 5 or int(port) > 65535:
        raise AddressError(f"{listen!r} is not host:port, with a port of at most 65535")
    return host, int(port)


@contextlib.contextmanager
def directory_errors() -> Iterator[None]:
    """Says why a directory keeps the server from starting."""
    try:
        yield
    except DirectoryUnusableError as error:
        raise ServeError(str(error)) from error


def bind_socket(server: grpc.aio.Server, path: Path) -> Path:
    """Lets the server listen at a Unix socket, whose directory is made private.

    Raises:
        ServeError: it cannot.
    """
    path = path.absolute()
    if len(os.fsencode(path)) > _MAX_SOCKET_PATH:
        raise ServeError(
            f"the socket path {path} is longer than {_MAX_SOCKET_PATH} bytes, which Unix sockets cannot have; "
            "set GPUPOOL_HOME to a shorter directory"
        )
    with directory_errors():
        private_directory(path.parent)
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise ServeError(f"{path} exists and is not a socket; move it away")
        # The lock is ours, so this is what a server that was killed has left.
        path.unlink()
    before = os.umask(0o077)
    try:
        server.add_insecure_port(f"unix:{path}")
    except RuntimeError as error:
        raise ServeError(f"the socket {path} cannot be bound: {error}") from error
    finally:
        os.umask(before)
    return path


def bind_tcp(server: grpc.aio.Server, listen: str, tls: TlsFiles | None) -> int:
    """Lets the server listen at `host:port`; the port that it got.

    Raises:
        ServeError: it cannot.
    """
    host_and_port(listen)
    try:
        credentials = None if tls is None else tls.credentials()
    except TlsFilesUnusableError as error:
        raise ServeError(str(error)) from None
    try:
        bound = (
            server.add_secure_port(listen, credentials) if credentials else server.add_insecure_port(listen)
        )
    except RuntimeError as error:
        raise ServeError(f"{listen} cannot be bound: {error}") from error
    if bound == 0:
        raise ServeError(f"{listen} cannot be bound")
    return bound

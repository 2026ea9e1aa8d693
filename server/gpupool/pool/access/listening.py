"""Where the pool server listens, and the errors that keep it from starting."""

from __future__ import annotations


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

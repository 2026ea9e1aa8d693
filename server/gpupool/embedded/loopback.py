"""Ports of 127.0.0.1."""

from __future__ import annotations

import socket
import urllib.error
import urllib.request


def free_port(preferred: int) -> int:
    """`preferred` when nobody listens there, else one that the system picks. Raises OSError: there is none."""
    for port in (preferred, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                if port == 0:
                    raise
                continue
            return int(probe.getsockname()[1])
    raise AssertionError("unreachable")


def answers(url: str) -> bool:
    """Whether anything with status 200 is there within two seconds."""
    try:
        with urllib.request.urlopen(url, timeout=2) as reply:  # noqa: S310 - our own loopback address
            return bool(reply.status == 200)
    except (OSError, urllib.error.URLError):
        return False

"""Ports of 127.0.0.1."""

from __future__ import annotations

import socket
import urllib.error
import urllib.request


def free_port() -> int:
    """A port that nobody listens on now. Raises OSError: there is none."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def answers(url: str) -> bool:
    """Whether anything with status 200 is there within two seconds."""
    try:
        with urllib.request.urlopen(url, timeout=2) as reply:  # noqa: S310 - our own loopback address
            return bool(reply.status == 200)
    except (OSError, urllib.error.URLError):
        return False

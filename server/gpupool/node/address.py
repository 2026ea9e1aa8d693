"""Whether clients of the pool can reach the address that a node would tell them."""

from __future__ import annotations

import ipaddress
import re

from gpupool.client.endpoint import resolve_endpoint

DEFAULT_HOST = "127.0.0.1"
# The names of places that gRPC takes besides host:port.
_SCHEME = re.compile(r"(tls:)?(dns:(//[^/]*/)?|ipv4:|ipv6:)?", re.IGNORECASE)


def pool_host(endpoint: str | None) -> str | None:
    """The host of a pool on TCP; None: it is on this machine, by a Unix socket or a loopback address."""
    place = resolve_endpoint(endpoint)
    if place.startswith(("unix:", "unix-abstract:")):
        return None
    host, _, _ = _SCHEME.sub("", place, count=1).rpartition(":")
    return None if reaches_only_here(host) else host


def reaches_only_here(host: str) -> bool:
    """Whether ``host``, dialled on another machine, is that machine itself, or nothing at all."""
    bare = host.strip("[]")
    if bare.rstrip(".").lower() in ("", "localhost"):
        return True
    try:
        address = ipaddress.ip_address(bare)
    except ValueError:
        # Not looked up: what a name means here need not be what it means to clients.
        return False
    return address.is_loopback or address.is_unspecified

"""Whether clients of the pool can reach the address that a node would tell them."""

from __future__ import annotations

import ipaddress
import re

from gpupool.client.endpoint import parse_endpoints, resolve_endpoint

DEFAULT_HOST = "127.0.0.1"
# The names of places that gRPC takes besides host:port.
_SCHEME = re.compile(r"(tls:)?(dns:(//[^/]*/)?|ipv4:|ipv6:)?", re.IGNORECASE)


def pool_host(endpoint: str | None) -> str | None:
    """The first host of a pool's on TCP that is another machine; None: all servers are on this one.

    Raises:
        EndpointError: the endpoint is none.
    """
    hosts = (
        _SCHEME.sub("", place, count=1).rpartition(":")[0]
        for place in parse_endpoints(resolve_endpoint(endpoint))
        if not place.startswith(("unix:", "unix-abstract:"))
    )
    return next((host for host in hosts if not reaches_only_here(host)), None)


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

"""How many tokens that nobody has shown before become questions to the Hub. Pure: time is passed in.

Anybody can make tokens up, so each address has an allowance of its own before the one of all: whoever uses theirs up is
refused, and nobody else. Addresses that are often shared (a Hub on one machine, a proxy) need much after a start of the
pool server, when it knows nobody: until `settled` all allowances are larger. With those of a start, 2000 servers behind one
address are known after 15 s.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

from gpupool.pool.access.rate_limit import RateLimit, RateLimits

#: Addresses that are remembered, those that asked last. Who is forgotten has the whole allowance again, within that of all.
MOST_ADDRESSES: Final = 4096
#: So many leading bits of an IPv6 address are one place: whoever has a network has all addresses in it.
_IPV6_NETWORK: Final = 64


@dataclass(frozen=True, slots=True)
class Allowance:
    """`burst` at once, then `per_second`."""

    burst: int
    per_second: float

    def limit(self, now: float) -> RateLimit:
        return RateLimit(self.per_second, self.burst, now)

    def limits(self) -> RateLimits:
        return RateLimits(self.per_second, self.burst, MOST_ADDRESSES)


@dataclass(frozen=True, slots=True)
class Allowances:
    """Of one address, and of all together."""

    each: Allowance
    all: Allowance


AT_START: Final = Allowances(Allowance(500, 100.0), Allowance(2000, 400.0))
LATER: Final = Allowances(Allowance(200, 20.0), Allowance(500, 50.0))


class Newcomers:
    """`settled`: from then on the allowances are those of `LATER`."""

    def __init__(self, now: float, settled: float) -> None:
        self._settled = settled
        self._allowed = AT_START
        self._all = AT_START.all.limit(now)
        self._of = AT_START.each.limits()

    def __len__(self) -> int:
        """Addresses that are remembered."""
        return len(self._of)

    def admits(self, place: str, now: float) -> bool:
        """Whether one more token from there is within the limits; then it is counted."""
        if self._allowed is AT_START and now >= self._settled:
            self._allowed = LATER
            self._all = LATER.all.limit(now)
            self._of = LATER.each.limits()
        return self._of.of(place, now).admits(now) and self._all.admits(now)


def place_of(peer: str) -> str:
    """What stands for a caller's place: gRPC's ``peer()`` without its port; of IPv6 the network."""
    kind, _, rest = peer.partition(":")
    if kind not in ("ipv4", "ipv6"):
        return kind
    host = unquote(rest.rpartition(":")[0]).strip("[]").partition("%")[0]
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return kind
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, _IPV6_NETWORK), strict=False))

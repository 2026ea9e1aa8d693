"""Which devices a request may be placed on at all, full or not: sharing, node pools, filters; and what excludes the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from gpupool.scheduler.model import DeviceView, Request
from gpupool.shares import WHOLE_DEVICE_MILLI

#: Names of reasons that are no filter's.
SHARING, NODE_POOL = "sharing", "node pool"


def admits(device: DeviceView, request: Request, node_pool: str | None = None) -> bool:
    """Whether nothing but its size, room and health speaks against ``device``.

    Args:
        device: the device, full or not.
        request: whose filters, node pools and isolation count.
        node_pool: the only one that is looked at; None: all that the request names.
    """
    return excluded_by(device, request, node_pool) == ""


def excluded_by(device: DeviceView, request: Request, node_pool: str | None = None) -> str:
    """The first of what excludes it: its sharing, its node pool, or a filter as it is written; empty: nothing does."""
    if not shares_as_asked(device.sharing, request):
        return SHARING
    pools = request.pools if node_pool is None else (node_pool,)
    if pools and device.pool not in pools:
        return NODE_POOL
    return next((str(wish) for wish in request.filters if not wish.matches(device)), "")


def shares_as_asked(sharing: str, request: Request) -> bool:
    """Whether the administrator lets such a share be placed on devices of that sharing."""
    if sharing == "open":
        return not request.isolated
    return request.isolated and (sharing != "whole" or request.milli == WHOLE_DEVICE_MILLI)


def count_excluded(devices: Sequence[DeviceView], request: Request) -> Counter[str]:
    """How many devices each reason excludes, each device counted for the first of its reasons."""
    return Counter(reason for device in devices if (reason := excluded_by(device, request)))

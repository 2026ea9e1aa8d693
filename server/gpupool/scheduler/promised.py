"""Devices that are not there, and that a provider of nodes can bring: which requests may count on them."""

from __future__ import annotations

from collections.abc import Sequence

from gpupool.scheduler.eligible import admits
from gpupool.scheduler.model import Request
from gpupool.scheduler.pool_view import Promise
from gpupool.shares import Share, ShareError


def could_serve(promise: Promise, request: Request) -> bool:
    """Whether one node of it, of which nobody has anything, could serve a new session."""
    device = promise.device
    share = Share(milli=request.milli, mib=request.mib)
    return request.count <= promise.count and admits(device, request) and _fits(share, device.usable)


def providers_for(promised: Sequence[Promise], request: Request) -> list[str]:
    """The providers that can bring a node for it; none for a session that goes on, which has ways of its own."""
    if request.parked is not None or request.parts:
        return []
    return [promise.provider for promise in promised if could_serve(promise, request)]


def least_milli(promised: Sequence[Promise], request: Request) -> int:
    """What it takes of the nodes that could serve it, where that is the least. Precondition: some could."""
    share = Share(milli=request.milli, mib=request.mib)
    each = (share.on_device(one.device.usable).milli for one in promised if could_serve(one, request))
    return request.count * min(each)


def _fits(share: Share, usable: int) -> bool:
    try:
        share.on_device(usable)
    except ShareError:
        return False
    return True

"""How much a lease grants: against a wish, and in words."""

from __future__ import annotations

from gpupool.client.types import Grant
from gpupool.shares import Share, format_milli


def fits(share: Share, lease: Grant) -> bool:
    """Whether ``share`` is no more than what ``lease`` grants on each device."""
    if share.milli is not None:
        return all(share.milli <= granted.milli for granted in lease.shares)
    return all((share.mib or 0) <= granted.mib for granted in lease.shares)


def exceeds(lease: Grant, share: Share) -> bool:
    """Whether ``lease`` grants more than ``share``."""
    if share.milli is not None:
        return any(granted.milli > share.milli for granted in lease.shares)
    return any(granted.mib > (share.mib or 0) for granted in lease.shares)


def describe(lease: Grant) -> str:
    """What a lease grants, for people: ``0.2 GPU (1587 MiB) on node1/0``."""
    first = lease.shares[0]
    many = f"{len(lease.shares)} × " if len(lease.shares) > 1 else ""
    devices = ", ".join(granted.device_id for granted in lease.shares)
    return f"{many}{format_milli(first.milli)} GPU ({first.mib} MiB) on {devices}"

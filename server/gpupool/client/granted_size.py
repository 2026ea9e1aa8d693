"""How much a lease grants: against a wish, and in words."""

from __future__ import annotations

from gpupool.client.types import Grant
from gpupool.device_names import device_names
from gpupool.shares import Share, format_share


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
    """What a lease grants, for people: ``0.2 software GPU (1587 MiB), GPU 0 on node1``."""
    first = lease.shares[0]
    many = f"{len(lease.shares)} × " if len(lease.shares) > 1 else ""
    devices = device_names(granted.device_id for granted in lease.shares)
    kind = "software GPU" if lease.software else "GPU"
    return f"{many}{format_share(first.milli)} {kind} ({first.mib} MiB), {devices}"

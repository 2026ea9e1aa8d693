"""How much a lease grants and a wish asks for: one against the other, and in words."""

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


def is_larger(share: Share, other: Share) -> bool:
    """Whether ``share`` asks for more than ``other`` in the same unit; False where the units differ."""
    if share.milli is not None and other.milli is not None:
        return share.milli > other.milli
    return share.mib is not None and other.mib is not None and share.mib > other.mib


def describe(lease: Grant) -> str:
    """What a lease grants, for people: ``0.2 software GPU (1587 MiB), GPU 0 on node1``."""
    first = lease.shares[0]
    many = f"{len(lease.shares)} × " if len(lease.shares) > 1 else ""
    devices = device_names(granted.device_id for granted in lease.shares)
    kind = "software GPU" if lease.software else "GPU"
    return f"{many}{format_share(first.milli)} {kind} ({first.mib} MiB), {devices}"

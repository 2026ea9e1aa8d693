"""The sentences of decisions: always with numbers, and with what would help."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from gpupool.scheduler.model import DeviceView, PlacedShare
from gpupool.shares import Share, format_milli, milli_of_mib

_MAX_HOLDERS = 4


def gpu(milli: int) -> str:
    """At least two decimals, so that figures of one sentence line up: 300 → ``0.30``."""
    text = format_milli(milli)
    whole, _, fraction = text.partition(".")
    return f"{whole}.{fraction:0<2}"


def asked(share: Share, count: int = 1) -> str:
    size = f"{share.mib} MiB" if share.mib is not None else f"{share} of a GPU"
    if count == 1:
        return f"{size} is asked"
    return f"{size} on each of {count} devices of one node is asked"


def free(device: DeviceView) -> str:
    return f"{gpu(max(0, device.free_milli))} ({max(0, device.free_mib)} MiB)"


def holders(device: DeviceView) -> str:
    """Who holds what on a device, largest first."""
    per_user: dict[str, int] = {}
    parked: dict[str, int] = {}
    for held in device.held:
        book, amount = (per_user, held.milli) if held.lease_id else (parked, held.mib)
        book[held.user] = book.get(held.user, 0) + amount
    parts = [f"{user} holds {gpu(milli)}" for user, milli in _largest(per_user)]
    parts += [f"a parked session of {user} keeps {mib} MiB" for user, mib in _largest(parked) if mib]
    if len(parts) > _MAX_HOLDERS:
        parts = [*parts[:_MAX_HOLDERS], f"{len(parts) - _MAX_HOLDERS} more hold the rest"]
    return ", ".join(parts)


def granted(shares: Sequence[PlacedShare]) -> str:
    listed = ", ".join(f"{gpu(s.milli)} ({s.mib} MiB) of {s.device_id}" for s in shares)
    return f"granted {listed}"


def no_devices() -> str:
    return "the pool has 0 devices; start a node agent with `gpupool node`"


def unhealthy(devices: Sequence[DeviceView]) -> str:
    listed = ", ".join(f"{d.id}: {d.health_reason or 'unhealthy'}" for d in devices[:_MAX_HOLDERS])
    return f"{len(devices)} device(s) that could serve this ask take no new shares now ({listed})"


def never_fits(share: Share, count: int, groups: Sequence[Sequence[DeviceView]]) -> str:
    devices = [device for group in groups for device in group]
    largest = max(devices, key=lambda d: d.usable)
    if share.mib is not None and share.mib > largest.usable:
        return (
            f"{asked(share)}; the largest device {largest.id} has {largest.usable} MiB usable "
            f"of {largest.total_mib}; ask for at most {largest.usable}MiB"
        )
    most = max(len(group) for group in groups)
    if count > most:
        return f"{asked(share, count)}; the largest node has {most} device(s); ask for at most -n {most}"
    return (
        f"{asked(share, count)}; no node has {count} device(s) on which that is between 1 MiB and all of it "
        f"(the largest has {largest.usable} MiB usable)"
    )


def full(share: Share, count: int, freest: Sequence[DeviceView], reserved: Collection[str]) -> str:
    device = min(freest, key=lambda d: (d.free_milli, d.free_mib))
    if len(freest) == 1:
        where = f"the freest device {device.id} has {free(device)} left"
    else:
        listed = ", ".join(d.id for d in freest)
        where = f"of the freest devices {listed} the fullest, {device.id}, has {free(device)} left"
    return f"{asked(share, count)}; {where}{_why(share, device, reserved)}"


def pinned_full(share: Share, device: DeviceView, reserved: Collection[str]) -> str:
    return (
        f"{asked(share)} and the session's memory is on {device.id}, which has {free(device)} left"
        f"{_why(share, device, reserved)}"
    )


def pinned_missing(device_id: str) -> str:
    return (
        f"the session's memory is on {device_id}, and no node reports that device now; "
        "restart the agent of its node"
    )


def pinned_count(count: int, pinned: Sequence[str]) -> str:
    return (
        f"{count} device(s) are asked, but the session lives on {len(pinned)} ({', '.join(pinned)}); "
        f"ask with -n {len(pinned)}, or close the session first"
    )


def below_kept(share: Share, mib: int, kept: int, device: DeviceView) -> str:
    least = milli_of_mib(kept, device.usable)  # rounded up, so its MiB are at least `kept`
    return (
        f"{asked(share)}, which is {mib} MiB, but the session keeps {kept} MiB on {device.id}; "
        f"ask for at least {format_milli(least)}, or free memory in the notebook first"
    )


def quota_never(user: str, milli: int, limit: int) -> str:
    return f"{gpu(milli)} GPU is asked; the quota of {user} is {gpu(limit)}; ask for at most {gpu(limit)}"


def quota_used(user: str, milli: int, held: int, limit: int) -> str:
    return (
        f"{gpu(milli)} GPU is asked and {user} holds {gpu(held)} of a quota of {gpu(limit)}; "
        f"releasing {gpu(held + milli - limit)} would make room"
    )


def shares_quota_never(user: str, count: int, limit: int) -> str:
    return f"{count} shares are asked; the quota of {user} is {limit} share(s); ask with -n {limit} at most"


def shares_quota_used(user: str, count: int, held: int, limit: int) -> str:
    return (
        f"{count} share(s) are asked and {user} holds {held} of {limit} allowed; "
        f"releasing {held + count - limit} would make room"
    )


def _why(share: Share, device: DeviceView, reserved: Collection[str]) -> str:
    who = holders(device)
    text = f"; {who}" if who else ""
    if device.id in reserved:
        text += "; it is kept for an ask that waits longer"
    smaller = _largest_that_fits(device) if device.id not in reserved else ""
    return text + (f"; {smaller} would fit now" if smaller else "")


def _largest_that_fits(device: DeviceView) -> str:
    milli = min(device.free_milli, max(0, device.free_mib) * 1000 // max(1, device.usable))
    return format_milli(milli) if milli > 0 else ""


def _largest(book: dict[str, int]) -> list[tuple[str, int]]:
    return sorted(book.items(), key=lambda item: (-item[1], item[0]))

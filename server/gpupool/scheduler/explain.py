"""The sentences of decisions: always with numbers, and with what would help."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from gpupool.scheduler.eligible import NODE_POOL, SHARING
from gpupool.scheduler.model import Ask, DeviceView, Held, Parked, PlacedShare, PoolView
from gpupool.shares import Share, format_milli, milli_of_mib

_MAX_HOLDERS = 4
#: By where memory goes that leaves its devices (`Held.goes_to`): what is done, with whose, and to where.
_LEAVES: Final = {
    "host": ("moving", ("parked session", "parked sessions"), " to host memory"),
    "image": ("moving", ("parked session", "parked sessions"), " to disk"),
    "": ("freeing", ("session that is being ended", "sessions that are being ended"), ""),
}


def gpu(milli: int) -> str:
    """At least two decimals, so that figures of one sentence line up: 300 → ``0.30``."""
    text = format_milli(milli)
    whole, _, fraction = text.partition(".")
    return f"{whole}.{fraction:0<2}"


def asked(share: Share, count: int = 1, *, span: bool = False) -> str:
    size = f"{share.mib} MiB" if share.mib is not None else f"{share} of a GPU"
    if count == 1:
        return f"{size} is asked"
    where = f"{count} devices on up to {count} nodes" if span else f"{count} devices of one node"
    return f"{size} on each of {where} is asked"


def free(device: DeviceView) -> str:
    return f"{gpu(max(0, device.free_milli))} ({max(0, device.free_mib)} MiB)"


def holders(device: DeviceView) -> str:
    """Who holds what on a device, largest first; a parked session whose memory stays says why."""
    per_user: dict[str, int] = {}
    parked: list[Held] = []
    moved: list[Held] = []
    for held in device.held:
        if held.lease_id:
            per_user[held.user] = per_user.get(held.user, 0) + held.milli
        elif held.milli:
            moved.append(held)
        elif held.mib:
            parked.append(held)
    parts = [f"{user} holds {gpu(milli)}" for user, milli in _largest(per_user)]
    parts += [
        f"{gpu(held.milli)} is kept for session {held.session_id[:12]} of {held.user}" for held in moved
    ]
    parts += [_parked(held) for held in sorted(parked, key=lambda h: (-h.mib, h.user, h.session_id))]
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


def none_like_that(ask: Ask, devices: Sequence[DeviceView], excluded_by: Counter[str]) -> str:
    """Why no device of the pool will ever do."""
    text = f"none of the pool's {len(devices)} device(s) is as asked{excluded(excluded_by)}"
    if excluded_by[NODE_POOL]:
        pools = sorted({device.pool for device in devices})
        text += f"; there {'is node pool' if len(pools) == 1 else 'are node pools'} {', '.join(pools[:_MAX_HOLDERS])}"
    if excluded_by[SHARING] and not ask.isolated:
        text += "; parts without memory isolation are on nodes that share as `open`"
    return text


def excluded(by: Counter[str]) -> str:
    """Behind a sentence: which condition excludes how many devices."""
    parts = []
    for reason, count in by.most_common(_MAX_HOLDERS):
        if reason == SHARING:
            parts.append(f"{count} are not shared in that way")
        elif reason == NODE_POOL:
            parts.append(f"{count} are in other node pools")
        else:
            parts.append(f"{count} are not {reason}")
    return f"; {', '.join(parts)}" if parts else ""


def pinned_barred(device: DeviceView, reason: str) -> str:
    """A session's own device is not what is asked now, and it finds no other."""
    why = {SHARING: f"shared as `{device.sharing}`", NODE_POOL: f"in node pool {device.pool}"}
    return (
        f"the session's memory is on {device.id}, which is {why.get(reason, f'not {reason}')}, and it finds no place on "
        "another device"
    )


def never_fits(
    share: Share,
    count: int,
    groups: Sequence[Sequence[DeviceView]],
    *,
    span: bool = False,
    only_one: bool = False,
) -> str:
    devices = [device for group in groups for device in group]
    largest = max(devices, key=lambda d: d.usable)
    if share.mib is not None and share.mib > largest.usable:
        return (
            f"{asked(share)}; the largest device {largest.id} has {largest.usable} MiB usable "
            f"of {largest.total_mib}; ask for at most {largest.usable}MiB"
        )
    if span:
        kinds = [device.kind for device in devices]
        most = max(kinds.count(kind) for kind in kinds)
        return (
            f"{asked(share, count, span=True)}; the pool's {len(groups)} nodes have at most {most} device(s) of one "
            "kind, and on each that must be between 1 MiB and all of it; ask for fewer"
        )
    most = max(len(group) for group in groups)
    if count > most:
        several = ", or allow several nodes with --nodes any" if only_one and count <= len(devices) else ""
        return f"{asked(share, count)}; the largest node has {most} device(s); ask for at most -n {most}{several}"
    return (
        f"{asked(share, count)}; no node has {count} device(s) on which that is between 1 MiB and all of it "
        f"(the largest has {largest.usable} MiB usable)"
    )


def full(
    share: Share,
    count: int,
    freest: Sequence[DeviceView],
    pool: PoolView,
    *,
    span: bool = False,
    advise: bool = True,
) -> str:
    """Args: advise: says what is left of the device as a share, which need not be granted to an ask with more wishes."""
    device = min(freest, key=lambda d: (d.free_milli, d.free_mib))
    if len(freest) == 1:
        where = f"the freest device {device.id} has {free(device)} left"
    else:
        listed = ", ".join(d.id for d in freest)
        where = f"of the freest devices {listed} the fullest, {device.id}, has {free(device)} left"
    return f"{asked(share, count, span=span)}; {where}{_why(device, pool, advise=advise)}"


def pinned_full(share: Share, device: DeviceView, pool: PoolView, parked: Parked) -> str:
    lies = {"device": "memory is on", "host": "memory was on", "image": "memory was on"}[parked.place]
    text = (
        f"{asked(share)} and the session's {lies} {device.id}, which has {free(device)} left"
        f"{_why(device, pool, advise=False)}"
    )
    if parked.place == "device" and parked.stays:
        text += f"; it cannot leave that device: {parked.stays}"
    if parked.bound:
        text += f"; it cannot go on in another node: {parked.bound}"
    return text


def making_room(leaving: Sequence[Held], shares: Sequence[PlacedShare]) -> str:
    """What an ask waits for while memory leaves: how much, of how many sessions, what becomes of it, where."""
    parts = []
    for goes_to, (does, whose, to) in _LEAVES.items():
        held = [one for one in leaving if one.goes_to == goes_to]
        if held:
            mib = sum(one.session_mib for one in held)
            sessions = f"{len(held)} {whose[0] if len(held) == 1 else whose[1]}"
            parts.append(f"{does} {memory(mib)} of {sessions}{to}")
    where = ", ".join(share.device_id for share in shares)
    return f"{' and '.join(parts)} to make room on {where}"


def to_disk(mib: int, count: int, node: str) -> str:
    whose = "1 parked session" if count == 1 else f"{count} parked sessions"
    return (
        f"moving {memory(mib)} of {whose} to the disk of {node}, because its host memory has no room for all"
    )


def changing_device(parked: Parked, shares: Sequence[PlacedShare]) -> str:
    where = ", ".join(share.device_id for share in shares)
    return (
        f"moving the session's {memory(parked.mib)} from {', '.join(parked.devices)} to host memory; "
        f"it goes on on {where}"
    )


def moving(parked: Parked, shares: Sequence[PlacedShare]) -> str:
    return f"{granted(shares)}, taking {memory(parked.mib)} along from node {parked.node}"


def memory(mib: int) -> str:
    """``800 MiB`` or ``3.1 GiB``."""
    return f"{mib} MiB" if mib < 1024 else f"{mib / 1024:.1f} GiB"


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


def _why(device: DeviceView, pool: PoolView, *, advise: bool) -> str:
    who = holders(device)
    text = f"; {who}" if who else ""
    if device.id in pool.reserved:
        return text + "; it is kept for an ask that waits longer"
    movable = sum(held.mib for held in device.held if held.movable)
    room = pool.host_room.get(device.node, 0)
    if movable > room:
        text += f"; host memory of {device.node} takes {memory(max(0, room))} more of parked sessions"
    smaller = _largest_that_fits(device) if advise else ""
    return text + (f"; {smaller} would fit now" if smaller else "")


def _parked(held: Held) -> str:
    text = f"a parked session of {held.user} keeps {held.mib} MiB"
    if held.session_id:
        text = f"parked session {held.session_id[:12]} of {held.user} keeps {held.mib} MiB"
    return f"{text}, which cannot be moved: {held.stays}" if held.stays else text


def _largest_that_fits(device: DeviceView) -> str:
    milli = min(device.free_milli, max(0, device.free_mib) * 1000 // max(1, device.usable))
    return format_milli(milli) if milli > 0 else ""


def _largest(book: dict[str, int]) -> list[tuple[str, int]]:
    return sorted(book.items(), key=lambda item: (-item[1], item[0]))

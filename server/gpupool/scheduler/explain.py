"""The sentences of decisions: always with numbers, and with what would help."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from gpupool.filters import type_of
from gpupool.scheduler.eligible import NODE_POOL, SHARING
from gpupool.scheduler.model import DeviceView, Held, Parked, PlacedShare, Request
from gpupool.scheduler.pool_view import PoolView, Promise
from gpupool.sentences import Param, Sentence, clauses, param, say
from gpupool.shares import Share, milli_of_mib, offered_milli

_MAX_HOLDERS = 4
#: What becomes of memory that leaves its devices, by where it goes (`Held.goes_to`).
_LEAVES: Final = {"host": "leaves.host", "image": "leaves.image", "": "leaves.freed"}


def asked(share: Share, number: int = 1, *, span: bool = False) -> Sentence:
    if share.mib is not None:
        size = say("size.mib", mib=param.mib(share.mib))
    else:
        size = say("size.milli", milli=param.milli(share.milli or 0))
    if number == 1:
        return say("asked", size=size)
    return say("asked.span" if span else "asked.node", size=size, count=param.count(number))


def names(devices: Iterable[str]) -> list[Param]:
    return [param.device(name) for name in devices]


def holders(view: DeviceView) -> list[Sentence]:
    """Who holds what on a device, largest first; a parked session whose memory stays says why."""
    per_user: dict[str, int] = {}
    parked: list[Held] = []
    moved: list[Held] = []
    for held in view.held:
        if held.lease_id:
            per_user[held.user] = per_user.get(held.user, 0) + held.milli
        elif held.milli:
            moved.append(held)
        elif held.mib:
            parked.append(held)
    parts = [
        say("holds", user=param.user(name), milli=param.milli(size)) for name, size in _largest(per_user)
    ]
    parts += [
        say(
            "holds.moved",
            milli=param.milli(held.milli),
            session=param.text(held.session_id[:12]),
            user=param.user(held.user),
        )
        for held in moved
    ]
    parts += [_parked(held) for held in sorted(parked, key=lambda h: (-h.mib, h.user, h.session_id))]
    if len(parts) > _MAX_HOLDERS:
        parts = [*parts[:_MAX_HOLDERS], say("holds.rest", count=param.count(len(parts) - _MAX_HOLDERS))]
    return parts


def shares_on(shares: Iterable[PlacedShare]) -> list[Sentence]:
    return [
        say("share.on", milli=param.milli(s.milli), mib=param.mib(s.mib), device=param.device(s.device_id))
        for s in shares
    ]


def granted(shares: Sequence[PlacedShare]) -> Sentence:
    return say("granted", shares=shares_on(shares))


def no_devices() -> Sentence:
    return say("no-devices")


def to_come(share: Share, number: int, providers: Sequence[str]) -> Sentence:
    return say("to-come", asked=asked(share, number), providers=[param.text(name) for name in providers])


def nobody_brings(share: Share, number: int, promised: Sequence[Promise]) -> Sentence:
    names = [param.text(promise.provider) for promise in promised]
    return say("nobody-brings", asked=asked(share, number), providers=names)


def unhealthy(devices: Sequence[DeviceView]) -> Sentence:
    listed = [
        say("unhealthy.device", device=param.device(d.id), why=param.text(d.health_reason or "unhealthy"))
        for d in devices[:_MAX_HOLDERS]
    ]
    return say("unhealthy", count=param.count(len(devices)), devices=listed)


def no_port(share: Share, number: int, ports: Mapping[str, int]) -> Sentence:
    """``ports``: how many each node has on which the request would fit."""
    nodes = [
        say("no-port.node", count=param.count(count), node=param.node(name))
        for name, count in sorted(ports.items())
    ]
    return say("no-port", asked=asked(share, number), nodes=nodes)


def none_like_that(request: Request, devices: Sequence[DeviceView], excluded_by: Counter[str]) -> Sentence:
    """Why no device of the pool will ever do."""
    said = [say("none-like-that"), excluded(excluded_by)]
    if excluded_by[NODE_POOL]:
        pools = sorted({view.pool for view in devices})
        listed = [param.text(name) for name in pools[:_MAX_HOLDERS]]
        said.append(say("node-pools", count=param.count(len(pools)), names=listed))
    if any(reason not in (NODE_POOL, SHARING) for reason in excluded_by):
        kinds = Counter(view.kind or "?" for view in devices).most_common(_MAX_HOLDERS)
        said.append(say("kinds", names=[param.text(f"{number} × {kind}") for kind, number in kinds]))
    if excluded_by[SHARING] and not request.isolated:
        said.append(say("parts-are-open"))
    return clauses(*said)


def excluded(by: Counter[str]) -> Sentence:
    """Behind a sentence: which condition excludes how many devices."""
    parts = []
    for reason, number in by.most_common(_MAX_HOLDERS):
        if reason == SHARING:
            parts.append(say("excluded.sharing", count=param.count(number)))
        elif reason == NODE_POOL:
            parts.append(say("excluded.node-pool", count=param.count(number)))
        elif kind := type_of(reason):
            parts.append(say("excluded.type", count=param.count(number), type=param.text(kind)))
        else:
            parts.append(say("excluded.filter", count=param.count(number), filter=param.text(reason)))
    return say("listed", of=parts) if parts else Sentence()


def pinned_barred(view: DeviceView, reason: str) -> Sentence:
    """A session's own device is not what is asked now, and it finds no other."""
    if reason == SHARING:
        why = say("barred.sharing", sharing=param.text(view.sharing))
    elif reason == NODE_POOL:
        why = say("barred.node-pool", name=param.text(view.pool))
    elif kind := type_of(reason):
        why = say("barred.type", type=param.text(kind))
    else:
        why = say("barred.filter", filter=param.text(reason))
    return say("barred", device=param.device(view.id), why=why)


def never_fits(
    share: Share,
    number: int,
    groups: Sequence[Sequence[DeviceView]],
    *,
    span: bool = False,
    only_one: bool = False,
) -> Sentence:
    devices = [view for group in groups for view in group]
    largest = max(devices, key=lambda d: d.usable)
    usable = param.mib(largest.usable)
    if share.mib is not None and share.mib > largest.usable:
        total = param.mib(largest.total_mib)
        return say(
            "too-large", asked=asked(share), device=param.device(largest.id), usable=usable, total=total
        )
    if span:
        kinds = [view.kind for view in devices]
        most = param.count(max(kinds.count(kind) for kind in kinds))
        many = asked(share, number, span=True)
        return say("too-many.span", asked=many, nodes=param.count(len(groups)), most=most)
    most_on_one = max(len(group) for group in groups)
    if number > most_on_one:
        code = "too-many.several" if only_one and number <= len(devices) else "too-many"
        return say(code, asked=asked(share, number), most=param.count(most_on_one))
    return say("too-small", asked=asked(share, number), count=param.count(number), usable=usable)


def full(
    share: Share,
    number: int,
    freest: Sequence[DeviceView],
    pool: PoolView,
    *,
    span: bool = False,
    advise: bool = True,
) -> Sentence:
    """Args: advise: says what is left of the device as a share, which need not be granted to a request with more wishes."""
    fullest = min(freest, key=lambda d: (d.free_milli, d.free_mib))
    said = say(
        "full" if len(freest) == 1 else "full.several",
        asked=asked(share, number, span=span),
        devices=names(d.id for d in freest),
        **_free(fullest),
    )
    return clauses(said, *_why(fullest, pool, advise=advise))


def pinned_full(share: Share, view: DeviceView, pool: PoolView, parked: Parked) -> Sentence:
    code = "full.own" if parked.place == "device" else "full.was-own"
    said = [say(code, asked=asked(share), **_free(view)), *_why(view, pool, advise=False)]
    if parked.place == "device" and parked.stays:
        said.append(say("stays-on-device", why=parked.stays))
    if parked.bound:
        said.append(say("stays-in-node", why=parked.bound))
    return clauses(*said)


def making_room(leaving: Sequence[Held], shares: Sequence[PlacedShare]) -> Sentence:
    """What a request waits for while memory leaves: how much, of how many sessions, what becomes of it, where."""
    parts = []
    for goes_to, code in _LEAVES.items():
        held = [one for one in leaving if one.goes_to == goes_to]
        if held:
            size = param.mib(sum(one.session_mib for one in held))
            parts.append(say(code, count=param.count(len(held)), mib=size))
    return say(
        "making-room", of=say("together", of=parts), devices=names(share.device_id for share in shares)
    )


def to_disk(size: int, number: int, where: str) -> Sentence:
    return say("to-disk", mib=param.mib(size), count=param.count(number), node=param.node(where))


def changing_device(parked: Parked, shares: Sequence[PlacedShare]) -> Sentence:
    targets = names(share.device_id for share in shares)
    return say("changing-device", mib=param.mib(parked.mib), devices=names(parked.devices), targets=targets)


def moving(parked: Parked, shares: Sequence[PlacedShare]) -> Sentence:
    return say(
        "granted.moving", granted=granted(shares), mib=param.mib(parked.mib), node=param.node(parked.node)
    )


def pinned_missing(device_id: str) -> Sentence:
    return say("own-device-missing", device=param.device(device_id))


def pinned_count(number: int, pinned: Sequence[str]) -> Sentence:
    return say("own-count", count=param.count(number), number=param.count(len(pinned)), devices=names(pinned))


def below_kept(share: Share, size: int, kept: int, view: DeviceView) -> Sentence:
    least = milli_of_mib(kept, view.usable)  # rounded up, so its MiB are at least `kept`
    return say(
        "below-kept",
        asked=asked(share),
        mib=param.mib(size),
        kept=param.mib(kept),
        device=param.device(view.id),
        least=param.milli(least),
    )


def quota_never(name: str, size: int, limit: int) -> Sentence:
    return say("quota.never", milli=param.milli(size), user=param.user(name), limit=param.milli(limit))


def quota_used(name: str, size: int, held: int, limit: int) -> Sentence:
    return say(
        "quota.used",
        milli=param.milli(size),
        user=param.user(name),
        held=param.milli(held),
        limit=param.milli(limit),
        excess=param.milli(held + size - limit),
    )


def shares_quota_never(name: str, number: int, limit: int) -> Sentence:
    return say(
        "quota.shares-never", count=param.count(number), user=param.user(name), limit=param.count(limit)
    )


def shares_quota_used(name: str, number: int, held: int, limit: int) -> Sentence:
    return say(
        "quota.shares-used",
        count=param.count(number),
        user=param.user(name),
        held=param.count(held),
        limit=param.count(limit),
        excess=param.count(held + number - limit),
    )


def _free(view: DeviceView) -> dict[str, Param]:
    return {
        "device": param.device(view.id),
        "free": param.milli(max(0, view.free_milli)),
        "free_mib": param.mib(max(0, view.free_mib)),
    }


def _why(view: DeviceView, pool: PoolView, *, advise: bool) -> list[Sentence]:
    who = holders(view)
    said = [say("listed", of=who)] if who else []
    if view.id in pool.reserved:
        return [*said, say("kept-for-longer")]
    movable = sum(held.mib for held in view.held if held.movable)
    room = pool.host_room.get(view.node, 0)
    if movable > room:
        said.append(say("host-room", node=param.node(view.node), room=param.mib(max(0, room))))
    smaller = _largest_that_fits(view) if advise else 0
    return [*said, say("would-fit", milli=param.milli(smaller))] if smaller else said


def _parked(held: Held) -> Sentence:
    whose = param.user(held.user)
    if held.session_id:
        name = param.text(held.session_id[:12])
        said = say("holds.parked-session", session=name, user=whose, mib=param.mib(held.mib))
    else:
        said = say("holds.parked", user=whose, mib=param.mib(held.mib))
    return say("holds.stays", held=said, why=held.stays) if held.stays else said


def _largest_that_fits(view: DeviceView) -> int:
    room = max(0, min(view.free_milli, max(0, view.free_mib) * 1000 // max(1, view.usable)))
    return offered_milli(room)


def _largest(book: dict[str, int]) -> list[tuple[str, int]]:
    return sorted(book.items(), key=lambda item: (-item[1], item[0]))

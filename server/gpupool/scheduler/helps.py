"""What would help a request that waits or was refused. Nothing is advised that has not been tried out on the same view.

A :class:`~gpupool.scheduler.model.Help` with a ``request`` would be granted now; one with ``releases`` names leases of the user's
own, after whose end the request itself would be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from gpupool.filters import type_of
from gpupool.records import replace
from gpupool.scheduler import explain
from gpupool.scheduler.gang import may_span
from gpupool.scheduler.model import Decision, Help, Outcome, PlacedShare, Request
from gpupool.scheduler.placement.cluster import Integers
from gpupool.scheduler.pool_view import PoolView
from gpupool.scheduler.promised import providers_for
from gpupool.sentences import Sentence, clauses, param, say
from gpupool.shares import WHOLE_DEVICE_MILLI, Share, offered_milli

#: Decides without looking for helps.
Decide = Callable[[PoolView, Request], Decision]

#: Helps that are worth a place in the sentence; the rest stand beside it.
_IN_SENTENCE: Final = ("smaller", "nodes", "other-device")
#: Own leases of which the release is tried out, and devices on which they are looked for besides those waited for.
_MOST_LEASES: Final = 6
_MOST_PLACES: Final = 16
#: Conditions that are left out one at a time, each of which takes a decision; of more only all together are.
_MOST_CONDITIONS: Final = 4


def advised(pool: PoolView, request: Request, decision: Decision, decide: Decide) -> Decision:
    """The same decision with its numbers, and with what would help."""
    decision = with_facts(pool, request, decision)
    if decision.evict:
        return replace(decision, helps=(Help("wait", say("help.wait")),))
    helps = tuple(_helps(pool, request, decision, decide))
    worth_it = (help.said for help in helps if help.action in _IN_SENTENCE)
    return replace(decision, said=clauses(decision.said, *worth_it), helps=helps)


def with_facts(pool: PoolView, request: Request, decision: Decision) -> Decision:
    """The same decision with its numbers."""
    return replace(decision, facts={**_facts(pool, request, decision), **decision.facts})


def _helps(pool: PoolView, request: Request, decision: Decision, decide: Decide) -> Iterator[Help]:
    yield from _smaller(pool, request, decide)
    if request.parked is None and not request.parts:
        yield from _fewer(pool, request, decide)
        yield from _several_nodes(pool, request, decide)
    yield from _other_devices(pool, request, decide)
    yield from _release(pool, request, decision, decide)
    yield from _grow(pool, request, decision)
    yield from _administrator(pool, request, decision)


def _granted(pool: PoolView, request: Request, decide: Decide) -> tuple[PlacedShare, ...]:
    """Where it would go; empty: it would not be granted."""
    decision = decide(pool, request)
    return decision.shares if decision.outcome is Outcome.GRANT else ()


def _smaller(pool: PoolView, request: Request, decide: Decide) -> Iterator[Help]:
    size = _largest_free(pool, request)
    if size < 1:
        return
    if request.milli is not None:
        size = offered_milli(size)
    other = (
        replace(request, milli=size, mib=None)
        if request.milli is not None
        else replace(request, mib=size, milli=None)
    )
    if not _granted(pool, other, decide):
        return
    written = {"milli": param.milli(size)} if request.milli is not None else {"mib": param.mib(size)}
    yield Help("smaller", say("help.smaller", count=param.count(request.count), **written), other)


def _largest_free(pool: PoolView, request: Request) -> int:
    """The largest size, in milli or MiB as asked, that is smaller and that devices and quota may have room for; 0: none."""
    asked = request.milli if request.milli is not None else request.mib
    assert asked is not None
    most = asked - 1
    quota, (held, _) = pool.quota_of(request.user), pool.held_by(request.user)
    if quota.milli is not None and request.milli is not None:
        most = min(most, (quota.milli - held) // request.count)
    own = [name for part in ((request.parked,) if request.parked else request.parts) for name in part.devices]
    if not pool.devices or most < 1:
        return 0
    fleet = pool.fleet
    usable = np.array([device.usable for device in fleet.classes], np.int64)[fleet.class_of]
    counted = np.array([device.sharing != "open" for device in fleet.classes])[fleet.class_of]
    milli, mib = np.maximum(fleet.free_milli, 0), np.maximum(fleet.free_mib, 0)
    if request.milli is not None:
        # floor(milli · usable / 1000) ≤ MiB, solved for milli.
        by_memory = ((mib + 1) * WHOLE_DEVICE_MILLI - 1) // np.maximum(usable, 1)
        room = np.where(counted, np.minimum(milli, by_memory), milli)
    else:
        room = np.minimum(mib, milli * usable // WHOLE_DEVICE_MILLI)
    if own:
        places = [fleet.where(name) for name in own if name in fleet.positions]
        return min(most, min((int(room[place]) for place in places), default=0))
    least = replace(
        request, milli=1 if request.milli is not None else None, mib=1 if request.mib is not None else None
    )
    share = Share(milli=least.milli, mib=least.mib)
    candidates = fleet.candidates(least, share)
    room = np.where(candidates.devices & fleet.healthy & ~fleet.kept, room, 0)
    found = 0
    if request.count <= room.shape[1]:
        found = int(np.sort(room, axis=1)[:, -request.count].max(initial=0))
    if may_span(request, bool((candidates.per_row >= request.count).any())):
        found = max(found, _over_kinds(pool, room, request.count))
    return min(most, found)


def _over_kinds(pool: PoolView, room: Integers, count: int) -> int:
    """What ``count`` devices of one kind have, on any nodes."""
    fleet = pool.fleet
    best = 0
    for kind in {device.kind for device in fleet.classes}:
        of_kind = np.array([device.kind == kind for device in fleet.classes])[fleet.class_of]
        values = np.sort(room[of_kind & fleet.cluster.present])
        if len(values) >= count:
            best = max(best, int(values[-count]))
    return best


def _fewer(pool: PoolView, request: Request, decide: Decide) -> Iterator[Help]:
    for fewer in range(request.count - 1, 0, -1):
        other = replace(request, count=fewer)
        if _granted(pool, other, decide):
            yield Help("fewer", say("help.fewer", count=param.count(fewer)), other)
            return


def _several_nodes(pool: PoolView, request: Request, decide: Decide) -> Iterator[Help]:
    if request.count == 1 or request.nodes == "any":
        return
    other = replace(request, nodes="any")
    shares = _granted(pool, other, decide)
    if shares:
        listed = explain.names(share.device_id for share in shares)
        yield Help("nodes", say("help.nodes", devices=listed), other)


def _other_devices(pool: PoolView, request: Request, decide: Decide) -> Iterator[Help]:
    """Without one of the conditions, or else without all."""
    without_all = replace(request, filters=(), pools=())
    conditions = len(request.filters) + bool(request.pools)
    # Where nothing fits without all of them, nothing does without one.
    shares = _granted(pool, without_all, decide) if conditions else ()
    found = False
    if shares and conditions <= _MOST_CONDITIONS:
        for help in _without_one(pool, request, decide):
            found = True
            yield help
    if shares and conditions > 1 and not found:
        said = say("help.any-device", devices=_named(pool, shares))
        yield Help("other-device", said, without_all)
    if request.parked is not None or request.parts or request.milli is None:
        return
    if not any((device.sharing == "open") == request.isolated for device in pool.fleet.classes):
        return
    other = replace(request, isolated=not request.isolated)
    shares = _granted(pool, other, decide)
    if shares:
        code = "help.not-isolated" if request.isolated else "help.isolated"
        yield Help("isolation", say(code, devices=_named(pool, shares)), other)


def _without_one(pool: PoolView, request: Request, decide: Decide) -> Iterator[Help]:
    choices: list[tuple[str, str, Request]] = []
    for wish in request.filters:
        rest = tuple(other for other in request.filters if other != wish)
        code = "help.any-type" if type_of(str(wish)) else "help.without-filter"
        choices.append((code, str(wish), replace(request, filters=rest)))
    if request.pools:
        choices.append(("help.any-node-pool", "", replace(request, pools=())))
    for code, left_out, other in choices:
        if shares := _granted(pool, other, decide):
            said = say(code, filter=param.text(left_out), devices=_named(pool, shares))
            yield Help("other-device", said, other)


def _named(pool: PoolView, shares: tuple[PlacedShare, ...]) -> Sentence:
    name = shares[0].device_id
    view = pool.device(name)
    first = say("devices", device=param.device(name))
    if view is not None and view.kind:
        first = say("devices.kind", device=param.device(name), kind=param.text(view.kind))
    return say("devices.more", first=first, count=param.count(len(shares) - 1)) if len(shares) > 1 else first


def _release(pool: PoolView, request: Request, decision: Decision, decide: Decide) -> Iterator[Help]:
    """The user's own leases whose end would do: the smallest one, or the smallest ones together."""
    if decision.outcome is Outcome.REFUSE:
        return  # no room that comes free helps what no room could serve
    own = _own_leases(pool, request, decision)

    def would_do(names: tuple[str, ...]) -> bool:
        return decide(pool.without(names), request).outcome is Outcome.GRANT

    smallest = tuple(sorted(own, key=lambda name: (own[name], name)))
    if not smallest or not would_do(smallest):
        return
    single = next(((name,) for name in smallest if would_do((name,))), None)
    several = (smallest[:number] for number in range(2, len(smallest)))
    names = single or next((names for names in several if would_do(names)), smallest)
    size = sum(own[name] for name in names)
    said = say("help.release", milli=param.milli(size), leases=[param.text(name) for name in names])
    yield Help("release", said, release_milli=size, releases=names)


def _own_leases(pool: PoolView, request: Request, decision: Decision) -> dict[str, int]:
    """Milli of leases of the asking user: those on the devices that are waited for first, then the smallest; only so many."""
    fleet = pool.fleet
    mine = fleet.places_of(users=(request.user,))
    wanted = [place for name in decision.wants if (place := fleet.positions.get(name)) in mine]
    own: dict[str, int] = {}
    for place in (*wanted, *sorted(mine.difference(wanted))[:_MOST_PLACES]):
        found: dict[str, int] = {}
        for held in pool.devices[place].held:
            if held.lease_id and held.user == request.user:
                found[held.lease_id] = found.get(held.lease_id, 0) + held.milli
        for name in sorted(found, key=lambda name: (found[name], name)):
            if name in own or len(own) < _MOST_LEASES:
                own[name] = own.get(name, 0) + found[name]
    return own


def _grow(pool: PoolView, request: Request, decision: Decision) -> Iterator[Help]:
    if decision.reason not in ("full", "no-node"):
        return
    if providers := providers_for(pool.promised, request):
        yield Help("grow", say("help.grow", providers=[param.text(name) for name in providers]))


def _administrator(pool: PoolView, request: Request, decision: Decision) -> Iterator[Help]:
    quota = pool.quota_of(request.user)
    if decision.reason == "quota" and quota.milli is not None:
        yield Help(
            "ask-admin",
            say("help.raise-quota", user=param.user(request.user), limit=param.milli(quota.milli)),
        )
    elif decision.reason == "quota":
        most = param.count(quota.shares or 0)
        yield Help("ask-admin", say("help.raise-shares", user=param.user(request.user), limit=most))
    if decision.reason != "no-node":
        return
    if not pool.devices:
        yield Help("ask-admin", say("help.add-gpu"))
    drained = sorted({device.node for device in pool.devices if device.closed == "drained"})
    if drained:
        yield Help("ask-admin", say("help.undrain", nodes=[param.node(name) for name in drained[:4]]))


def _facts(pool: PoolView, request: Request, decision: Decision) -> dict[str, int | str]:
    """The numbers that the sentence speaks of, by name."""
    facts: dict[str, int | str] = {"count": request.count, "devices": len(pool.devices)}
    if request.milli is not None:
        facts["asked_milli"] = request.milli
    if request.mib is not None:
        facts["asked_mib"] = request.mib
    quota = pool.quota_of(request.user)
    if quota.milli is not None or quota.shares is not None:
        facts["held_milli"], facts["held_shares"] = pool.held_by(request.user)
    if quota.milli is not None:
        facts["quota_milli"] = quota.milli
    if quota.shares is not None:
        facts["quota_shares"] = quota.shares
    wanted = [device for name in decision.wants if (device := pool.device(name)) is not None]
    if wanted:
        fullest = min(wanted, key=lambda device: (device.free_milli, device.free_mib))
        facts["device"] = fullest.id
        facts["free_milli"] = max(0, fullest.free_milli)
        facts["free_mib"] = max(0, fullest.free_mib)
    return facts

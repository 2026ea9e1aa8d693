"""Explanations are true: what they advise works, their numbers are those of the view, and "full" means that nothing fits."""

from __future__ import annotations

from itertools import combinations

from gpupool.filters import parse
from gpupool.scheduler import (
    Decision,
    DeviceView,
    Held,
    Outcome,
    PlacedShare,
    PoolView,
    Quota,
    Request,
    decide,
)
from gpupool.sentences import NOTHING, obstacles
from gpupool.shares import usable_mib
from hypothesis import event, given, settings
from hypothesis import strategies as st

USERS = ("ann", "bob", "eve")
KINDS = {"A100": 16384, "T4": 8192}
SIZES = (50, 200, 300, 500, 1000)


@st.composite
def devices_of_node(draw: st.DrawFn, name: str) -> list[DeviceView]:
    sharing = draw(st.sampled_from(["isolated"] * 6 + ["whole", "open"]))
    pool, zone = draw(st.sampled_from(["default", "spare"])), draw(st.sampled_from(["a", "b"]))
    found = []
    for ordinal in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(list(KINDS)))
        usable = usable_mib(KINDS[kind])
        held, free = [], 1000
        for number in range(draw(st.integers(1, 4))):
            milli = min(draw(st.sampled_from(SIZES)), free)
            if milli:
                free -= milli
                user = draw(st.sampled_from(USERS))
                lease = f"l{name}{ordinal}{number}" if draw(st.booleans()) else f"l{name}-{user}"
                held.append(
                    Held(
                        lease if all(lease != h.lease_id for h in held) else lease + "x",
                        user, milli, usable if sharing == "open" else milli * usable // 1000,
                    )
                )  # fmt: skip
        rest = usable - sum(h.mib for h in held)
        if rest > 100 and draw(st.booleans()):
            mib = draw(st.integers(1, rest))
            stays = draw(st.sampled_from([NOTHING, obstacles.because("global-addresses")]))
            held.append(Held("", draw(st.sampled_from(USERS)), 0, mib, f"s{name}{ordinal}", mib, stays=stays))
        healthy = draw(st.integers(0, 5)) > 0
        found.append(
            DeviceView(
                f"{name}/{ordinal}", name, KINDS[kind], healthy, "" if healthy else "it is unwell", tuple(held), kind,
                pool, {"zone": zone}, draw(st.sampled_from(["580.65", "570.1"])), False, sharing,
            )
        )  # fmt: skip
    return found


@st.composite
def pools(draw: st.DrawFn) -> PoolView:
    devices = [device for name in "abc"[: draw(st.integers(1, 3))] for device in draw(devices_of_node(name))]
    quotas = {}
    if draw(st.booleans()):
        milli, shares = draw(st.sampled_from([None, 300, 1000, 2000])), draw(st.sampled_from([None, 1, 3]))
        quotas = {draw(st.sampled_from(["*", "ann"])): Quota(milli, shares)}
    reserved = draw(st.sets(st.sampled_from([device.id for device in devices]), max_size=1))
    room = {device.node: draw(st.sampled_from([0, 5000, 50000])) for device in devices}
    return PoolView(tuple(devices), quotas, frozenset(reserved), room)


conditions = st.lists(
    st.sampled_from(
        ["name=A100", "name!=*100", "memory>=12GiB", "driver>=575", "node=a|b", "label.zone=a", "software=no"]
    ).map(parse),
    min_size=1,
    max_size=2,
    unique=True,
).map(tuple)
#: Most requests name none: else nearly all would be refused.
filters = st.sampled_from([False, False, False, True]).flatmap(
    lambda any_: conditions if any_ else st.just(())
)


@st.composite
def requests(draw: st.DrawFn) -> Request:
    by_memory = draw(st.integers(0, 3)) == 0
    return Request(
        "ann",
        None if by_memory else draw(st.sampled_from(SIZES)),
        draw(st.sampled_from([1, 3000, 9000])) if by_memory else None,
        draw(st.sampled_from([1, 1, 2, 3])),
        nodes=draw(st.sampled_from(["auto", "one", "any"])),
        filters=draw(filters),
        pools=draw(st.sampled_from([(), (), (), (), (), ("spare",), ("spare", "default")])),
        isolated=draw(st.integers(0, 9)) > 0,
    )


def share_on(device: DeviceView, request: Request) -> tuple[int, int] | None:
    """(milli, MiB) of one share there, by the rules as they are documented."""
    usable = usable_mib(device.total_mib)
    if (device.sharing == "open") == request.isolated or (
        device.sharing == "whole" and request.milli != 1000
    ):
        return None
    if device.sharing == "open":
        return None if request.milli is None else (request.milli, 0)
    if request.mib is not None:
        return None if request.mib > usable else (-(-request.mib * 1000 // usable), request.mib)
    assert request.milli is not None
    mib = request.milli * usable // 1000
    return (request.milli, mib) if mib else None


def fits_on(view: PoolView, device: DeviceView, request: Request) -> bool:
    share = share_on(device, request)
    if share is None or not device.healthy or device.id in view.reserved:
        return False
    if (request.pools and device.pool not in request.pools) or not all(
        wish.matches(device) for wish in request.filters
    ):
        return False
    taken = sum(held.milli for held in device.held)
    mib = 0 if device.sharing == "open" else sum(held.mib for held in device.held)
    return share[0] + taken <= 1000 and share[1] + mib <= usable_mib(device.total_mib)


def placeable(view: PoolView, request: Request) -> bool:
    """Whether some choice of devices of one node, or of one kind on any where that is allowed, holds the shares."""
    good = [device for device in view.devices if fits_on(view, device, request)]
    for chosen in combinations(good, request.count):
        if len({device.node for device in chosen}) == 1:
            return True
        together = len({device.kind for device in chosen}) == 1
        together &= len({device.pool for device in chosen}) == 1 or not request.pools
        if request.nodes == "any" and together:
            return True
    return False


def check_grant(view: PoolView, request: Request, shares: tuple[PlacedShare, ...]) -> None:
    by_id = {device.id: device for device in view.devices}
    assert len({share.device_id for share in shares}) == request.count == len(shares)
    for share in shares:
        device = by_id[share.device_id]
        assert fits_on(view, device, request), share
        expected = share_on(device, request)
        assert expected is not None
        limit = usable_mib(device.total_mib) if device.sharing == "open" else expected[1]
        assert (share.milli, share.mib) == (expected[0], limit)
    quota = view.quota_of(request.user)
    milli, number = view.held_by(request.user)
    if quota.milli is not None:
        assert milli + sum(share.milli for share in shares) <= quota.milli
    if quota.shares is not None:
        assert number + len(shares) <= quota.shares


def check_facts(view: PoolView, request: Request, decision: Decision) -> None:
    facts = decision.facts
    assert facts["count"] == request.count
    assert (facts.get("asked_milli"), facts.get("asked_mib")) == (request.milli, request.mib)
    assert facts["devices"] == len(view.devices)
    mine = [h for device in view.devices for h in device.held if h.user == request.user and h.lease_id]
    if "held_milli" in facts:
        assert (facts["held_milli"], facts["held_shares"]) == (sum(h.milli for h in mine), len(mine))
    quota = view.quota_of(request.user)
    assert (facts.get("quota_milli"), facts.get("quota_shares")) == (quota.milli, quota.shares)
    if "device" in facts:
        device = next(device for device in view.devices if device.id == facts["device"])
        assert facts["free_milli"] == 1000 - sum(held.milli for held in device.held)
        assert facts["free_mib"] == max(0, device.free_mib)
        assert device.id in decision.wants


@settings(max_examples=250)
@given(pools(), requests())
def test_what_is_advised_works_and_the_numbers_are_right(view: PoolView, wish: Request) -> None:
    decision = decide(view, wish)
    event(f"{decision.outcome.value} {decision.reason}")
    if decision.outcome is Outcome.GRANT:
        check_grant(view, wish, decision.shares)
        return
    assert decision.explanation and decision.reason
    check_facts(view, wish, decision)
    for help in decision.helps:
        event(help.action)
        assert help.sentence
        if help.request is not None:
            advised = decide(view, help.request)
            assert advised.outcome is Outcome.GRANT, (help, advised)
            check_grant(view, help.request, advised.shares)
        if help.releases:
            held = [h for device in view.devices for h in device.held if h.lease_id in help.releases]
            assert sum(h.milli for h in held) == help.release_milli
            assert {h.user for h in held} == {wish.user}
            after = view.without(help.releases)
            assert decide(after, wish).outcome is Outcome.GRANT
    if decision.reason == "full":
        assert not placeable(view, wish)
    if decision.outcome is Outcome.REFUSE and decision.reason == "bad-share":
        empty = PoolView(
            tuple(
                DeviceView(
                    d.id, d.node, d.total_mib, True, "", (), d.kind, d.pool, d.labels, d.driver, d.software, d.sharing,
                )
                for d in view.devices
            )
        )  # fmt: skip
        assert not placeable(empty, wish), "it was refused for good, but an empty pool would serve it"


@settings(max_examples=100)
@given(pools(), requests(), st.data())
def test_what_ifs_leave_the_view_as_it_was(view: PoolView, wish: Request, data: st.DataObject) -> None:
    before = [(device.id, device.held, device.healthy) for device in view.devices]
    first = decide(view, wish)
    leases = sorted({held.lease_id for device in view.devices for held in device.held if held.lease_id})
    gone = set(data.draw(st.lists(st.sampled_from(leases), unique=True))) if leases else set()
    without = view.without(gone)
    anew = PoolView(
        tuple(
            DeviceView(
                d.id, d.node, d.total_mib, d.healthy, d.health_reason,
                tuple(h for h in d.held if h.lease_id not in gone), d.kind, d.pool, d.labels, d.driver, d.software, d.sharing,
            )
            for d in view.devices
        ),
        view.quotas, view.reserved, view.host_room,
    )  # fmt: skip
    assert decide(without, wish) == decide(anew, wish)
    assert without.held_by("ann") == anew.held_by("ann")
    taken = view.taking((PlacedShare(view.devices[0].id, 1, 1),), "eve").reserving(view.reserved)
    assert taken.held_by("eve")[0] == view.held_by("eve")[0] + 1
    decide(taken, wish)
    assert [(device.id, device.held, device.healthy) for device in view.devices] == before
    assert decide(view, wish) == first

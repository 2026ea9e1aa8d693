"""Moves that make room: at most two, everybody has a place, and the request fits once they are done."""

from __future__ import annotations

from gpupool.filters import parse
from gpupool.scheduler import DeviceView, Held, Outcome, PlacedShare, PoolView, Request, decide
from gpupool.scheduler.relocate import Movable, relocation
from gpupool.shares import mib_of_milli, usable_mib
from hypothesis import event, given, settings
from hypothesis import strategies as st

TOTALS = {"A100": 16384, "T4": 8192}


def device(name: str, kind: str, sizes: list[int]) -> DeviceView:
    usable, free, held = usable_mib(TOTALS[kind]), 1000, []
    for number, milli in enumerate(sizes):
        if milli <= free:
            free -= milli
            held.append(Held(f"l{name}-{number}", "ann", milli, mib_of_milli(milli, usable)))
    node = name.split("/")[0]
    # The third node is in a node pool of its own.
    node_pool = "other" if node == "c" else ""
    return DeviceView(name, node, TOTALS[kind], held=tuple(held), kind=kind, pool=node_pool)


sizes = st.lists(st.sampled_from([100, 200, 300, 400, 600]), max_size=3)
devices = st.lists(
    st.tuples(st.sampled_from(["a/0", "a/1", "b/0", "b/1", "c/0"]), st.sampled_from(list(TOTALS)), sizes),
    min_size=1,
    max_size=5,
    unique_by=lambda row: row[0],
).map(lambda rows: tuple(device(*row) for row in rows))


def movables(view: PoolView, kept: int, bound: bool) -> dict[str, Movable]:
    return {
        held.lease_id: Movable(PlacedShare(device.id, held.milli, held.mib), kept, bound)
        for device in view.devices
        for held in device.held
    }


@settings(max_examples=300)
@given(
    devices, st.sampled_from([300, 500, 700, 1000]), st.sampled_from([0, 100]), st.booleans(),
    st.sampled_from([0, 100, 150, 1000]), st.sampled_from(["", "name=T4", "node=a"]), st.data(),
)  # fmt: skip
def test_what_is_moved_has_a_place_and_the_request_fits_then(
    found: tuple[DeviceView, ...],
    milli: int,
    kept: int,
    bound: bool,
    room: int,
    wish: str,
    data: st.DataObject,
) -> None:
    reserved = frozenset(data.draw(st.sets(st.sampled_from([d.id for d in found]), max_size=1)))
    view = PoolView(found, {}, reserved, dict.fromkeys("abc", room))
    request = Request("bob", milli, filters=(parse(wish),) if wish else ())
    before = decide(view, request, helps=False)
    moves = relocation(view, request, movables(view, kept, bound))
    assert decide(view, request, helps=False) == before, "the search left something behind"
    if moves is None:
        return
    event(f"{len(moves.moved)} moves")
    assert 1 <= len(moves.moved) <= 2
    assert len({moved.lease_id for moved in moves.moved}) == len(moves.moved)
    after = view.without([moved.lease_id for moved in moves.moved]).taking(moves.shares, "bob")
    through: dict[str, int] = {}
    by_id = {device.id: device for device in found}
    for moved in moves.moved:
        source, target = by_id[moved.source.device_id], by_id[moved.target.device_id]
        assert source.id not in reserved
        assert target.id not in reserved
        assert (target.kind, target.total_mib) == (source.kind, source.total_mib)
        assert target.pool == source.pool, "its request may have named the node pool"
        assert not bound or source.node == target.node
        through[source.node] = through.get(source.node, 0) + kept
        after = after.taking((moved.target,), "ann", f"{moved.lease_id}-moved")
    assert all(mib <= room for mib in through.values())
    assert all(device.free_milli >= 0 and device.free_mib >= 0 for device in after.devices)
    (share,) = moves.shares
    assert all(condition.matches(by_id[share.device_id]) for condition in request.filters)
    gone = view.without([moved.lease_id for moved in moves.moved])
    assert (
        decide(gone.taking([m.target for m in moves.moved], "x"), request, helps=False).outcome
        is Outcome.GRANT
    )


def test_one_share_goes_where_it_fits_so_that_a_whole_device_is_free() -> None:
    view = PoolView((device("a/0", "T4", [300]), device("a/1", "T4", [600])), {}, host_room={"a": 500})
    request = Request("bob", 1000)
    assert decide(view, request).outcome is Outcome.QUEUE
    moves = relocation(view, request, movables(view, 400, bound=True))
    assert moves is not None
    assert [(m.lease_id, m.target.device_id) for m in moves.moved] == [("la/0-0", "a/1")]
    assert moves.shares == (PlacedShare("a/0", 1000, 7936),)
    assert relocation(view, request, movables(view, 501, bound=True)) is None, (
        "host memory has no room for it"
    )
    assert relocation(view, request, {}) is None

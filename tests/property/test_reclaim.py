"""Which leases end for a request: of all choices that make room and are allowed, the cheapest."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from gpupool.scheduler import DeviceView, Held, PlacedShare, PoolView, Request, decide
from gpupool.scheduler.reclaim import Candidate, Plan, Search, after, plan, serves
from gpupool.sentences import NOTHING, plain
from gpupool.shares import mib_of_milli, usable_mib
from hypothesis import event, given, settings
from hypothesis import strategies as st

TOTAL = 16384
USABLE = usable_mib(TOTAL)
#: What a lease leaves behind, in parts of its memory; below zero: it cannot leave the device.
KEPT = (0.0, 0.0, 0.5, -0.5, -1.5)

leases = st.lists(
    st.tuples(st.sampled_from([50, 100, 125, 200, 300, 450]), st.sampled_from(KEPT), st.integers(0, 2)),
    min_size=1,
    max_size=8,
)


def pool_of(rows: Sequence[tuple[int, float, int]]) -> tuple[PoolView, list[Candidate]]:
    """Leases on as few devices as have room, and what could end of them: all."""
    held: list[list[Held]] = [[]]
    candidates = []
    for number, (milli, kept, rank) in enumerate(rows):
        if sum(x.milli for x in held[-1]) + milli > 1000:
            held.append([])
        device, name, mib = f"a/{len(held) - 1}", f"l{number}", mib_of_milli(milli, USABLE)
        held[-1].append(Held(name, "ann", milli, mib))
        memory = round(abs(kept) * mib)
        stays = plain("it has managed memory") if kept < 0 else NOTHING
        parked = Held("", "ann", 0, 0, session_id=f"s{number}", session_mib=memory, stays=stays)
        where = (PlacedShare(device, 0, memory),)
        share = PlacedShare(device, milli, mib)
        candidates.append(Candidate((name,), (share,), (float(rank),), ((parked, where),) if memory else ()))
    devices = tuple(DeviceView(f"a/{n}", "a", TOTAL, held=tuple(some)) for n, some in enumerate(held))
    return PoolView(devices, {}, frozenset(), {"a": 1_000_000}), candidates


def cost(some: Sequence[Candidate]) -> tuple[object, ...]:
    """Milli-GPU, then the ranks, the highest first, then the names."""
    ranks = sorted((x.rank for x in some), reverse=True)
    return sum(x.milli for x in some), ranks, sorted(x.id for x in some)


@settings(max_examples=100, deadline=None)
@given(leases, st.sampled_from([100, 300, 500, 1000]), st.booleans(), st.data())
def test_the_cheapest_of_all_choices_that_are_allowed_ends(
    rows: list[tuple[int, float, int]], milli: int, by_memory: bool, data: st.DataObject
) -> None:
    view, candidates = pool_of(rows)
    request = Request("bob", mib=mib_of_milli(milli, USABLE)) if by_memory else Request("bob", milli)
    names = st.sampled_from([x.id for x in candidates])
    forbidden = data.draw(st.sets(st.frozensets(names, min_size=1), max_size=8))
    search = Search(
        request,
        lambda pool: decide(pool, request, helps=False, words=False),
        lambda some: frozenset(x.id for x in some) not in forbidden,
    )
    choices: list[tuple[Candidate, ...]] = [()]
    for device in view.devices:  # what lies on another device makes no room on this one
        here = [x for x in candidates if x.shares[0].device_id == device.id]
        choices += (some for size in range(1, len(here) + 1) for some in combinations(here, size))
    enough = [some for some in choices if search.allowed(some) and serves(search.decide(after(view, some)))]
    if () in enough:
        event("there is room")
        return
    found = plan(view, search, candidates)
    best = min(enough, key=cost, default=None)
    event("room is made" if found else "nothing makes room")
    assert names_of(found) == (None if best is None else sorted(x.id for x in best))


def names_of(found: Plan | None) -> list[str] | None:
    return None if found is None else sorted(x.id for x in found.victims)

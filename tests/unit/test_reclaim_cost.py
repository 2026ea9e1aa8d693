"""Looking for leases that end for a request costs about what there are, and not what could be combined of them."""

from __future__ import annotations

import pytest
from gpupool.scheduler import DeviceView, Held, PlacedShare, PoolView, Request, decide
from gpupool.scheduler.reclaim import Candidate, Search, plan
from gpupool.shares import mib_of_milli, usable_mib

from tests.support.instructions_counted import instructions_of

TOTAL = 16384
DEVICES = 20


def cost(leases: int, could_end: int) -> int:
    """Of a search for a whole device, where each has so many leases and so many of them could end."""
    milli = 1000 // leases
    mib = mib_of_milli(milli, usable_mib(TOTAL))
    devices, candidates = [], []
    for name in (f"a/{number}" for number in range(DEVICES)):
        held = tuple(Held(f"l{name}-{number}", "ann", milli, mib) for number in range(leases))
        devices.append(DeviceView(name, "a", TOTAL, held=held))
        share = PlacedShare(name, milli, mib)
        candidates += [Candidate((x.lease_id,), (share,)) for x in held[:could_end]]
    view = PoolView(tuple(devices), {}, frozenset(), {"a": 0})
    request = Request("bob", 1000)
    search = Search(request, lambda pool: decide(pool, request, helps=False, words=False), lambda some: True)
    found = []
    count = instructions_of(lambda: found.append(plan(view, search, candidates)))
    assert bool(found[0]) == (could_end == leases)
    return count


@pytest.mark.parametrize("others", [0, 1], ids=["all are enough", "all are not enough"])
def test_a_search_grows_with_the_leases_and_not_with_their_choices(others: int) -> None:
    # Four times as many leases; of eight there are 85 times as many choices as of two.
    assert cost(8, 8 - others) < 8 * cost(2, 2 - others)

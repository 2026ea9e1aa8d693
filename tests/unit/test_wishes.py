"""Filters, node pools, sharing modes, drained nodes and kept places: what the scheduler makes of them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from gpupool.filters import parse, type_of
from gpupool.model import events
from gpupool.pool.model.holds import keeps_place
from gpupool.request.forms import of_keywords
from gpupool.scheduler import (
    Decision,
    DeviceView,
    Held,
    Outcome,
    Parked,
    PlacedShare,
    PoolView,
    Request,
    decide,
)
from gpupool.scheduler.helps import advised
from gpupool.sentences import say

from tests.support.pool_world import PoolWorld, lease, session

FULL = Held("l1", "ann", 1000, 7936)
ANN_07 = Held("l2", "ann", 700, 5555)


def device(name: str, *held: Held, **more: object) -> DeviceView:
    return DeviceView(name, name.split("/")[0], 8192, held=held, **more)  # type: ignore[arg-type]


def placed(view: PoolView, request: Request) -> list[str]:
    decision = decide(view, request)
    assert decision.outcome is Outcome.GRANT, decision.explanation
    return [share.device_id for share in decision.shares]


def help_of(decision: Decision, action: str) -> str:
    return next(help.sentence for help in decision.helps if help.action == action)


class TestFilters:
    POOL = PoolView(
        (device("a/0", kind="A100"), device("b/0", FULL, kind="H100"), device("b/1", FULL, kind="H100"))
    )

    def test_only_what_matches_is_taken(self):
        assert placed(self.POOL, Request("bob", 200, filters=(parse("name=A*"), parse("node=a")))) == ["a/0"]

    def test_who_waits_is_told_what_fits_without_them(self):
        decision = decide(self.POOL, Request("bob", 200, filters=(parse("name=H100"),)))
        assert (decision.outcome, decision.reason, decision.wants) == (Outcome.QUEUE, "full", ("b/0",))
        assert (
            help_of(decision, "other-device") == "without the filter name=H100 it would fit now on a/0 (A100)"
        )
        assert "without the filter name=H100" in decision.explanation

    def test_with_many_filters_one_decision_says_what_fits_without_all_of_them(self):
        pool = PoolView((device("a/0", kind="A100"), device("b/0", FULL, kind="H100")))
        filters = tuple(parse(f"name!=*A{number}*") for number in range(100, 116))
        asked = Request("bob", 200, filters=filters)
        tried = []

        def counted(view: PoolView, request: Request) -> Decision:
            tried.append(request.filters)
            return decide(view, request, helps=False)

        found = advised(pool, asked, decide(pool, asked, helps=False), counted)
        assert (
            help_of(found, "other-device")
            == "without filters, in any node pool it would fit now on a/0 (A100)"
        )
        assert sum(len(one) < len(filters) for one in tried) == 1

    def test_where_nothing_fits_without_all_filters_none_is_left_out_alone(self):
        pool = PoolView((device("a/0", FULL, kind="A100"), device("b/0", FULL, kind="H100")))
        asked = Request("bob", 200, filters=(parse("name=H100"), parse("node=b"), parse("memory>=1GiB")))
        tried = []

        def counted(view: PoolView, request: Request) -> Decision:
            tried.append(request.filters)
            return decide(view, request, helps=False)

        advised(pool, asked, decide(pool, asked, helps=False), counted)
        assert [one for one in tried if len(one) < 3] == [()]

    def test_what_nothing_matches_is_refused_with_how_many_each_excludes(self):
        decision = decide(
            self.POOL, Request("bob", 200, filters=(parse("name=H100"), parse("memory>=40GiB")))
        )
        assert (decision.outcome, decision.reason) == (Outcome.REFUSE, "bad-share")
        assert "no node has a GPU as asked" in decision.explanation
        assert "2 are not memory>=40GiB, 1 are not name=H100" in decision.explanation

    def test_a_session_goes_on_only_where_they_match(self):
        parked = Parked("s1", ("b/0",), (10,), "host")
        free = PoolView(
            (device("b/0", kind="H100"), device("c/0", kind="H100", driver="580")), host_room={"b": 99}
        )
        assert placed(free, Request("bob", 200, parked=parked)) == ["b/0"]
        assert placed(free, Request("bob", 200, parked=parked, filters=(parse("driver>=570"),))) == ["c/0"]
        full = PoolView(
            (device("b/0", kind="H100"), device("c/0", ANN_07, kind="H100", driver="580")),
            host_room={"b": 99},
        )
        later = decide(full, Request("bob", 400, parked=parked, filters=(parse("driver>=570"),)))
        assert later.outcome is Outcome.QUEUE
        assert "the session's memory is on b/0, which is not driver>=570" in later.explanation

    def test_a_session_too_is_refused_at_once_what_no_device_is_with_those_that_there_are(self):
        parked = Parked("s1", ("b/0",), (10,), "host")
        pool = PoolView((device("b/0", kind="H100"), device("c/0", kind="H100"), device("d/0", kind="A100")))
        for more in ({"parked": parked}, {}):
            refused = decide(pool, Request("bob", 200, filters=(parse("name=*B200*"),), **more))
            assert (refused.outcome, refused.reason) == (Outcome.REFUSE, "bad-share")
            assert "3 are not of type B200; there are: 2 × H100, 1 × A100" in refused.explanation

    @pytest.mark.parametrize("wanted", ["H100", "H100|A100", "RTX 4090", "H1?0", "*H100"])
    def test_a_type_is_told_as_it_was_written(self, wanted):
        (condition,) = of_keywords({"type": wanted}).filters
        said = type_of(condition)
        # What has a wildcard is told as the condition that it stands for.
        assert said == ("" if set(wanted) & set("*?") else wanted)

    @pytest.mark.parametrize(
        "condition", ["name=H100", "name!=*H100*", "name=*H100", "name=**", "node=*H100*"]
    )
    def test_other_conditions_are_no_type(self, condition):
        assert not type_of(str(parse(condition)))


class TestNodePools:
    POOL = PoolView((device("a/0", pool="small"), device("b/0", ANN_07, pool="large")))

    def test_the_first_that_has_room_is_taken(self):
        assert placed(self.POOL, Request("bob", 200, pools=("large", "small"))) == ["b/0"]
        assert placed(self.POOL, Request("bob", 500, pools=("large", "small"))) == ["a/0"]
        assert placed(self.POOL, Request("bob", 500, pools=("small", "large"))) == ["a/0"]

    def test_all_named_are_waited_for_and_no_other(self):
        decision = decide(self.POOL, Request("bob", 500, pools=("large",)))
        assert (decision.outcome, decision.wants) == (Outcome.QUEUE, ("b/0",))
        assert help_of(decision, "other-device") == "in any node pool it would fit now on a/0"

    def test_one_that_nobody_is_in_is_refused_and_the_others_are_named(self):
        decision = decide(self.POOL, Request("bob", 500, pools=("lrage",)))
        assert (decision.outcome, decision.reason) == (Outcome.REFUSE, "bad-share")
        assert "2 are in other node pools; there are node pools large, small" in decision.explanation

    def test_room_is_made_in_the_first_where_it_can_be(self):
        parked = Held("", "ann", 0, 7000, "s1", 7000)
        view = PoolView(
            (
                device("a/0", parked, pool="small"),
                device("b/0", replace(parked, session_id="s2"), pool="large"),
            ),
            host_room={"a": 9000, "b": 9000},
        )
        assert decide(view, Request("bob", 500, pools=("large", "small"))).evict == ("s2",)


class TestSharing:
    def test_a_device_that_is_lent_whole_takes_no_shares(self):
        view = PoolView((device("a/0", sharing="whole"), device("b/0", ANN_07)))
        assert placed(view, Request("bob", 1000)) == ["a/0"]
        decision = decide(view, Request("bob", 500))
        assert (decision.outcome, decision.wants) == (Outcome.QUEUE, ("b/0",))
        assert decide(PoolView(view.devices[:1]), Request("bob", mib=7936)).outcome is Outcome.REFUSE

    def test_open_devices_are_for_those_who_ask_for_no_isolation(self):
        view = PoolView((device("a/0", sharing="open"), device("b/0")))
        assert placed(view, Request("bob", 200)) == ["b/0"]
        assert placed(view, Request("bob", 200, isolated=False)) == ["a/0"]

    def test_there_compute_is_counted_and_memory_is_only_a_limit(self):
        view = PoolView((device("a/0", sharing="open"),))
        for number in range(5):
            (share,) = decide(view, Request("bob", 200, isolated=False)).shares
            assert share == PlacedShare("a/0", 200, 7936)
            view = view.taking([share], "bob", f"l{number}")
        decision = decide(view, Request("bob", 200, isolated=False))
        assert (decision.outcome, decision.reason) == (Outcome.QUEUE, "full")

    def test_there_a_share_is_named_by_compute(self):
        decision = decide(
            PoolView((device("a/0", sharing="open"),)), Request("bob", mib=1000, isolated=False)
        )
        assert (decision.outcome, decision.reason) == (Outcome.REFUSE, "bad-share")

    def test_who_waits_for_memory_of_their_own_is_told_of_an_open_device(self):
        view = PoolView((device("a/0", sharing="open"), device("b/0", FULL)))
        said = help_of(decide(view, Request("bob", 200)), "isolation")
        assert said == "without memory isolation it would fit now on a/0"

    def test_who_asks_for_none_where_there_is_none_is_refused(self):
        decision = decide(PoolView((device("b/0"),)), Request("bob", 200, isolated=False))
        assert (decision.outcome, decision.reason) == (Outcome.REFUSE, "bad-share")
        assert "1 are not shared in that way" in decision.explanation

    def test_memory_asked_on_devices_of_two_sizes_is_another_part_of_each(self):
        small = DeviceView("a/0", "a", 8192, kind="T4")
        large = DeviceView("b/0", "b", 81920, kind="A100")
        (share,) = decide(PoolView((small,)), Request("bob", mib=7000)).shares
        assert share == PlacedShare("a/0", 883, 7000)
        (share,) = decide(PoolView((small, large)), Request("bob", mib=9000)).shares
        assert share == PlacedShare("b/0", 114, 9000)


class TestDrainedNodes:
    def test_take_nothing_new_and_say_so(self):
        world = PoolWorld(nodes={"node1": 1})
        world.connect()
        world.handle(events.NodeDrained(world.now, "node1", True, "new memory", "root"))
        world.request("k1", 200, wait=None)
        request = next(iter(world.machine.state.requests.values()))
        assert "node node1 is drained (new memory)" in str(request.said)
        assert request.decision is not None
        assert help_of(request.decision, "ask-admin") == "an administrator can let node1 take leases again"
        world.handle(events.NodeDrained(world.now, "node1", False, "", "root"))
        assert not world.machine.state.requests

    def test_what_is_parked_there_goes_on_elsewhere(self):
        world = PoolWorld(nodes={"node1": 1, "node2": 1})
        world.connect("node1")
        world.connect("node2")
        first = world.attach("k1", 200)
        kept = session(world, first)
        other = {"node1": "node2", "node2": "node1"}[kept.node]
        world.release(first)
        world.settle()
        world.handle(events.NodeDrained(world.now, kept.node, True, "", "root"))
        second = world.attach("k2", 200, session_id=kept.id)
        assert lease(world, second).node == other


class TestKeptPlaces:
    def test_room_is_kept_for_a_session_that_was_moved_and_for_nobody_else(self):
        world = PoolWorld(nodes={"node1": 2})
        world.connect()
        first = world.attach("k1", 700)
        kept = session(world, first)
        world.release(first)
        world.settle()
        state = world.machine.state
        place = PlacedShare("node1/1", 700, 5555)
        state.sessions[kept.id] = replace(
            state.sessions[kept.id], kept_place=(place,), kept_until=world.now + 60.0
        )
        state.commit()
        assert keeps_place(state, state.sessions[kept.id], world.now)
        assert world.free("node1/1") == 300
        world.request("k2", 1000, user="bob", wait=None)
        (request,) = state.requests.values()
        assert request.decision is not None
        world.advance(61.0)
        assert world.free("node1/1") == 1000

    @pytest.mark.parametrize("where", ["n/2", "m/1"])
    def test_the_session_goes_on_there(self, where):
        held = Held("", "ann", 700, 5555, "s1", stays=say("stays.expected"))
        others = [device(name) for name in ("m/0", "n/1") if name[0] == where[0]]
        view = PoolView((device("n/0", FULL), *others, device(where, held)), host_room={"n": 100})
        assert placed(view, Request("bob", 500)) != [where]
        parked = Parked("s1", ("n/0",), (10,), "host")
        resuming = view.resuming(["s1"])
        assert placed(resuming, Request("ann", 700, parked=parked)) != [where]
        kept = replace(parked, kept_place=(where,))
        assert placed(resuming, Request("ann", 700, parked=kept)) == [where]
        taken = view.taking([PlacedShare(where, 300, 2380)], "bob")
        assert placed(taken, Request("ann", 700, parked=replace(parked, kept_place=(where,)))) != [where]

"""Shares on several nodes, as a table: when they may be, where they go, and where a parked gang goes on."""

from __future__ import annotations

import pytest
from gpupool.scheduler import DeviceView, Held, Outcome, Parked, PoolView, Quota, Request, decide
from gpupool.sentences import obstacles, say

ANN_07 = Held("l1", "ann", 700, 5555)
BOB_08 = Held("l2", "bob", 800, 6348)


def device(name: str, *held: Held, healthy: bool = True, kind: str = "") -> DeviceView:
    return DeviceView(name, name.split("/")[0], 8192, healthy, "" if healthy else "it is unwell", held, kind)


def pool(*devices: DeviceView, host: int = 0, quota: Quota | None = None) -> PoolView:
    room = {device.node: host for device in devices}
    return PoolView(devices, {"*": quota} if quota else {}, host_room=room)


def places(view: PoolView, request: Request) -> list[str]:
    decision = decide(view, request)
    assert decision.outcome is Outcome.GRANT, decision.explanation
    assert {share.milli for share in decision.shares} == {request.milli}
    return [share.device_id for share in decision.shares]


def parked(session: str, *devices: str, mib: int = 100, **more: object) -> Parked:
    return Parked(session, devices, tuple(mib for _ in devices), **more)  # type: ignore[arg-type]


class TestWhetherSeveralNodesAreTaken:
    def test_one_node_is_preferred_although_several_would_be_tighter(self):
        view = pool(device("a/0"), device("a/1"), device("b/0", ANN_07), device("c/0", ANN_07))
        assert places(view, Request("bob", 200, count=2, nodes="any")) == ["a/0", "a/1"]

    def test_on_auto_several_are_taken_where_no_node_could_ever_serve(self):
        view = pool(device("a/0"), device("b/0"))
        assert places(view, Request("bob", 500, count=2)) == ["a/0", "b/0"]

    def test_on_auto_the_request_waits_for_the_node_that_could_and_is_told_the_way_out(self):
        view = pool(device("a/0"), device("a/1", ANN_07), device("b/0"))
        decision = decide(view, Request("bob", 500, count=2))
        assert (decision.outcome, decision.reason, decision.wants) == (Outcome.QUEUE, "full", ("a/0", "a/1"))
        assert "0.5 of a GPU on each of 2 devices of one node is asked" in decision.explanation
        assert (
            "a/0, b/0 on several nodes would fit now, to be allowed with --nodes any" in decision.explanation
        )

    def test_any_takes_several_when_no_single_one_has_room(self):
        view = pool(device("a/0"), device("a/1", ANN_07), device("b/0"))
        assert places(view, Request("bob", 500, count=2, nodes="any")) == ["a/0", "b/0"]

    def test_a_node_from_which_parked_memory_can_leave_has_room(self):
        kept = Held("", "ann", 0, 6000, session_id="s1", session_mib=6000)
        view = pool(device("a/0"), device("a/1", kept), device("b/0"), host=9000)
        decision = decide(view, Request("bob", 500, count=2, nodes="any"))
        assert (decision.outcome, decision.evict, decision.wants) == (Outcome.QUEUE, ("s1",), ("a/0", "a/1"))

    def test_parked_memory_leaves_several_nodes_for_one_request(self):
        keeps = [Held("", "ann", 0, 6000, session_id=f"s{i}", session_mib=6000) for i in (1, 2)]
        view = pool(device("a/0", keeps[0]), device("b/0", keeps[1]), host=9000)
        decision = decide(view, Request("bob", 500, count=2))
        assert decision.outcome is Outcome.QUEUE
        assert (set(decision.evict), decision.wants) == ({"s1", "s2"}, ("a/0", "b/0"))

    def test_one_share_is_never_spread(self):
        view = pool(device("a/0", ANN_07), device("b/0", BOB_08))
        decision = decide(view, Request("bob", 500, nodes="any"))
        assert decision.outcome is Outcome.QUEUE
        assert "nodes" not in decision.explanation

    def test_a_full_pool_says_on_how_many_nodes_it_looked(self):
        view = pool(device("a/0", ANN_07), device("b/0", BOB_08))
        decision = decide(view, Request("eve", 500, count=2))
        assert (decision.outcome, decision.wants) == (Outcome.QUEUE, ("a/0", "b/0"))
        assert "0.5 of a GPU on each of 2 devices on up to 2 nodes is asked" in decision.explanation
        assert "the fullest, b/0, has 0.20 (1588 MiB) left; bob holds 0.80" in decision.explanation

    def test_more_than_all_nodes_have_is_refused_at_once(self):
        decision = decide(pool(device("a/0"), device("b/0")), Request("bob", 500, count=3))
        assert (decision.outcome, decision.reason) == (Outcome.REFUSE, "bad-share")
        assert "at most 2 device(s) of one kind" in decision.explanation

    def test_nodes_that_are_unwell_are_waited_for(self):
        decision = decide(pool(device("a/0"), device("b/0", healthy=False)), Request("bob", 500, count=2))
        assert (decision.outcome, decision.reason) == (Outcome.QUEUE, "no-node")
        assert "b/0: it is unwell" in decision.explanation

    @pytest.mark.parametrize(
        ("quota", "outcome", "words"),
        [
            (Quota(milli=900), Outcome.REFUSE, "1.00 GPU is asked; the quota of bob is 0.90"),
            (Quota(shares=1), Outcome.REFUSE, "2 shares are asked; the quota of bob is 1"),
            (Quota(milli=1000), Outcome.GRANT, "granted"),
        ],
    )
    def test_a_quota_counts_the_shares_of_all_nodes(self, quota, outcome, words):
        decision = decide(pool(device("a/0"), device("b/0"), quota=quota), Request("bob", 500, count=2))
        assert decision.outcome is outcome
        assert words in decision.explanation


class TestWhereTheSharesGo:
    def test_on_as_few_nodes_as_possible(self):
        view = pool(*(device(f"{node}/0") for node in "abcd"), device("d/1"), device("d/2"))
        assert places(view, Request("bob", 500, count=4)) == ["a/0", "d/0", "d/1", "d/2"]

    def test_among_as_many_nodes_on_the_tightest_devices(self):
        view = pool(device("a/0"), device("b/0", ANN_07), device("c/0", ANN_07))
        assert places(view, Request("bob", 300, count=2)) == ["b/0", "c/0"]

    def test_all_are_of_one_kind(self):
        view = pool(device("a/0", kind="T4"), device("b/0", kind="H100"), device("c/0", kind="H100"))
        assert places(view, Request("bob", 500, count=2)) == ["b/0", "c/0"]
        decision = decide(view, Request("bob", 500, count=3))
        assert "at most 2 device(s) of one kind" in decision.explanation

    def test_devices_of_one_node_stand_together(self):
        view = pool(device("b/0"), device("a/1"), device("b/1"), device("a/0"), device("c/0", ANN_07))
        assert places(view, Request("bob", 500, count=4)) == ["a/0", "a/1", "b/0", "b/1"]

    def test_not_on_a_device_that_is_kept_for_somebody_who_waits_longer(self):
        view = PoolView((device("a/0"), device("b/0"), device("c/0")), {}, frozenset({"a/0"}))
        assert places(view, Request("bob", 500, count=2)) == ["b/0", "c/0"]


class TestAParkedGang:
    PARTS = (parked("s1", "a/0"), parked("s2", "b/0"))

    def test_goes_on_where_it_was_as_a_whole(self):
        view = pool(device("a/0"), device("b/0"), device("c/0"))
        assert places(view, Request("ann", 500, count=2, parts=self.PARTS)) == ["a/0", "b/0"]

    def test_waits_as_a_whole_when_one_part_has_no_room(self):
        parts = (parked("s1", "a/0"), parked("s2", "b/0", bound=obstacles.because("graphs")))
        view = pool(device("a/0"), device("b/0", BOB_08), device("c/0"))
        decision = decide(view, Request("ann", 500, count=2, parts=parts))
        assert (decision.outcome, decision.reason, decision.shares) == (Outcome.QUEUE, "full", ())
        assert set(decision.wants) == {"a/0", "b/0"}
        said = [part.value for part in decision.said.params["of"].value]
        assert say("stays-in-node", why=obstacles.because("graphs")) in said

    def test_one_part_goes_on_in_another_node_but_never_where_another_part_is(self):
        view = pool(device("a/0"), device("a/1"), device("b/0", BOB_08), device("c/0"))
        assert places(view, Request("ann", 500, count=2, parts=self.PARTS)) == ["a/0", "c/0"]
        crowded = pool(device("a/0"), device("a/1"), device("b/0", BOB_08))
        assert decide(crowded, Request("ann", 500, count=2, parts=self.PARTS)).outcome is Outcome.QUEUE

    def test_two_parts_do_not_meet_on_a_third_node(self):
        view = pool(device("a/0", ANN_07), device("b/0", BOB_08), device("c/0"), device("c/1"))
        assert decide(view, Request("eve", 500, count=2, parts=self.PARTS)).outcome is Outcome.QUEUE

    def test_nobodys_memory_is_moved_for_one_part_while_another_has_no_room(self):
        kept = Held("", "eve", 0, 6000, session_id="s9", session_mib=6000)
        bound, stays = obstacles.because("graphs"), obstacles.because("managed")
        parts = tuple(
            parked(name, at, bound=bound, stays=stays) for name, at in (("s1", "a/0"), ("s2", "b/0"))
        )
        view = pool(device("a/0", kept), device("b/0", BOB_08), host=9000)
        decision = decide(view, Request("ann", 500, count=2, parts=parts))
        assert (decision.outcome, decision.evict) == (Outcome.QUEUE, ())
        roomy = pool(device("a/0", kept), device("b/0"), host=9000)
        assert decide(roomy, Request("ann", 500, count=2, parts=parts)).evict == ("s9",)

    def test_another_number_of_devices_is_refused(self):
        decision = decide(pool(device("a/0"), device("b/0")), Request("ann", 500, count=1, parts=self.PARTS))
        assert decision.outcome is Outcome.REFUSE
        assert "the session lives on 2 (a/0, b/0)" in decision.explanation

    def test_its_own_shares_count_together_against_the_quota(self):
        view = pool(device("a/0"), device("b/0"), quota=Quota(milli=900))
        decision = decide(view, Request("ann", 500, count=2, parts=self.PARTS))
        assert (decision.outcome, decision.reason) == (Outcome.REFUSE, "quota")
        held = pool(device("a/0", Held("l1", "ann", 300, 100)), device("b/0"), quota=Quota(milli=1000))
        decision = decide(held, Request("ann", 500, count=2, parts=self.PARTS))
        assert (decision.outcome, decision.reason) == (Outcome.QUEUE, "quota")

"""What the scheduler decides, as a table: who asks for what on which devices, and the answer with its numbers."""

from __future__ import annotations

import pytest
from gpupool.scheduler import DeviceView, Held, Outcome, Parked, PoolView, Quota, Request, decide
from gpupool.sentences import obstacles

GIB8 = 8192  # usable 7936
ANN_07 = Held("l1", "ann", 700, 5555)


def device(name: str, *held: Held, total: int = GIB8, healthy: bool = True, why: str = "") -> DeviceView:
    return DeviceView(name, name.split("/")[0], total, healthy, why, held)


def pool(
    *devices: DeviceView,
    quotas: dict[str, Quota] | None = None,
    reserved: tuple[str, ...] = (),
    host_room: dict[str, int] | None = None,
) -> PoolView:
    return PoolView(devices, quotas or {}, frozenset(reserved), host_room or {})


def placed(view: PoolView, request: Request) -> list[tuple[str, int, int]]:
    decision = decide(view, request)
    assert decision.outcome is Outcome.GRANT, decision.explanation
    return [(share.device_id, share.milli, share.mib) for share in decision.shares]


@pytest.mark.parametrize(
    ("milli", "mib", "total", "expected"),
    [
        (200, None, 8192, (200, 1587)),  # floor(200 * 7936 / 1000)
        (1000, None, 8192, (1000, 7936)),
        (1, None, 8192, (1, 7)),
        (None, 2560, 8192, (323, 2560)),  # ceil(2560 * 1000 / 7936)
        (None, 1, 8192, (1, 1)),
        (333, None, 81920, (333, 26460)),  # the reserve of 80 GiB is 3 %: 2458 MiB
        (None, 79462, 81920, (1000, 79462)),
    ],
)
def test_the_other_number_is_derived_from_the_usable_memory(milli, mib, total, expected):
    assert placed(pool(device("n/0", total=total)), Request("ann", milli, mib)) == [("n/0", *expected)]


def test_equal_shares_fill_a_device_exactly():
    view = pool(device("n/0", *[Held(f"l{i}", "ann", 100, 793) for i in range(9)]))
    assert placed(view, Request("bob", 100)) == [("n/0", 100, 793)]


def test_best_fit_takes_the_fullest_device_that_fits():
    view = pool(
        device("n/0"),
        device("n/1", Held("l1", "ann", 700, 5555)),
        device("n/2", Held("l2", "ann", 900, 7142)),
    )
    assert placed(view, Request("bob", 200))[0][0] == "n/1"


def test_ties_go_to_the_lower_id():
    assert placed(pool(device("n/1"), device("n/0")), Request("bob", 200))[0][0] == "n/0"


def test_compute_that_fits_is_not_enough_when_memory_does_not():
    view = pool(device("n/0", Held("", "ann", 0, 7000)), device("n/1", Held("l1", "ann", 500, 3968)))
    assert placed(view, Request("bob", 200))[0][0] == "n/1"


def test_several_shares_go_to_distinct_devices_of_one_node():
    view = pool(device("a/0"), device("a/1", ANN_07), device("b/0"), device("b/1"), device("b/2"))
    assert [share[0] for share in placed(view, Request("bob", 500, count=2))] == ["b/0", "b/1"]


def test_several_shares_of_one_node_are_never_spread_over_nodes():
    view = pool(device("a/0"), device("b/0"))
    decision = decide(view, Request("bob", 100, count=2, nodes="one"))
    assert decision.outcome is Outcome.REFUSE
    assert decision.reason == "bad-share"
    assert "the largest node has 1 device(s)" in decision.explanation
    assert "--nodes any" in decision.explanation


def test_a_full_pool_is_explained_with_numbers_and_what_would_fit():
    decision = decide(pool(device("node1/0", ANN_07)), Request("bob", 500))
    assert decision.outcome is Outcome.QUEUE
    assert decision.reason == "full"
    assert decision.explanation == (
        "0.5 of a GPU is asked; the freest device node1/0 has 0.30 (2381 MiB) left; ann holds 0.70; 0.3 would fit now"
    )
    assert decision.wants == ("node1/0",)


def test_memory_of_a_parked_session_is_named():
    decision = decide(pool(device("n/0", Held("", "ann", 0, 6000))), Request("bob", 500))
    assert "a parked session of ann keeps 6000 MiB" in decision.explanation
    assert "1936 MiB" in decision.explanation


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        (Request("bob", mib=9000), ["9000 MiB is asked", "7936 MiB usable", "at most 7936MiB"]),
        (Request("bob", 200, count=3), ["each of 3 devices", "the largest node has 2 device(s)", "-n 2"]),
    ],
)
def test_what_can_never_fit_is_refused_at_once(wish, words):
    decision = decide(pool(device("n/0"), device("n/1")), wish)
    assert decision.outcome is Outcome.REFUSE
    assert decision.reason == "bad-share"
    for word in words:
        assert word in decision.explanation


def test_without_devices_the_request_waits_and_says_why():
    decision = decide(pool(), Request("bob", 200))
    assert (decision.outcome, decision.reason) == (Outcome.QUEUE, "no-node")
    assert "0 devices" in decision.explanation


def test_an_unhealthy_device_gets_nothing_and_says_why():
    sick = device("n/0", healthy=False, why="node n has been silent for 20 s")
    decision = decide(pool(sick), Request("bob", 200))
    assert (decision.outcome, decision.reason) == (Outcome.QUEUE, "no-node")
    assert "silent for 20 s" in decision.explanation
    assert placed(pool(sick, device("n/1")), Request("bob", 200))[0][0] == "n/1"


QUOTA_FULL = {"ann": Quota(milli=1000)}


@pytest.mark.parametrize(
    ("quotas", "wish", "outcome", "words"),
    [
        ({"ann": Quota(milli=800)}, Request("ann", 100), Outcome.GRANT, "granted 0.10"),
        ({"ann": Quota(milli=800)}, Request("ann", 101), Outcome.QUEUE, "ann holds 0.70 of a quota of 0.80"),
        ({"ann": Quota(milli=800)}, Request("ann", 900), Outcome.REFUSE, "the quota of ann is 0.80"),
        ({"*": Quota(milli=500)}, Request("bob", 600), Outcome.REFUSE, "the quota of bob is 0.50"),
        ({"*": Quota(milli=500), "bob": Quota(milli=900)}, Request("bob", 600), Outcome.GRANT, "granted"),
        ({"ann": Quota(shares=1)}, Request("ann", 100), Outcome.QUEUE, "ann holds 1 of 1 allowed"),
        ({"bob": Quota(shares=1)}, Request("bob", 100, count=2), Outcome.REFUSE, "2 shares are asked"),
    ],
)
def test_quotas(quotas, wish, outcome, words):
    decision = decide(pool(device("n/0", ANN_07), device("n/1"), quotas=quotas), wish)
    assert decision.outcome is outcome
    assert words in decision.explanation
    if outcome is not Outcome.GRANT:
        assert decision.reason == "quota"


@pytest.mark.parametrize("quota", [Quota(milli=1000), Quota(shares=1)])
def test_a_quota_that_is_used_up_is_said_in_a_full_pool_too(quota):
    """No device is kept for what no device would help."""
    held = Held("l1", "ann", 1000, 100)
    other = device("n/1", Held("l2", "bob", 100, 100))
    decision = decide(pool(device("n/0", held), other, quotas={"ann": quota}), Request("ann", 1000))
    assert (decision.outcome, decision.reason, decision.wants) == (Outcome.QUEUE, "quota", ())


def test_what_a_user_holds_is_not_counted_where_nothing_limits_it(monkeypatch):
    def uncounted(view, user):
        raise AssertionError(f"what {user} holds is counted")

    monkeypatch.setattr(PoolView, "held_by", uncounted)
    assert decide(pool(device("n/0", ANN_07)), Request("ann", 200), helps=False).outcome is Outcome.GRANT
    assert decide(pool(device("n/0", ANN_07)), Request("ann", 500), helps=False).reason == "full"


def test_what_no_device_could_serve_is_refused_whatever_its_user_holds():
    held = Held("l1", "ann", 1000, 100)
    decision = decide(
        pool(device("n/0", held), quotas={"ann": Quota(milli=2000)}), Request("ann", 1000, count=2)
    )
    assert (decision.outcome, decision.reason) == (Outcome.REFUSE, "bad-share")


def test_who_waits_for_a_quota_keeps_no_device_from_others():
    decision = decide(pool(device("n/0", ANN_07), quotas={"ann": Quota(milli=800)}), Request("ann", 200))
    assert decision.wants == ()


def test_a_device_kept_for_an_earlier_request_is_passed_over():
    view = pool(device("n/0"), device("n/1"), reserved=("n/0",))
    assert placed(view, Request("bob", 200))[0][0] == "n/1"
    decision = decide(pool(device("n/0"), reserved=("n/0",)), Request("bob", 200))
    assert decision.outcome is Outcome.QUEUE
    assert "kept for a request that waits longer" in decision.explanation


class TestResumedSessions:
    def test_go_back_to_their_own_device_though_another_fits_better(self):
        view = pool(device("n/0"), device("n/1", ANN_07))
        assert placed(view, Request("bob", 200, parked=Parked("s1", ("n/0",))))[0][0] == "n/0"

    def test_wait_when_that_device_is_full(self):
        view = pool(device("n/0", ANN_07), device("n/1"))
        decision = decide(
            view, Request("bob", 500, parked=Parked("s1", ("n/0",), stays=obstacles.because("old-driver")))
        )
        assert (decision.outcome, decision.reason) == (Outcome.QUEUE, "full")
        assert "the session's memory is on n/0" in decision.explanation

    def test_change_their_device_though_somebody_elses_parked_memory_is_in_the_way(self):
        parked = Held("", "carl", 0, 3, "s2", 3)
        view = pool(device("n/0", ANN_07), device("n/1", parked), host_room={"n": 100})
        mine = Parked("s1", ("n/0",), (40,), bound=obstacles.because("global-addresses"))
        decision = decide(view, Request("bob", 1000, parked=mine))
        assert (decision.outcome, decision.evict) == (Outcome.QUEUE, ("s1", "s2"))
        assert "moving the session's 40 MiB from n/0" in decision.explanation
        assert "moving 3 MiB of 1 parked session" in decision.explanation

        too_little = pool(device("n/0", ANN_07), device("n/1", parked), host_room={"n": 42})
        assert decide(too_little, Request("bob", 1000, parked=mine)).evict == ()

    def test_keep_the_order_of_their_devices(self):
        view = pool(device("n/0"), device("n/1"))
        shares = placed(view, Request("bob", 200, count=2, parked=Parked("s1", ("n/1", "n/0"))))
        assert [share[0] for share in shares] == ["n/1", "n/0"]

    def test_are_refused_a_share_smaller_than_what_they_keep(self):
        decision = decide(pool(device("n/0")), Request("bob", 200, parked=Parked("s1", ("n/0",), (3000,))))
        assert (decision.outcome, decision.reason) == (Outcome.REFUSE, "bad-share")
        assert "is 1587 MiB, but the session keeps 3000 MiB on n/0" in decision.explanation
        assert "at least 0.38" in decision.explanation
        assert placed(pool(device("n/0")), Request("bob", 379, parked=Parked("s1", ("n/0",), (3000,))))

    def test_are_refused_another_number_of_devices(self):
        decision = decide(
            pool(device("n/0"), device("n/1")), Request("bob", 200, count=2, parked=Parked("s1", ("n/0",)))
        )
        assert (decision.outcome, decision.reason) == (Outcome.REFUSE, "bad-share")

    def test_wait_for_a_device_that_is_away(self):
        decision = decide(pool(device("n/0")), Request("bob", 200, parked=Parked("s1", ("m/0",))))
        assert (decision.outcome, decision.reason) == (Outcome.QUEUE, "no-node")


@pytest.mark.parametrize(
    "wish",
    [
        Request("a"),
        Request("a", 0),
        Request("a", 1001),
        Request("a", -1),
        Request("a", 5, 5),
        Request("a", 5, count=0),
        Request("a", 5, count=9),
    ],
)
def test_malformed_requests_are_errors_not_decisions(wish):
    with pytest.raises(ValueError):
        decide(pool(device("n/0")), wish)

"""What one user may have, and the order in which requests are served: through the whole machine."""

from __future__ import annotations

from dataclasses import replace

import pytest
from gpupool.filters import parse
from gpupool.model import events
from gpupool.model.clock import Clock
from gpupool.model.instructions import TellGranted, TellQueued, TellRefused, TellResized
from gpupool.model.state import LimitRecord, key_of
from gpupool.pool.api import convert
from gpupool.pool.leases import timer_rules
from gpupool.pool.model.waiting import HINT_HORIZON
from gpupool.pool.projects import accounts, limit_rules, project_view
from gpupool.pool.queue import eta, kept_devices, queue_pass, queue_rules, request_rules
from gpupool.pool.queue.said import Said
from gpupool.proto.gpupool.v1 import pool_pb2 as pb
from gpupool.scheduler import decide
from gpupool.scheduler.model import Decision, Outcome, Quota
from gpupool.sentences import say

from tests.support.pool_world import PoolWorld, lease, session


@pytest.fixture
def world() -> PoolWorld:
    world = PoolWorld(nodes={"node1": 2})
    world.connect()
    return world


def limit(world: PoolWorld, user: str = "ann", **figures: int) -> None:
    world.handle(events.LimitSet(world.now, LimitRecord(user, **figures), "root"))


def refusal(world: PoolWorld, key: str) -> TellRefused:
    told = world.answer(key)
    assert isinstance(told, TellRefused), told
    return told


def test_the_sum_of_a_user_is_limited(world):
    limit(world, milli=500)
    world.attach("a", 400)
    world.request("b", 200, wait=None)
    told = world.answer("b")
    assert isinstance(told, TellQueued)
    assert "0.50" in told.explanation
    assert "0.40" in told.explanation
    world.attach("c", 200, user="bob")


def test_the_number_of_shares_is_limited_for_everybody_else(world):
    limit(world, "*", shares=1)
    limit(world, "bob", shares=2)
    world.attach("a", 100)
    world.request("a2", 100, wait=None)
    assert isinstance(world.answer("a2"), TellQueued)
    world.attach("b", 100, user="bob")
    world.attach("b2", 100, user="bob")


def test_one_request_above_its_size_is_refused_at_once_with_both_figures(world):
    limit(world, largest_milli=300)
    world.request("a", 400, wait=None)
    told = refusal(world, "a")
    assert told.reason == "quota"
    assert "0.40 GPU is asked; ann may ask for at most 0.30 at once" in told.explanation


def test_memory_counts_as_the_part_of_a_device_that_it_is(world):
    limit(world, largest_milli=300)
    world.request("a", mib=4000, wait=None)
    assert refusal(world, "a").reason == "quota"
    world.attach("b", mib=2000)


def test_a_lease_may_not_grow_beyond_one_requests_size(world):
    limit(world, largest_milli=300)
    name = world.attach("a", 200)
    world.handle(events.Resized(world.now, name, 400, None))
    world.settle()
    (told,) = [x for x in world.told if isinstance(x, TellResized)]
    assert told.reason == "quota"
    world.handle(events.Resized(world.now, name, 300, None))
    world.settle()
    assert lease(world, name).shares[0].milli == 300


def test_a_lifted_limit_lets_go_on_who_waited_for_it(world):
    limit(world, milli=500)
    world.attach("a", 400)
    world.request("b", 200, wait=None)
    world.handle(events.LimitRemoved(world.now, "ann", "root"))
    world.settle()
    assert isinstance(world.answer("b"), TellGranted)
    assert [x.kind for x in world.journal if x.kind == "limit"] == ["limit", "limit"]


def test_a_smaller_request_of_the_same_user_does_not_pass_one_that_waits_for_the_limit(world):
    limit(world, milli=800)
    first = world.attach("a", 400)
    world.request("large", 700, wait=None)
    world.request("small", 100, wait=None)
    assert isinstance(world.answer("small"), TellQueued)
    world.release(first)
    world.settle()
    assert isinstance(world.answer("large"), TellGranted)
    assert isinstance(world.answer("small"), TellGranted)


@pytest.mark.parametrize(
    ("user", "figures"), [("ann", {"milli": 1000}), ("ann", {"shares": 1}), ("*", {"milli": 1000})]
)
def test_who_has_all_of_a_quota_keeps_no_device_of_a_full_pool_from_others(world, user, figures):
    limit(world, user, **figures)
    world.attach("a", 1000)
    world.attach("x", 100, user="xi")
    world.request("a2", 1000, wait=None)
    waiting = world.machine.state.requests[key_of("ann", "a2")]
    assert waiting.decision is not None
    assert (waiting.decision.reason, waiting.wants) == ("quota", ())
    world.attach("b", 500, user="bob")


def test_quotas_are_merged_only_when_limits_have_changed():
    """Else no view is known to be the same as another, and every look decides everything anew."""
    world = PoolWorld(quotas={"bob": Quota(milli=500)})
    world.connect()
    limit(world, milli=1000)
    state, options = world.machine.state, world.machine.quotas
    first = limit_rules.quotas(state, options)
    world.attach("a", 100)
    assert limit_rules.quotas(state, options) is first
    limit(world, milli=2000)
    assert limit_rules.quotas(state, options) == {"ann": Quota(2000), "bob": Quota(500)}
    assert limit_rules.quotas(state, {}) == {"ann": Quota(2000)}
    state.limits["eve"] = LimitRecord("eve", milli=1)
    assert "eve" in limit_rules.quotas(state, options)
    state.rollback()
    assert limit_rules.quotas(state, options) == {"ann": Quota(2000), "bob": Quota(500)}


@pytest.mark.parametrize("others", [0, 1])
def test_what_is_being_given_back_counts_against_a_projects_limit_until_it_has_gone(others):
    """As it does against a user's. `others`: who waits beside the new request, which is looked at with them then."""
    world = PoolWorld(nodes={"node1": 1, "node2": 2})
    for name in world.nodes:
        world.connect(name)
    world.project("lab", limit=1000)
    busy = world.attach("a", 1000, project="lab", filters=(parse("node=node1"),))
    for number in range(others):
        world.request(f"other{number}", 1000, user="eve", wait=None, filters=(parse("node=node1"),))
    (worker,) = world.nodes["node1"].workers.values()
    worker.stuck = True
    worker.runs(world.now)
    world.release(busy)
    world.settle()
    assert lease(world, busy).state == "releasing"
    world.request("b", 1000, user="bob", project="lab", wait=None)
    assert isinstance(world.answer("b"), TellQueued)
    world.live(60)
    assert lease(world, busy).state == "ended"
    assert isinstance(world.answer("b"), TellGranted)


def test_a_lease_does_not_grow_above_a_projects_limit_while_another_is_being_given_back(world):
    world.project("lab", limit=1200)
    busy = world.attach("a", 600, project="lab")
    (worker,) = world.nodes["node1"].workers.values()
    grows = world.attach("b", 500, user="bob", project="lab")
    worker.stuck = True
    worker.runs(world.now)
    world.release(busy)
    world.settle()
    assert lease(world, busy).state == "releasing"
    world.handle(events.Resized(world.now, grows, 900, None))
    world.settle()
    assert [x.reason for x in world.told if isinstance(x, TellResized)] == ["limit"]


def test_a_quota_of_the_pools_options_is_no_different():
    world = PoolWorld(nodes={"node1": 2}, quotas={"ann": Quota(milli=1000)})
    world.connect()
    world.attach("a", 1000)
    world.attach("x", 100, user="xi")
    world.request("a2", 1000, wait=None)
    world.attach("b", 500, user="bob")


def test_who_is_held_up_by_an_own_quota_holds_up_nobody_of_the_project(world):
    limit(world, milli=1000)
    world.project("lab", limit=1200)
    world.attach("a", 1000, project="lab")
    world.request("a2", 500, wait=None, project="lab")
    world.attach("b", 200, user="bob", project="lab")


def test_gpu_seconds_of_a_window_are_refused_with_what_is_used_left_and_when_they_are_back(world):
    limit(world, gpu_seconds=60, window_seconds=3600)
    name = world.attach("a", 1000)
    world.live(20)
    world.release(name)
    world.settle()
    world.request("b", 1000, wait=None, duration=60.0)
    told = refusal(world, "b")
    assert told.reason == "quota"
    assert "1.00 GPU for 60 s is 60 GPU seconds" in told.explanation
    assert "used 20 GPU seconds of 60 GPU seconds, 40 GPU seconds are left" in told.explanation
    assert "in 1 h 0 min" in told.explanation
    world.attach("c", 1000, duration=40.0)


def test_gpu_seconds_that_would_not_last_until_the_next_tick_are_not_granted(world):
    """Else the lease would last for a whole notice."""
    limit(world, gpu_seconds=60, window_seconds=3600)
    name = world.attach("a", 1000)
    world.live(10)
    world.release(name)
    world.settle()
    used = accounts.used_in_window(world.machine.state, "ann", world.now).milli_ms
    account = world.machine.state.accounts["user/ann"]
    left = round(500 * world.timers.tick * 1000) - 1
    booked = account.window_milli_ms + 60_000_000 - used - left
    world.machine.state.accounts["user/ann"] = replace(account, window_milli_ms=booked)
    world.request("b", 500, wait=None)
    told = refusal(world, "b")
    assert told.reason == "quota"
    assert "what is left lasts for less than 1 s at 0.50 GPU" in told.explanation
    world.request("c", 400, wait=None)
    world.settle()
    assert isinstance(world.answer("c"), TellGranted)


def test_leases_end_when_the_budget_is_used_up_and_come_again_in_the_next_window(world):
    limit(world, gpu_seconds=30, window_seconds=200)
    first, second = world.attach("a", 500), world.attach("b", 1000)
    shown = {x.id: x for x in convert.lease_list(world.machine.state, Clock(0.0), None).leases}
    assert shown[first].ends_unix > 0
    world.live(19)
    assert lease(world, first).live
    world.live(3)
    assert {lease(world, name).reason for name in (first, second)} == {"budget"}
    world.request("c", 100, wait=None)
    assert "0 GPU seconds are left" in refusal(world, "c").explanation
    world.live(180)
    world.attach("d", 100)


def test_a_budget_counts_on_in_the_next_window_from_its_beginning(world):
    limit(world, gpu_seconds=150, window_seconds=100)
    name = world.attach("a", 1000)
    world.live(140)
    assert lease(world, name).live, "40 s of the second window are used, not 140 s of the first"


def test_other_users_have_budgets_of_their_own(world):
    limit(world, "*", gpu_seconds=20, window_seconds=3600)
    name = world.attach("a", 1000)
    world.live(25)
    assert lease(world, name).reason == "budget"
    world.attach("b", 1000, user="bob")


def test_who_has_an_option_of_her_own_sees_what_of_everybodys_limit_holds_for_her_too(world):
    options = {"ann": Quota(milli=1500), "*": Quota(milli=100)}
    world.machine.quotas = options
    limit(world, "*", milli=700, shares=2, largest_milli=400, gpu_seconds=100, window_seconds=3600)
    world.attach("a", 400)
    world.live(10)
    world.request("b", 500, wait=None)
    assert refusal(world, "b").reason == "quota"

    def seen(viewer: str | None) -> dict[str, pb.Limit]:
        state = world.machine.state
        found = project_view.limits_seen_by(state, options, viewer)
        return {
            record.user: project_view.limit(state, record, world.now, configured=is_option)
            for record, is_option in found
        }

    ann = seen("ann")["ann"]
    assert (ann.milli, ann.shares, ann.largest_milli, ann.configured) == (1500, -1, 400, True)
    assert (ann.gpu_seconds, ann.window_seconds, ann.held_milli) == (100, 3600, 400)
    assert ann.used_gpu_seconds == pytest.approx(4, abs=0.5)
    assert 3500 < ann.resets_in_seconds < 3600
    bob = seen("bob")["bob"]
    assert (bob.milli, bob.shares, bob.gpu_seconds, bob.configured) == (700, 2, 100, False)
    everybody = seen(None)
    assert everybody["ann"] == ann
    assert (everybody["*"].milli, everybody["*"].gpu_seconds, everybody["*"].configured) == (700, 100, False)


def test_the_end_of_a_budget_is_said_before_with_the_numbers(world):
    limit(world, gpu_seconds=100, window_seconds=3600)
    name = world.attach("a", 1000)
    world.live(100 - world.timers.notice - 2)
    assert lease(world, name).notice is None
    world.live(4)
    notice = lease(world, name).notice
    assert notice is not None
    assert notice.reason == "budget"
    assert world.now < notice.until == pytest.approx(lease(world, name).granted_at + 100)
    first, then = notice.explanation.split(";")
    assert "ann has used 7" in first
    assert "of 100 GPU seconds, the other 3" in first
    assert "at 1.00 GPU" in first
    assert "there again in 59 min" in then
    world.live(world.timers.notice)
    ended = lease(world, name)
    assert (ended.reason, session(world, name).state) == ("budget", "parked")
    (line,) = [x for x in world.journal if x.kind == "release"]
    assert "ann has used 100 GPU seconds of 100 GPU seconds; the session is parked" in line.explanation


def test_a_budget_that_is_used_up_when_it_is_set_ends_nothing_without_a_word(world):
    name = world.attach("a", 1000)
    world.live(7200)
    limit(world, gpu_seconds=3600, window_seconds=86400)
    world.live(1)
    notice = lease(world, name).notice
    assert lease(world, name).live
    assert notice is not None
    assert (notice.reason, notice.until > world.now + world.timers.notice - 3) == ("budget", True)
    limit(world, gpu_seconds=1800, window_seconds=86400)
    world.live(world.timers.notice - 3)
    assert lease(world, name).live
    assert lease(world, name).notice == notice
    world.live(4)
    assert lease(world, name).reason == "budget"


def test_a_budget_that_lasts_longer_after_all_takes_the_notice_back(world):
    limit(world, gpu_seconds=100, window_seconds=3600)
    names = [world.attach(key, 1000) for key in ("a", "b")]
    world.live(40)
    until = lease(world, names[0]).notice.until
    world.release(names[1])
    world.settle()
    world.live(2)
    later = lease(world, names[0]).notice.until
    assert later > until + 5, "one alone lasts twice as long"
    limit(world, gpu_seconds=1000, window_seconds=3600)
    world.live(1)
    assert lease(world, names[0]).notice is None
    assert [x.kind for x in world.journal if "notice" in x.kind] == ["notice", "notice", "notice-withdrawn"]
    limit(world, gpu_seconds=110, window_seconds=3600)
    world.live(1)
    world.handle(events.LimitRemoved(world.now, "ann", "root"))
    world.live(1)
    assert lease(world, names[0]).live
    assert lease(world, names[0]).notice is None


def test_who_asks_for_more_ends_sooner_and_all_parts_of_a_lease_on_several_nodes_are_told(world):
    world = PoolWorld(nodes={"node1": 2, "node2": 2})
    for node in world.nodes:
        world.connect(node)
    limit(world, gpu_seconds=400, window_seconds=3600)
    first = world.attach("a", 1000, count=3, nodes="any")
    world.live(110)
    before = lease(world, first).notice.until
    world.attach("b", 1000)
    world.live(1)
    parts = world.machine.state.lease_parts(lease(world, first))
    assert len(parts) == 2
    assert {part.notice for part in parts} == {lease(world, first).notice}
    assert lease(world, first).notice.until < before
    world.live(30)
    assert {x.reason for x in world.machine.state.leases.values()} == {"budget"}


def test_what_was_told_of_another_end_goes_then_and_not_before_for_its_budget(world):
    limit(world, gpu_seconds=50, window_seconds=3600)
    name = world.attach("a", 1000)
    world.live(24)
    world.handle(events.NodeDrained(world.now, "node1", True, "", "root", True))
    world.live(1)
    told = lease(world, name).notice
    assert told.reason == "drain"
    world.live(told.until - world.now - 1)
    assert lease(world, name).live, (
        "its budget was used up before, and its holder counts on the time it was told"
    )
    world.live(2)
    assert lease(world, name).reason == "drain"


def test_a_budget_is_told_of_when_another_end_is_far_away_or_is_taken_back(world):
    name = world.attach("a", 1000)
    world.live(20)
    world.handle(events.NodeDrained(world.now, "node1", True, "", "root", True))
    far = world.now + 10 * world.timers.notice
    known = lease(world, name)
    world.machine.state.leases[name] = replace(known, notice=replace(known.notice, until=far))
    limit(world, gpu_seconds=10, window_seconds=3600)
    world.live(1)
    notice = lease(world, name).notice
    assert (notice.reason, lease(world, name).live) == ("budget", True)
    assert world.now + world.timers.notice - 3 < notice.until <= world.now + world.timers.notice
    world.live(world.timers.notice + 1)
    assert lease(world, name).reason == "budget"


def test_a_window_that_began_in_the_future_begins_when_the_pool_starts_with_the_right_time(world):
    limit(world, gpu_seconds=60, window_seconds=3600)
    world.release(world.attach("a", 1000))
    world.settle()
    step = world.step()
    account = step.state.accounts["user/ann"]
    step.state.accounts[account.id] = replace(account, window_from=world.now + 86400, as_of=world.now + 86400)
    timer_rules.restarted(step)
    corrected = step.state.accounts[account.id]
    assert (corrected.window_from, corrected.as_of) == (world.now, world.now)
    assert corrected.window_milli_ms == account.window_milli_ms


def test_what_another_user_holds_is_not_among_the_figures_of_a_wish_that_both_have():
    figures = {"asked_milli": 500, "held_milli": 700, "held_shares": 2, "quota_milli": 800, "quota_shares": 3}
    said = Said(Decision(Outcome.QUEUE, "full", say("plain"), facts=figures))
    assert said.in_full().facts == figures
    assert said.to_others().in_full().facts == {"asked_milli": 500}


# ---- order


def busy(world: PoolWorld) -> list[str]:
    return [world.attach(f"busy{n}", 1000, user="root") for n in range(2)]


def place(world: PoolWorld, key: str) -> int:
    told = world.answer(key)
    assert isinstance(told, TellQueued)
    return told.place


def test_higher_priority_comes_first_whenever_it_arrives(world):
    busy(world)
    world.request("first", 500, wait=None)
    world.request("urgent", 500, wait=None, priority=200)
    world.request("later", 500, wait=None, kind="preemptible")
    assert [place(world, key) for key in ("urgent", "first", "later")] == [1, 2, 3]


def test_who_says_that_it_is_short_comes_before_others_of_the_same_priority(world):
    busy(world)
    world.request("long", 500, wait=None)
    world.request("hour", 500, wait=None, duration=3600.0)
    world.live(1)
    world.request("short", 500, wait=None, duration=60.0)
    assert [place(world, key) for key in ("short", "long", "hour")] == [1, 2, 3]


def test_nobody_is_overtaken_for_longer_than_the_horizon(world):
    busy(world)
    world.request("long", 500, wait=None)
    world.live(HINT_HORIZON - 50)
    world.request("short", 500, wait=None, duration=60.0)
    assert [place(world, key) for key in ("long", "short")] == [1, 2]


def test_a_short_request_uses_what_is_kept_for_a_larger_one_if_it_is_over_in_time(world):
    """Both devices run for 100 s; half of one is free and kept for who waits for a whole one."""
    world.attach("half", 500, user="root", duration=100.0)
    world.attach("whole", 1000, user="root", duration=100.0)
    world.request("large", 1000, wait=None)
    world.request("endless", 300, wait=None)
    assert isinstance(world.answer("endless"), TellQueued)
    world.request("too long", 300, wait=None, duration=400.0)
    assert isinstance(world.answer("too long"), TellQueued)
    world.live(1)
    world.attach("short", 300, wait=None, duration=50.0)
    world.live(102)
    assert isinstance(world.answer("large"), TellGranted)


def test_who_may_pass_makes_a_look_no_dearer_for_all_others(monkeypatch):
    """Each waits for the same device, in a lane of its own; all leases on it have deadlines."""
    asked = []

    def counted(*arguments, **more):
        asked.append(arguments)
        return decide(*arguments, **more)

    for rules in (queue_pass, eta):
        monkeypatch.setattr(rules, "decide", counted)
    numbers = []
    for milli, duration in ((900, 0.0), (900, 5000.0), (150, 5000.0)):
        world = PoolWorld(nodes={"node1": 1})
        world.connect()
        for number in range(8):
            world.attach(f"held{number}", 100, user="root", duration=1000.0 + number)
        for number in range(30):
            world.request(f"wait{number}", 1000 - number, wait=None)
        asked.clear()
        world.request("last", milli, user="bob", wait=None, duration=duration)
        assert isinstance(world.answer("last"), TellQueued)
        numbers.append(len(asked))
    assert max(numbers) <= numbers[0] + 1


def test_a_look_compares_each_project_once_and_each_request_with_few(monkeypatch):
    """As long as nothing is granted, nobody's turn changes; and all keep the same device."""
    number, counts = 30, {"order": 0, "_is_ahead": 0}

    def counting(place, name):
        function = getattr(place, name)

        def counted(*arguments, **more):
            counts[name] += 1
            return function(*arguments, **more)

        monkeypatch.setattr(place, name, counted)

    world = PoolWorld(nodes={"node1": 2})
    world.connect()
    for n in range(number):
        world.project(f"project{n}", None)
    busy(world)
    for n in range(number):
        world.request(f"wait{n}", 1000 - n, wait=None, project=f"project{n}")
    counting(queue_pass.QueuePass, "order")
    counting(kept_devices, "_is_ahead")
    look = queue_rules.look_at_all(world.step())
    assert len(look.decisions) == number
    assert counts["order"] <= 3 * number
    assert 0 < counts["_is_ahead"] <= 3 * number


def test_what_is_kept_for_somebody_is_passed_on_until_a_deadline_there_makes_room(world):
    """The other device has one, too, yet who waits has this one as soon as its lease ends."""
    half = world.attach("half", 500, user="root")
    world.attach("whole", 1000, user="root", duration=100.0)
    world.request("large", 1000, wait=None, priority=200)
    world.request("first", 300, wait=None, duration=50.0)
    assert isinstance(world.answer("first"), TellQueued)
    state = world.machine.state
    state.leases[half] = replace(state.leases[half], ends_at=world.now + 90.0)
    state.commit()
    world.live(5)
    world.request("long", 200, wait=None, duration=89.0)
    assert isinstance(world.answer("first"), TellGranted)
    assert isinstance(world.answer("long"), TellQueued)


def test_projects_below_their_share_come_first(world):
    world.project("default", 0)
    world.project("A", 1000)
    world.project("B", 1000)
    holds = [world.attach(f"a{n}", 1000, project="A") for n in range(2)]
    world.request("a more", 1000, wait=None, project="A")
    world.request("b", 1000, user="bob", wait=None, project="B")
    assert [place(world, key) for key in ("b", "a more")] == [1, 2]
    world.release(holds[0])
    world.settle()
    assert isinstance(world.answer("b"), TellGranted)


def test_a_projects_limit_holds_back_its_requests_and_nobody_elses(world):
    world.project("A", 0, limit=500)
    world.project("B", 0)
    world.attach("a", 400, project="A")
    world.request("a2", 200, project="A", wait=None)
    told = world.answer("a2")
    assert isinstance(told, TellQueued)
    assert "limited to 0.5" in told.explanation
    world.attach("b", 1000, project="B")
    world.request("never", 600, project="A", wait=None)
    assert refusal(world, "never").reason == "limit"


# ---- nodes that are emptied


def drain(world: PoolWorld, *, evict: bool, drained: bool = True) -> None:
    world.handle(events.NodeDrained(world.now, "node1", drained, "new fans", "root", evict))


def test_a_drained_node_takes_no_new_leases_and_keeps_those_it_has(world):
    name = world.attach("a", 500)
    drain(world, evict=False)
    world.request("b", 500, user="bob", wait=None)
    assert isinstance(world.answer("b"), TellQueued)
    world.live(60)
    assert lease(world, name).live
    drain(world, evict=False, drained=False)
    world.settle()
    assert isinstance(world.answer("b"), TellGranted)


def test_a_node_that_is_emptied_gives_notice_to_whom_it_serves_and_parks_them(world):
    names = [world.attach("a", 500, kind="guaranteed"), world.attach("b", 500, reservation=True)]
    drain(world, evict=True)
    notice = lease(world, names[0]).notice
    assert notice is not None
    assert (notice.reason, notice.until) == ("drain", world.now + world.timers.notice)
    assert "being emptied by root (new fans)" in notice.explanation
    world.live(world.timers.notice + 2)
    assert {lease(world, name).reason for name in names} == {"drain"}
    assert {session.state for session in world.machine.state.sessions.values()} == {"parked"}


def test_who_is_told_to_go_stays_when_the_node_is_not_emptied_after_all(world):
    name = world.attach("a", 500)
    drain(world, evict=True)
    drain(world, evict=False, drained=False)
    world.live(world.timers.notice + 2)
    assert lease(world, name).live


def test_a_drained_node_is_drained_after_it_said_hello_again(world):
    drain(world, evict=False)
    world.connect()
    world.request("b", 500, wait=None)
    assert isinstance(world.answer("b"), TellQueued)


# ---- the example of Bitfusion's text: parts of one GPU change hands without moving anybody


def sizes(world: PoolWorld) -> list[int]:
    return [x.shares[0].milli for x in world.machine.state.leases.values() if x.live]


def test_forty_five_and_fifty_five_become_three_and_then_two_again():
    world = PoolWorld(nodes={"node1": 1})
    world.connect()
    first, second = world.attach("first", 450), world.attach("second", 550, user="bob")
    world.request("third", 200, user="cat", wait=None)
    assert isinstance(world.answer("third"), TellQueued)
    world.handle(events.Resized(world.now, second, 350, None))
    world.settle()
    assert isinstance(world.answer("third"), TellGranted)
    assert sizes(world) == [450, 350, 200]
    (third,) = [x.id for x in world.machine.state.leases.values() if x.key == "third"]
    world.release(third, close=True)
    world.settle()
    world.handle(events.Resized(world.now, first, 650, None))
    world.settle()
    assert sizes(world) == [650, 350]


def test_the_same_wish_of_several_limited_users_keeps_one_place_and_each_has_its_own_limit():
    world = PoolWorld(nodes={"node1": 1})
    world.connect()
    limit(world, "*", milli=800)
    limit(world, "root", milli=5000)
    limit(world, "cat", largest_milli=300)
    name = world.attach("busy", 600, user="root")
    for user in ("ann", "bob", "cat"):
        world.request(user, 500, user=user, wait=None)
    requests = {request.user: request for request in world.machine.state.requests.values()}
    assert refusal(world, "cat").reason == "quota"
    assert [requests[user].wants for user in ("ann", "bob")] == [("node1/0",), ()]
    assert requests["ann"].said == requests["bob"].said
    world.release(name, close=True)
    world.settle()
    assert all(isinstance(world.answer(user), TellGranted) for user in ("ann", "bob"))


def test_what_users_of_long_ago_have_used_is_forgotten():
    world = PoolWorld(nodes={"node1": 1})
    world.connect()
    for number in range(20):
        world.release(world.attach(f"k{number}", 1000, user=f"user{number}"), close=True)
        world.settle()
    kept = world.machine.state.accounts
    assert {f"user/user{number}" for number in range(20)} <= set(kept)
    world.now += 86_400
    world.handle(events.Tick(world.now))
    assert "user/user0" in kept, "a limit that is set now counts what was used a while ago"
    world.now += 86_401
    world.handle(events.Tick(world.now))
    assert set(kept) == {"project/default"}


def test_as_long_as_a_window_may_last_nothing_used_in_it_is_forgotten():
    world = PoolWorld(nodes={"node1": 1})
    world.connect()
    week = 7 * 86_400
    limit = LimitRecord("ann", gpu_seconds=3600, window_seconds=week)
    world.handle(events.LimitSet(world.now, limit, "root"))
    name = world.attach("k", 1000, user="ann")
    world.live(30)
    world.release(name, close=True)
    world.settle()
    used = accounts.used_in_window(world.machine.state, "ann", world.now).gpu_seconds
    world.now += week - 60
    world.handle(events.Tick(world.now))
    assert accounts.used_in_window(world.machine.state, "ann", world.now).gpu_seconds == used > 29


def test_who_holds_a_lease_for_long_keeps_the_window():
    world = PoolWorld(nodes={"node1": 1})
    world.connect()
    world.release(world.attach("before", 500), close=True)
    world.settle()
    world.attach("k", 500)
    world.machine.last_tick = None
    state, later = world.machine.state, world.now + 3 * 86_400
    accounts.forget_unused(replace(world.step(), now=later))
    assert "user/ann" in state.accounts


def test_a_user_may_not_open_sessions_without_end(world, monkeypatch):
    monkeypatch.setattr(request_rules, "MOST_SESSIONS", 3)
    for number in range(3):
        world.release(world.attach(f"k{number}", 100))
        world.settle()
    world.request("k3", 100)
    assert refusal(world, "k3").reason == "too-many-sessions"
    world.attach("k4", 100, session_id="s1")  # it has that one
    world.attach("k5", 100, user="bob")
    world.handle(events.SessionClosed(world.now, "s2", "release"))
    world.settle()
    world.attach("k6", 100)

"""Leases that end, with notice, for a request that is entitled to their room: through the whole machine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from gpupool.filters import parse
from gpupool.model import events
from gpupool.model.clock import Clock
from gpupool.model.instructions import TellGranted, TellQueued, TellRefused, TellResized
from gpupool.model.state import ProjectRecord
from gpupool.pool.api import convert, explanations
from gpupool.pool.model.consolidation import Consolidation
from gpupool.pool.model.timers import Timers
from gpupool.pool.projects import standing_view
from gpupool.proto.sentences import from_message
from gpupool.scheduler import reclaim
from gpupool.scheduler.model import Quota

from tests.support.pool_world import PoolWorld, SimNode, lease, offered, session


def two_projects(devices: int = 8, a: int = 2000, b: int = 6000) -> PoolWorld:
    """The Run:ai article's pool: 8 GPUs, A deserves 2, B deserves 6."""
    half = devices // 2
    world = PoolWorld(nodes={"node1": devices - half, "node2": half}, timers=Timers(min_run=20.0))
    for name in world.nodes:
        world.nodes[name].park_memory_mib = 1_000_000
        world.connect(name)
    world.project("default", 0)
    world.project("A", a)
    world.project("B", b)
    return world


def take_all(world: PoolWorld, project: str, count: int, **more: object) -> list[str]:
    """So many whole devices, one after the other; they run long enough to be taken back."""
    names = []
    for number in range(count):
        names.append(world.attach(f"{project}{number}", 1000, user="ann", project=project, **more))
        world.live(1)
    world.live(world.timers.min_run)
    return names


def ask(world: PoolWorld, key: str, milli: int = 1000, project: str = "B", **more: object) -> None:
    more.setdefault("wait", None)
    world.request(key, milli, user="bob", project=project, **more)
    world.settle()


def noticed(world: PoolWorld) -> list[str]:
    return [x.id for x in world.machine.state.leases.values() if x.live and x.notice is not None]


def test_who_deserves_two_may_have_all_eight_while_nobody_else_wants_them():
    world = two_projects()
    take_all(world, "A", 8)
    assert len(world.live_leases("A")) == 8


def test_the_owner_of_six_gets_exactly_six_back_the_newest_first():
    world = two_projects()
    names = take_all(world, "A", 8)
    for number in range(6):
        ask(world, f"b{number}")
    assert sorted(noticed(world)) == sorted(names[2:])
    assert len(world.live_leases("A")) == 8, "nothing ends before the notice does"
    world.live(world.timers.notice + 2)
    assert sorted(x.id for x in world.live_leases("A")) == sorted(names[:2])
    assert len(world.live_leases("B")) == 6
    assert [lease(world, name).reason for name in names[2:]] == ["reclaim"] * 6
    assert {session(world, name).state for name in names[2:]} == {"parked"}


def test_the_seventh_request_of_six_deserved_waits_and_takes_nothing():
    world = two_projects()
    take_all(world, "A", 8)
    for number in range(7):
        ask(world, f"b{number}")
    world.live(world.timers.notice + 2)
    assert (len(world.live_leases("A")), len(world.live_leases("B"))) == (2, 6)
    assert isinstance(world.answer("b6"), TellQueued)
    assert not noticed(world)


def test_who_loses_a_drained_node_gets_their_part_of_what_is_left():
    world = two_projects(devices=8, a=4000, b=4000)
    theirs = take_all(world, "A", 4)
    mine = take_all(world, "B", 4)
    (drained,) = {lease(world, name).node for name in mine}
    assert drained not in {lease(world, name).node for name in theirs}
    world.handle(events.NodeDrained(world.now, drained, True, "", "root", evict=True))
    world.live(1)
    standing = standing_view.with_requests(world.machine.state, world.timers, world.now)
    assert standing.standing("B").deserved == 4000, "what is held there counts as long as it is held"
    world.live(world.timers.notice + 5)
    assert {lease(world, name).reason for name in mine} == {"drain"}
    for number in range(4):
        ask(world, f"again{number}")
    assert sorted(noticed(world)) == sorted(theirs[2:])
    world.live(world.timers.notice + 5)
    assert (len(world.live_leases("A")), len(world.live_leases("B"))) == (2, 2)


def thirds(quotas: dict[str, Quota] | None = None) -> PoolWorld:
    """Three projects that deserve nothing of eight devices: A has one, B seven, and C waits. Another node is drained."""
    world = PoolWorld(nodes={"node1": 8, "old": 1}, timers=Timers(min_run=20.0), quotas=quotas)
    world.nodes["node1"].park_memory_mib = 1_000_000
    for name in ("node1", "old"):
        world.connect(name)
    for path in "ABC":
        world.project(path, None)
    world.project("default", 0)
    world.handle(events.NodeDrained(world.now, "old", True, "", "root", evict=False))
    world.attach("a", 1000, user="amy", project="A")
    take_all(world, "B", 7)
    return world


@pytest.mark.parametrize(
    ("quotas", "filters"), [({"amy": Quota(1000)}, ()), ({"amy": Quota(None, 1)}, ()), (None, ("node=old",))]
)
def test_what_no_lease_of_others_would_help_takes_nothing_from_them(quotas, filters):
    world = thirds(quotas)
    for number in range(20):
        wish = {"project": "A", "wait": None, "filters": tuple(map(parse, filters))}
        world.request(f"a{number}", 1000 - number % 2, user="amy", **wish)
    for number in range(7):
        ask(world, f"c{number}", project="C")
    world.live(world.timers.notice + 60)
    shown = standing_view.with_requests(world.machine.state, world.timers, world.now)
    assert [shown.standing(path).fair_share for path in "ABC"] == [1000, 3500, 3500]
    assert shown.standing("A").waiting == 20 * 1000 - 10
    assert [len(world.live_leases(path)) for path in "ABC"] == [1, 4, 3]


def test_what_a_quota_leaves_of_many_requests_counts():
    world = thirds({"amy": Quota(2000)})
    for number in range(20):
        world.request(f"a{number}", 1000, user="amy", project="A", wait=None)
    for number in range(7):
        ask(world, f"c{number}", project="C")
    world.live(world.timers.notice + 60)
    held = [sum(lease.milli for lease in world.live_leases(path)) for path in "ABC"]
    assert held == [2000, 3000, 3000]


def test_an_ill_device_is_deserved_by_nobody():
    world = two_projects(devices=2, a=1000, b=1000)
    state = world.machine.state
    device = state.devices["node2/0"]
    state.devices[device.id] = replace(device, healthy=False, health_reason="Xid 79")
    state.commit()
    standing = standing_view.with_requests(state, world.timers, world.now)
    assert [standing.standing(path).deserved for path in ("A", "B")] == [500, 500]


def test_a_guaranteed_lease_above_what_is_deserved_is_refused_at_once():
    world = two_projects()
    for number in range(2):
        world.attach(f"a{number}", 1000, user="ann", project="A", kind="guaranteed")
    world.request("a2", 1000, user="ann", project="A", kind="guaranteed", wait=None)
    told = world.answer("a2")
    assert isinstance(told, TellRefused)
    assert told.reason == "over-quota"
    assert "deserves 2" in told.explanation


def test_guaranteed_leases_are_never_taken_back():
    world = two_projects()
    kept = take_all(world, "A", 2, kind="guaranteed")
    for number in range(6):
        world.attach(f"more{number}", 1000, user="ann", project="A")
    world.live(world.timers.min_run)
    for number in range(6):
        ask(world, f"b{number}")
    world.live(world.timers.notice + 2)
    assert sorted(x.id for x in world.live_leases("A")) == sorted(kept)


def test_the_holder_reads_for_whom_and_why():
    world = two_projects(devices=2, a=1000, b=1000)
    names = take_all(world, "A", 2)
    ask(world, "b0")
    notice = lease(world, names[1]).notice
    assert notice is not None
    assert notice.reason == "reclaim"
    assert notice.until == world.now + world.timers.notice
    assert "project B (bob) is entitled to 1.00 GPU" in notice.explanation
    assert "project A holds 2.00 and deserves 1.00" in notice.explanation
    told = world.answer("b0")
    assert isinstance(told, TellQueued)
    assert told.eta == pytest.approx(world.timers.notice)
    assert "asked back from project A (user ann, 1.00), free in 30 s" in told.explanation


def test_the_session_is_shown_as_warned_with_a_countdown():
    world = two_projects(devices=2, a=1000, b=1000)
    names = take_all(world, "A", 2)
    ask(world, "b0")
    world.live(10)
    shown = {x.lease_id: x for x in convert.session_list(world.machine.state, world.now, None).sessions}
    assert [shown[name].state for name in names] == ["attached", "warned"]
    assert shown[names[1]].notice.reason == "reclaim"
    assert shown[names[1]].notice.seconds_left == pytest.approx(20)
    assert not shown[names[0]].HasField("notice")
    leases = {x.id: x for x in convert.lease_list(world.machine.state, Clock(0.0), None).leases}
    assert [leases[name].protected for name in names] == [True, False]
    assert leases[names[1]].notice.reason == "reclaim"
    (entry,) = convert.queue_list(world.machine.state, Clock(0.0), None).entries
    assert (entry.project, entry.kind, entry.priority) == ("B", "interactive", 100)


def test_time_that_the_pool_stood_still_is_added_to_the_notice():
    world = two_projects(devices=2, a=1000, b=1000)
    names = take_all(world, "A", 2)
    ask(world, "b0")
    notice = lease(world, names[1]).notice
    assert notice is not None
    world.now += 20.0
    world.handle(events.Tick(world.now))
    later = lease(world, names[1]).notice
    assert later is not None
    assert later.until > notice.until + 15


def test_a_notice_is_withdrawn_when_the_request_leaves():
    world = two_projects(devices=2, a=1000, b=1000)
    take_all(world, "A", 2)
    ask(world, "b0")
    world.handle(events.Cancelled(world.now, "bob", "b0"))
    assert not noticed(world)
    world.live(world.timers.notice + 2)
    assert len(world.live_leases("A")) == 2
    assert [x.kind for x in world.journal if x.kind.startswith("notice")] == ["notice", "notice-withdrawn"]


def test_a_notice_is_withdrawn_when_the_request_finds_room_elsewhere():
    world = two_projects(devices=2, a=1000, b=1000)
    names = take_all(world, "A", 2)
    ask(world, "b0")
    assert noticed(world) == [names[1]]
    world.release(names[0])
    world.settle()
    assert not noticed(world)
    assert len(world.live_leases("B")) == 1
    world.live(world.timers.notice + 2)
    assert lease(world, names[1]).live


def test_no_notice_outlasts_the_entitlement_that_it_was_given_for():
    world = two_projects(devices=4, a=1000, b=3000)
    world.attach("b0", 1000, user="bob", project="B")
    names = take_all(world, "A", 3)
    for number in range(1, 3):
        ask(world, f"b{number}")
    assert sorted(noticed(world)) == sorted(names[1:])
    record = ProjectRecord("B", 1000, limit=1000)
    world.handle(events.ProjectSet(world.now, record, "root"))
    assert not noticed(world), "neither that of the first in line nor that of the other"
    world.live(world.timers.notice + 10)
    assert all(lease(world, name).live for name in names)
    told = world.answer("b2")
    assert isinstance(told, TellQueued)
    assert "limited to 1 GPU" in told.explanation


def test_a_lease_runs_its_minimum_before_it_is_taken_back():
    world = two_projects(devices=2, a=1000, b=1000)
    world.project("A", 1000, min_run=90.0)
    for number in range(2):
        world.attach(f"a{number}", 1000, user="ann", project="A")
    ask(world, "b0")
    (name,) = noticed(world)
    notice = lease(world, name).notice
    assert notice is not None
    assert notice.until == lease(world, name).granted_at + 90


def test_no_more_is_taken_back_than_the_request_needs():
    world = two_projects(devices=1, a=300, b=700)
    small = []
    for number in range(5):
        small.append(world.attach(f"a{number}", 200, user="ann", project="A"))
        world.live(1)
    world.live(world.timers.min_run)
    ask(world, "b0", 400)
    assert sorted(noticed(world)) == sorted(small[3:])
    world.live(world.timers.notice + 2)
    assert len(world.live_leases("B")) == 1
    assert len(world.live_leases("A")) == 3


def test_several_small_requests_share_what_one_large_lease_leaves():
    world = two_projects(devices=2, a=0, b=1000)
    names = take_all(world, "A", 2)
    for number in range(4):
        ask(world, f"b{number}", 250)
    assert noticed(world) == [names[1]]
    told = world.answer("b3")
    assert isinstance(told, TellQueued)
    assert "is enough for it too, free in 30 s" in told.explanation
    world.live(world.timers.notice + 5)
    assert len(world.live_leases("B")) == 4
    assert lease(world, names[0]).live


def test_who_shared_the_room_keeps_it_when_the_first_leaves():
    world = two_projects(devices=2, a=0, b=1000)
    names = take_all(world, "A", 2)
    for number in range(2):
        ask(world, f"b{number}", 250)
    until = lease(world, names[1]).notice.until
    world.live(10)
    world.handle(events.Cancelled(world.now, "bob", "b0"))
    notice = lease(world, names[1]).notice
    assert notice is not None
    assert (notice.until, notice.for_request.endswith("b1")) == (until, True)
    world.live(world.timers.notice - 5)
    assert len(world.live_leases("B")) == 1


def test_a_higher_priority_preempts_a_lower_one_in_its_project_above_what_it_deserves():
    world = two_projects(devices=1, a=0, b=0)
    first = world.attach("train", 1000, user="ann", project="A", kind="preemptible")
    world.live(world.timers.min_run)
    ask(world, "urgent", project="A", kind="interactive")
    assert noticed(world) == [first]
    world.live(world.timers.notice + 2)
    assert lease(world, first).reason == "preempt"
    assert [x.key for x in world.live_leases("A")] == ["urgent"]


# ---- a project at its limit


def limited(limit: int = 2000, devices: int = 4) -> PoolWorld:
    """A has all that it may have, in two preemptible leases; half of the pool is free."""
    world = two_projects(devices=devices, a=0, b=0)
    world.project("A", 0, limit=limit)
    take_all(world, "A", limit // 1000, kind="preemptible", priority=50)
    return world


def test_at_its_limit_a_project_takes_back_its_own_for_what_matters_more():
    world = limited()
    first, second = [x.id for x in world.live_leases("A")]
    ask(world, "urgent", project="A")
    assert noticed(world) == [second], "the newer one"
    notice = lease(world, second).notice
    assert notice is not None
    assert (notice.reason, notice.for_request.endswith("urgent")) == ("preempt", True)
    told = world.answer("urgent")
    assert isinstance(told, TellQueued)
    assert "asked back from project A (user ann, 1.00), free in 30 s" in told.explanation
    assert "limited to 2 GPUs and holds 2" in told.explanation
    world.live(world.timers.notice + 2)
    assert lease(world, second).reason == "preempt"
    assert isinstance(world.answer("urgent"), TellGranted)
    assert lease(world, first).live
    assert held_milli(world, "A") == 2000


def held_milli(world: PoolWorld, project: str) -> int:
    return sum(share.milli for x in world.live_leases(project) for share in x.shares)


def test_several_that_matter_more_are_served_by_one_notice_and_never_above_the_limit():
    world = limited()
    for number in range(3):
        ask(world, f"urgent{number}", 700, project="A")
    assert len(noticed(world)) == 2
    told = world.answer("urgent2")
    assert isinstance(told, TellQueued)
    for _ in range(round(world.timers.notice) + 4):
        assert held_milli(world, "A") <= 2000
        world.live(1)
    assert sorted(x.key for x in world.live_leases("A")) == ["urgent0", "urgent1"]


def test_what_those_leave_who_are_still_there_is_nobody_elses_meanwhile():
    world = limited()
    ask(world, "urgent", 500, project="A")
    assert len(noticed(world)) == 1
    ask(world, "small", 400, project="A", kind="preemptible")
    assert isinstance(world.answer("small"), TellQueued), "the lease that ends still counts"
    world.live(world.timers.notice + 2)
    assert isinstance(world.answer("urgent"), TellGranted)
    assert isinstance(world.answer("small"), TellGranted)


def test_what_is_given_back_to_others_counts_against_the_limit_until_it_has_ended():
    world = two_projects(devices=2, a=0, b=1000)
    world.project("A", 0, limit=1000)
    world.attach("rest", 700, user="cat", project="B", kind="guaranteed")
    world.attach("a0", 1000, user="ann", project="A")
    world.live(world.timers.min_run)
    ask(world, "b0", 301)
    assert len(noticed(world)) == 1
    ask(world, "a1", 200, project="A")
    told = world.answer("a1")
    assert isinstance(told, TellQueued)
    assert "limited to 1 GPU and holds 1 GPU until 1 GPU of that has been given back" in told.explanation
    world.live(world.timers.notice + 2)
    assert isinstance(world.answer("a1"), TellGranted)


def test_the_least_that_is_enough_ends_and_the_notice_stays_with_whom_it_was_given_to():
    world = two_projects(devices=4, a=0, b=0)
    world.project("A", 0, limit=2000)
    sizes = {"half": 500, "small": 300, "large": 1000, "smaller": 200}
    names = {
        key: world.attach(key, milli, user="ann", project="A", kind="preemptible")
        for key, milli in sizes.items()
    }
    world.live(world.timers.min_run)
    ask(world, "urgent", 300, project="A")
    assert noticed(world) == [names["small"]]
    world.release(names["smaller"], close=True)
    world.settle()
    world.live(3)
    # 100 are missing now, and what was said to one is not said to another instead.
    assert noticed(world) == [names["small"]]
    world.release(names["half"], close=True)
    world.settle()
    assert isinstance(world.answer("urgent"), TellGranted)
    assert not noticed(world)


def test_equal_priority_protected_leases_and_other_projects_give_nothing_up_for_a_limit():
    world = limited()
    ask(world, "same", project="A", kind="preemptible")
    assert not noticed(world)
    told = world.answer("same")
    assert isinstance(told, TellQueued)
    assert "limited to 2 GPUs" in told.explanation
    world = two_projects(devices=2, a=1000, b=0)
    world.project("A", 1000, limit=1000)
    world.attach("mine", 1000, user="ann", project="A", priority=10)
    world.attach("others", 1000, user="ben", project="B", kind="preemptible", priority=1)
    world.live(world.timers.min_run)
    ask(world, "urgent", project="A")
    assert not noticed(world), "what it deserves is protected, whatever the priority"


def test_above_a_limit_nobody_gives_way_who_will_not_be_waited_for():
    world = limited()
    ask(world, "hurried", project="A", wait=5.0)
    assert not noticed(world)


def test_for_whom_gives_up_before_a_notice_ends_nobody_is_looked_for(monkeypatch: pytest.MonkeyPatch):
    world = two_projects()
    take_all(world, "A", 8)
    searched: list[int] = []
    search = reclaim.plan
    monkeypatch.setattr(reclaim, "plan", lambda *args: searched.append(1) or search(*args))
    ask(world, "hurried", wait=world.timers.notice - 1)
    world.live(5)
    assert not searched
    world.handle(events.Cancelled(world.now, "bob", "hurried"))
    ask(world, "patient", wait=world.timers.notice + 1)
    assert searched
    assert len(noticed(world)) == 1


def test_whoever_was_told_to_go_for_a_request_that_is_gone_goes_for_one_that_waits_less_long():
    world = two_projects()
    take_all(world, "A", 8)
    ask(world, "first")
    told = noticed(world)
    world.live(world.timers.notice - 10)
    ask(world, "hurried", wait=20.0)
    world.handle(events.Cancelled(world.now, "bob", "first"))
    assert noticed(world) == told
    world.live(15)
    assert isinstance(world.answer("hurried"), TellGranted)


def test_room_below_the_limit_of_a_parent_comes_from_the_asking_projects_own():
    world = two_projects(devices=4, a=0, b=0)
    world.project("P", 0, limit=2000)
    world.project("P/x", 0)
    world.project("P/y", 0)
    mine = world.attach("mine", 1000, user="ann", project="P/x", kind="preemptible")
    world.attach("theirs", 1000, user="ben", project="P/y", kind="preemptible")
    world.live(world.timers.min_run)
    ask(world, "urgent", project="P/x")
    assert noticed(world) == [mine]
    world.live(world.timers.notice + 2)
    assert isinstance(world.answer("urgent"), TellGranted)


def test_below_a_limit_and_without_room_both_are_made():
    """The limit leaves 0.5; the pool has no whole device free, and one lease of another project is above its share."""
    world = two_projects(devices=2, a=1000, b=0)
    world.project("A", 1000, limit=1000)
    small = world.attach("small", 300, user="ann", project="A", kind="preemptible")
    for number in range(2):
        world.attach(f"b{number}", 700, user="ben", project="B", kind="preemptible")
    world.live(world.timers.min_run)
    ask(world, "urgent", project="A")
    assert small in noticed(world)
    assert len(noticed(world)) == 2
    world.live(world.timers.notice + 4)
    assert isinstance(world.answer("urgent"), TellGranted)


def test_who_will_not_wait_for_the_notice_takes_nothing_back():
    world = two_projects(devices=1, a=0, b=1000)
    take_all(world, "A", 1)
    ask(world, "b0", wait=0.0)
    assert isinstance(world.answer("b0"), TellRefused)
    ask(world, "b1", wait=5.0)
    assert not noticed(world)


def test_memory_that_cannot_leave_its_device_is_not_counted_as_room():
    """The session of the newest lease keeps its memory there, so the other one has to go."""
    world = two_projects(devices=1, a=0, b=500)
    world.nodes["node1"].fraction = 1.0
    names = [world.attach(f"a{n}", 500, user="ann", project="A") for n in range(2)]
    world.live(world.timers.min_run)
    newest = world.nodes["node1"].workers[lease(world, names[1]).session_id]
    newest.park_obstacle = "managed"
    world.live(6)
    ask(world, "b0", 500)
    assert noticed(world) == [names[0]]
    world.live(world.timers.notice + 10)
    assert len(world.live_leases("B")) == 1


def test_who_was_taken_back_goes_on_when_there_is_room_again():
    world = two_projects(devices=1, a=0, b=1000)
    (name,) = take_all(world, "A", 1)
    ask(world, "b0")
    world.live(world.timers.notice + 2)
    lost = session(world, name)
    assert lost.state == "parked"
    world.request("again", 1000, user="ann", project="A", session_id=lost.id, wait=None)
    world.live(5)
    assert isinstance(world.answer("again"), TellQueued)
    (bobs,) = world.live_leases("B")
    world.release(bobs.id)
    world.live(5)
    assert session(world, name).state == "attached"


def test_what_was_taken_back_for_a_request_is_its_own_though_a_larger_one_wishes_for_it_and_the_losers_ask_again():
    """Room is owed to the one that it was made for: a wish of an earlier request that cannot be served does not bar it."""
    world = PoolWorld(nodes={"node1": 3}, timers=Timers(min_run=60.0))
    world.nodes["node1"].park_memory_mib = 1_000_000
    world.nodes["node1"].fraction = 0.5
    world.connect()
    world.project("A", 0)
    world.project("B", 0)
    names = []
    for number in range(3):
        names.append(world.attach(f"A{number}", 1000, user="ann", project="A"))
        world.live(10)
    for key, milli, count in (("half", 500, 1), ("pair", 1000, 2), ("one", 1000, 1)):
        ask(world, key, milli, count=count)
        world.live(10)
    victims = sorted(
        x.id for x in world.machine.state.leases.values() if x.reason == "reclaim" or x.notice is not None
    )
    assert len(victims) == 2, "one for the half device and one for the whole one; nobody for the pair"
    for name in victims:
        while lease(world, name).live:
            world.live(1)
        session_id = lease(world, name).session_id
        world.request(f"again-{name}", 1000, user="ann", project="A", session_id=session_id, wait=None)
        world.settle()
    world.live(5 * world.timers.notice)
    assert isinstance(world.answer("one"), TellGranted)
    assert [x.id for x in world.live_leases("A")] == [x for x in names if x not in victims]
    taken = [x.lease_id for x in world.journal if x.kind == "release" and x.data["reason"] == "reclaim"]
    assert sorted(taken) == victims, "each once"


def leaving(count: int) -> PoolWorld:
    """So many devices, all on their way back; `answer_from` lets their workers answer one by one."""
    world = PoolWorld(nodes={"node1": count})
    world.connect()
    names = [world.attach(f"held{n}", 1000) for n in range(count)]
    for number in range(count):
        world.request(f"b{number}", 1000, user="bob", wait=None)
    for name in names:
        world.release(name, close=True)
    return world


def answer_from(world: PoolWorld, ordinal: int) -> None:
    to_node = world.nodes["node1"].to_node
    others = [item for item in to_node if item.session_id != f"s{ordinal + 1}"]
    (mine,) = [item for item in to_node if item.session_id == f"s{ordinal + 1}"]
    to_node.clear()
    to_node.append(mine)
    world.settle()
    to_node.extend(others)


def test_whichever_device_is_free_first_the_first_in_line_has_it():
    world = leaving(4)
    assert {x.key: x.wants for x in world.machine.state.requests.values()}["b0"] == ("node1/0",)
    for turn, ordinal in enumerate((3, 1, 2, 0)):
        answer_from(world, ordinal)
        granted = [n for n in range(4) if isinstance(world.answer(f"b{n}"), TellGranted)]
        assert granted == list(range(turn + 1))


def test_who_comes_before_them_in_line_has_what_becomes_free_by_itself_before_those_who_expect_it():
    world = leaving(2)
    world.request("urgent", 1000, user="cat", wait=None, priority=200)
    assert isinstance(world.answer("urgent"), TellQueued)
    answer_from(world, 1)
    assert isinstance(world.answer("urgent"), TellGranted)
    answer_from(world, 0)
    assert isinstance(world.answer("b0"), TellGranted)
    assert isinstance(world.answer("b1"), TellQueued)


def test_what_was_taken_back_for_a_request_is_not_for_one_that_comes_before_it_in_line():
    world = two_projects(devices=2, a=600, b=1400)
    names = take_all(world, "A", 2)
    ask(world, "b0")
    for number in range(4):
        assert noticed(world) == [names[1]], "its notice does not begin again for who comes before it"
        ask(world, f"short{number}", duration=1.0)
        world.live(world.timers.notice / 5)
    world.live(world.timers.notice / 5 + 1)
    assert isinstance(world.answer("b0"), TellGranted)
    assert isinstance(world.answer("short0"), TellQueued)


def test_a_pool_without_projects_takes_nothing_back():
    world = PoolWorld(nodes={"node1": 1})
    world.connect()
    world.attach("first", 1000)
    world.live(world.timers.min_run)
    world.request("second", 1000, user="bob", wait=None)
    world.live(100)
    assert not noticed(world)
    assert len([x for x in world.machine.state.leases.values() if x.live]) == 1


def test_a_gang_is_taken_back_as_a_whole():
    world = two_projects(devices=2, a=0, b=1000)
    world.request("gang", 1000, user="ann", project="A", count=2, nodes="any")
    world.settle()
    world.live(world.timers.min_run)
    ask(world, "b0")
    assert len(noticed(world)) == 2
    world.live(world.timers.notice + 2)
    assert not world.live_leases("A")
    assert len(world.live_leases("B")) == 1


def world_with_a_notice(path: Path) -> tuple[PoolWorld, str]:
    world = PoolWorld(path, nodes={"node1": 1})
    world.connect()
    world.project("default", 0)
    world.project("A", 0)
    world.project("B", 1000)
    (name,) = take_all(world, "A", 1)
    ask(world, "b0")
    assert noticed(world) == [name]
    return world, name


def restart(world: PoolWorld) -> None:
    world.crash()
    for path, deserved in (("default", 0), ("A", 0), ("B", 1000)):
        world.project(path, deserved)


def test_a_notice_goes_on_when_the_pool_restarts_in_the_middle(tmp_path):
    """The holder has been told when its lease ends: it ends then, and the request behind it gets the room."""
    world, name = world_with_a_notice(tmp_path / "pool.sqlite")
    before = world.machine.state.leases[name].notice
    world.live(world.timers.notice / 2)
    restart(world)
    world.connect()
    world.settle()
    after = world.machine.state.leases[name].notice
    assert (after.reason, after.for_request, after.said) == (before.reason, before.for_request, before.said)
    assert after.until == pytest.approx(before.until, abs=1e-3)
    world.live(world.timers.notice / 2 + 1)
    assert not world.machine.state.leases[name].live
    assert world.machine.state.leases[name].reason == before.reason
    world.live(10)
    assert world.live_leases("B")


def test_one_that_was_over_while_nobody_served_is_heard_before_the_lease_ends(tmp_path):
    world, name = world_with_a_notice(tmp_path / "pool.sqlite")
    world.live(world.timers.notice - 5)
    world.now += 10  # less than the fence: the worker serves on
    restart(world)
    world.connect()
    world.settle()
    left = world.machine.state.leases[name].notice.until - world.now
    assert left == pytest.approx(world.timers.return_)
    assert world.machine.state.leases[name].live


# ---- leases that move so that a request fits


def fragmented(
    *, idle: bool = True, consolidate: Consolidation = Consolidation.IDLE, reservation: bool = False
) -> PoolWorld:
    """Two devices, 0.3 taken of each: a whole one is asked."""
    world = PoolWorld(nodes={"node1": 2}, timers=Timers(min_run=5.0), consolidate=consolidate)
    world.nodes["node1"].park_memory_mib = 1_000_000
    world.connect()
    blocks = [world.attach(f"block{n}", 700, user="root") for n in range(2)]
    for number in range(2):
        world.attach(f"a{number}", 300, reservation=reservation)
    for name in blocks:
        world.release(name, close=True)
    for worker in world.nodes["node1"].workers.values():
        worker.idle_since = world.now if idle else None
    world.live(8)
    assert [world.free(f"node1/{n}") for n in range(2)] == [700, 700]
    return world


def test_a_reservation_stays_where_it_is_as_nobody_asks_for_it_again():
    world = fragmented(reservation=True)
    world.request("whole", 1000, user="bob", wait=None)
    world.live(60)
    assert noticed(world) == []
    assert [world.free(f"node1/{n}") for n in range(2)] == [700, 700]


def test_a_lease_moves_so_that_a_request_fits_and_goes_on_where_room_is_kept():
    world = fragmented()
    world.request("whole", 1000, user="bob", wait=None)
    (name,) = noticed(world)
    notice = lease(world, name).notice
    assert notice is not None
    (target,) = notice.target
    assert (notice.reason, target.milli) == ("consolidate", 300)
    assert target.device_id != lease(world, name).shares[0].device_id
    assert "room is kept for it there" in notice.explanation
    told = world.answer("whole")
    assert isinstance(told, TellQueued)
    assert "1 lease(s) move for it (user ann to" in told.explanation
    world.live(world.timers.notice + 2)
    moved = session(world, name)
    assert (lease(world, name).reason, moved.state, moved.kept_place) == ("consolidate", "parked", (target,))
    world.request("other", 700, user="cat", wait=None)
    world.request("again", 300, session_id=moved.id, wait=None)
    world.live(10)
    assert session(world, name).state == "attached"
    assert session(world, name).device_ids == (target.device_id,)
    assert isinstance(world.answer("whole"), TellGranted)


@pytest.mark.parametrize(
    ("wish", "moves"), [("node=node1", False), ("node=node*", True), ("name=*GPU*", True)]
)
def test_a_lease_moves_only_where_its_request_may_go(wish: str, moves: bool):
    world = PoolWorld(nodes={"node1": 1, "node2": 1}, timers=Timers(min_run=5.0))
    for name in world.nodes:
        world.nodes[name].park_memory_mib = 1_000_000
        world.connect(name)
    blocks = [world.attach(f"block{n}", 700, user="root") for n in range(2)]
    names = [world.attach(f"a{n}", 300, filters=(parse(wish),) if n == 0 else ()) for n in range(2)]
    guaranteed = lease(world, names[1])
    world.machine.state.leases[names[1]] = replace(guaranteed, kind="guaranteed")
    world.machine.state.commit()
    for name in blocks:
        world.release(name, close=True)
    for node in world.nodes.values():
        for worker in node.workers.values():
            worker.idle_since = world.now
    world.live(8)
    assert [world.free(f"node{n}/0") for n in (1, 2)] == [700, 700]
    world.request("whole", 1000, user="bob", wait=None)
    assert bool(noticed(world)) == moves


def at_its_limit_with_an_idle_lease(small: int = 0) -> tuple[PoolWorld, str]:
    """A has all that it may have, a part of it idle on a device of which B will want the whole.

    Another part is alone on a device, and the last, if there is one, `small` and beside a lease of B.
    """
    world = PoolWorld(nodes={"node1": 3}, timers=Timers(min_run=5.0))
    world.nodes["node1"].park_memory_mib = 1_000_000
    world.connect()
    world.project("default", 0)
    world.project("A", 1000, limit=1000)
    world.project("B", 2000)
    block = world.attach("block", 700, user="bob", project="B")
    idle = world.attach("idle", 300, user="ann", project="A")
    busy = world.attach("busy", 700 - small, user="ann", project="A")
    other = world.attach("other", 800 if small else 500, user="bob", project="B")
    if small:
        world.attach("small", small, user="ann", project="A")
    world.release(block, close=True)
    assert len({lease(world, name).shares[0].device_id for name in (idle, busy, other)}) == 3
    world.nodes["node1"].workers[lease(world, idle).session_id].idle_since = world.now
    world.live(8)
    return world, idle


def test_who_was_moved_away_keeps_their_part_of_the_limit_of_their_project():
    world, idle = at_its_limit_with_an_idle_lease()
    ask(world, "more", 300, project="A")
    ask(world, "whole", 1000)
    assert noticed(world) == [idle]
    world.live(world.timers.notice + 2)
    assert lease(world, idle).reason == "consolidate"
    assert isinstance(world.answer("more"), TellQueued), "what is kept counts for the project"
    session_id = lease(world, idle).session_id
    world.request("again", 300, session_id=session_id, project="A", wait=None)
    world.live(5)
    assert session(world, idle).state == "attached"
    assert isinstance(world.answer("more"), TellQueued)
    assert isinstance(world.answer("whole"), TellGranted)


def test_that_part_is_for_others_when_its_owner_does_not_come():
    world, idle = at_its_limit_with_an_idle_lease()
    ask(world, "whole", 1000)
    world.live(world.timers.notice + 2)
    assert session(world, idle).state == "parked"
    ask(world, "more", 300, project="A")
    told = world.answer("more")
    assert isinstance(told, TellQueued)
    assert "limited to 1 GPU and holds 1" in told.explanation
    world.live(world.timers.keep_place + 5)
    assert isinstance(world.answer("more"), TellGranted)


def test_no_lease_grows_into_the_part_of_who_was_moved_away():
    world, idle = at_its_limit_with_an_idle_lease(small=100)
    ask(world, "whole", 1000)
    world.live(world.timers.notice + 2)
    assert session(world, idle).state == "parked"
    (small,) = [x for x in world.live_leases("A") if x.key == "small"]
    world.handle(events.Resized(world.now, small.id, 200, None))
    world.settle()
    refused = [item for item in world.told if isinstance(item, TellResized)]
    assert [item.reason for item in refused] == ["limit"]


def test_where_a_lease_will_go_on_nobody_else_goes_before_it():
    world = fragmented()
    world.request("whole", 1000, user="bob", wait=None)
    world.request("small", 600, user="cat", wait=None)
    world.live(world.timers.notice + 4)
    assert isinstance(world.answer("small"), TellQueued)


def test_who_computes_within_what_is_theirs_is_not_moved():
    """Without projects everything is protected, so only idle sessions move."""
    world = fragmented(idle=False)
    world.request("whole", 1000, user="bob", wait=None)
    world.live(world.timers.notice + 4)
    assert not [x for x in world.journal if x.kind == "notice"]
    assert isinstance(world.answer("whole"), TellQueued)


def test_who_computes_is_moved_where_the_administrator_lets_any_lease_move():
    world = fragmented(idle=False, consolidate=Consolidation.ANY)
    world.request("whole", 1000, user="bob", wait=None)
    (name,) = noticed(world)
    world.live(world.timers.notice + 2)
    assert lease(world, name).reason == "consolidate"
    world.request("again", 300, session_id=session(world, name).id, wait=None)
    world.live(10)
    assert session(world, name).state == "attached"
    assert isinstance(world.answer("whole"), TellGranted)


def test_guaranteed_leases_stay_even_where_any_may_move():
    world = fragmented(consolidate=Consolidation.ANY)
    for record in list(world.machine.state.leases.values()):
        world.machine.state.leases[record.id] = replace(record, kind="guaranteed")
    world.machine.state.commit()
    world.request("whole", 1000, user="bob", wait=None)
    assert not noticed(world)


def test_nobody_is_moved_where_that_is_off():
    world = fragmented(consolidate=Consolidation.OFF)
    world.request("whole", 1000, user="bob", wait=None)
    assert not noticed(world)
    assert isinstance(world.answer("whole"), TellQueued)


@pytest.mark.parametrize(
    ("consolidate", "said"),
    [
        (Consolidation.IDLE, "may be moved to another device once it has computed nothing for 60 s"),
        (Consolidation.ANY, "may be moved to another device, with notice"),
        (Consolidation.OFF, ""),
    ],
)
def test_a_protected_lease_says_whether_it_may_have_to_move(consolidate: Consolidation, said: str):
    world = fragmented(consolidate=consolidate)
    held = next(x for x in world.machine.state.leases.values() if x.live)
    answer = explanations.of_lease(
        held,
        world.machine.state,
        world.timers,
        world.now,
        protected=True,
        min_run=60,
        consolidate=consolidate,
    )
    text = str(from_message(answer.said))
    assert "it is not taken back for others" in text
    assert said in text if said else "moved" not in text


def test_a_kernel_that_runs_long_is_not_idle():
    world = fragmented()
    for worker in world.nodes["node1"].workers.values():
        worker.in_flight = True
    world.live(6)
    world.request("whole", 1000, user="bob", wait=None)
    assert not noticed(world)


def test_who_computes_again_during_the_notice_stays():
    world = fragmented()
    world.request("whole", 1000, user="bob", wait=None)
    (name,) = noticed(world)
    for worker in world.nodes["node1"].workers.values():
        worker.idle_since = None
    world.live(world.timers.notice + 2)
    assert lease(world, name).live
    assert not noticed(world)


def test_who_has_just_begun_is_not_idle_whatever_the_last_report_says():
    world = fragmented()
    for record in list(world.machine.state.leases.values()):
        if record.live:
            world.machine.state.leases[record.id] = replace(record, granted_at=world.now)
    world.machine.state.commit()
    world.request("whole", 1000, user="bob", wait=None)
    assert not noticed(world)


def test_who_computes_above_what_the_project_deserves_is_moved():
    world = PoolWorld(nodes={"node1": 2}, timers=Timers(min_run=5.0))
    world.nodes["node1"].park_memory_mib = 1_000_000
    world.connect()
    world.project("default", 0)
    world.project("A", 300)
    world.project("B", 1700)
    blocks = [world.attach(f"block{n}", 700, user="root", project="B") for n in range(2)]
    names = [world.attach(f"a{n}", 300, user="ann", project="A") for n in range(2)]
    for name in blocks:
        world.release(name, close=True)
    world.live(8)
    ask(world, "whole")
    assert noticed(world) == [names[1]], "the first is protected, and computes"
    notice = lease(world, names[1]).notice
    assert notice is not None
    assert notice.reason == "consolidate"


def test_for_a_project_that_is_not_entitled_to_what_it_asks_nobody_is_moved():
    world = PoolWorld(nodes={"node1": 4}, timers=Timers(min_run=5.0))
    world.nodes["node1"].park_memory_mib = 1_000_000
    world.nodes["other"] = SimNode("other", (offered(0, 8192),), world.timers.fence, world.timers.drain)
    world.connect()
    world.project("default", 0)
    world.project("A", 3500)
    world.project("B", 1500)
    world.connect("other")
    kept_by = {"user": "root", "project": "B", "kind": "guaranteed", "filters": (parse("node=other"),)}
    world.attach("kept", 1000, **kept_by)
    blocks = [world.attach(f"block{n}", 700, user="root", project="B") for n in range(4)]
    for number in range(4):
        world.attach(f"a{number}", 300, user="ann", project="A")
    for name in blocks:
        world.release(name, close=True)
    for worker in world.nodes["node1"].workers.values():
        worker.idle_since = world.now
    # What A wants besides waits for a device that is not taken back, and makes all that A deserves its fair share.
    for number in range(3):
        elsewhere = {"project": "A", "wait": None, "filters": (parse("node=other"),)}
        world.request(f"more{number}", 900, user="ann", **elsewhere)
    world.live(8)
    ask(world, "whole")
    assert not noticed(world)
    world.project("A", 2000)
    world.project("B", 3000)
    world.live(2)
    ask(world, "entitled")
    assert noticed(world)


def test_a_lease_whose_memory_cannot_leave_does_not_move():
    world = fragmented()
    for worker in world.nodes["node1"].workers.values():
        worker.park_obstacle = "managed"
    world.live(6)
    world.request("whole", 1000, user="bob", wait=None)
    assert not noticed(world)


def test_guaranteed_leases_stay_where_they_are():
    world = fragmented()
    state = world.machine.state
    for record in list(state.leases.values()):
        if record.live:
            state.leases[record.id] = replace(record, kind="guaranteed")
    state.commit()
    world.request("whole", 1000, user="bob", wait=None)
    assert not noticed(world)

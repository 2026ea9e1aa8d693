"""The life of leases and sessions, one way to live or die per test. Time is the test's own."""

from __future__ import annotations

import pytest
from gpupool.client.reasons import MOMENTARY, RESIZE_UNANSWERED
from gpupool.model import events, instructions
from gpupool.pool.lifecycle.invariants import InvariantViolatedError, check_invariants
from gpupool.pool.model.timers import Timers
from gpupool.scheduler.model import Quota

from tests.support.pool_world import PoolWorld, lease, session


@pytest.fixture
def world() -> PoolWorld:
    world = PoolWorld(nodes={"node1": 1})
    world.connect()
    return world


class TestGrant:
    def test_a_grant_is_told_only_when_the_worker_serves(self, world):
        done = world.request("k1", 200)
        assert not any(isinstance(x, instructions.TellGranted) for x in done)
        assert any(isinstance(x, instructions.StartWorker) for x in done)
        world.settle()
        assert isinstance(world.answer("k1"), instructions.TellGranted)
        assert (lease(world, "l1").state, session(world, "l1").state) == ("attached", "attached")

    def test_the_decision_is_in_the_journal_with_its_explanation(self, world):
        world.attach("k1", 200)
        grant = next(line for line in world.journal if line.kind == "grant")
        assert grant.explanation == "granted 0.20 (1587 MiB) of node1/0"
        assert (grant.user, grant.lease_id, grant.data["epoch"]) == ("ann", "l1", 1)

    def test_the_same_key_leads_to_the_same_lease(self, world):
        first = world.attach("k1", 200)
        assert world.attach("k1", 200) == first
        assert world.free() == 800

    def test_the_same_key_of_another_user_is_another_request(self, world):
        assert world.attach("k1", 200, user="ann") != world.attach("k1", 200, user="bob")

    def test_a_key_whose_lease_has_ended_says_so(self, world):
        world.release(world.attach("k1", 200))
        world.settle()
        world.request("k1", 200)
        assert world.answer("k1").reason == "lease-ended"

    def test_a_lease_that_is_released_as_it_starts_is_not_to_be_asked_for_again(self, world):
        world.request("k1", 200)
        world.release("l1", "admin")
        answer = world.answer("k1")
        assert (answer.reason, lease(world, "l1").reason) == ("released", "admin")
        assert answer.reason not in MOMENTARY

    def test_a_full_device_refuses_at_once_without_waiting(self, world):
        world.attach("k1", 700)
        world.request("k2", 500, user="bob")
        refused = world.answer("k2")
        assert refused.reason == "full"
        assert "0.30" in refused.explanation
        assert "ann holds 0.70" in refused.explanation

    def test_a_worker_that_cannot_start_gives_its_share_back_and_says_why(self, world):
        world.request("k1", 200)
        world.nodes["node1"].to_node.clear()
        world.handle(events.WorkerFailed(world.now, "node1", 1, "s1", 1, "no such driver"))
        assert world.answer("k1").reason == "worker-failed"
        assert "no such driver" in world.answer("k1").explanation
        assert world.free() == 1000
        assert session(world, "l1").state == "closed"

    def test_a_worker_that_never_starts_is_given_up(self, world):
        world.request("k1", 200)
        world.nodes["node1"].to_node.clear()
        for _ in range(13):
            world.nodes["node1"].heartbeat(world.now)
            world.settle()
            world.advance(5)
        assert world.answer("k1").reason == "worker-failed"


class TestQueue:
    def test_places_are_told_and_move_up(self, world):
        first = world.attach("k1", 1000)
        world.request("k2", 500, user="bob", wait=None)
        world.request("k3", 500, user="eve", wait=None)
        world.request("k4", 500, user="dan", wait=None)
        assert [world.answer(key).place for key in ("k2", "k3", "k4")] == [1, 2, 3]
        world.release(first)
        world.settle()
        assert isinstance(world.answer("k2"), instructions.TellGranted)
        assert isinstance(world.answer("k3"), instructions.TellGranted)
        assert world.answer("k4").place == 1

    def test_waiting_ends_after_the_time_given(self, world):
        world.attach("k1", 1000)
        world.request("k2", 500, user="bob", wait=20.0)
        world.live(21)
        refused = world.answer("k2")
        assert refused.reason == "timeout"
        assert "waited 20 s" in refused.explanation

    def test_cancelling_leaves_the_queue(self, world):
        first = world.attach("k1", 1000)
        world.request("k2", 500, user="bob", wait=None)
        world.handle(events.Cancelled(world.now, "bob", "k2"))
        world.release(first)
        world.settle()
        assert world.free() == 1000

    def test_asking_again_with_the_same_key_joins_the_same_place(self, world):
        world.attach("k1", 1000)
        world.request("k2", 500, user="bob", wait=None)
        world.request("k2", 500, user="bob", wait=None)
        assert len(world.machine.state.requests) == 1

    def test_small_late_requests_do_not_starve_a_large_early_one(self, world):
        small = [world.attach(f"k{i}", 250) for i in range(4)]
        world.request("large", 1000, user="bob", wait=None)
        for number, lease_id in enumerate(small):
            world.release(lease_id)
            world.settle()
            world.request(f"late{number}", 100, user="eve", wait=0.0)
            world.settle()
        assert isinstance(world.answer("large"), instructions.TellGranted)
        assert all(world.answer(f"late{number}").reason == "full" for number in range(4))

    def test_a_late_request_may_pass_on_a_device_that_nobody_waits_for(self):
        world = PoolWorld(nodes={"node1": 2})
        world.connect()
        world.attach("k1", 900)
        world.attach("k2", 800)
        world.request("large", 1000, user="bob", wait=None)
        assert world.machine.state.requests["bob\nlarge"].wants == ("node1/1",)
        world.attach("small", 100, user="eve")
        assert lease(world, "l3").shares[0].device_id == "node1/0"

    def test_who_waits_for_the_own_quota_does_not_hold_up_others(self):
        world = PoolWorld(nodes={"node1": 1}, quotas={"ann": Quota(milli=300)})
        world.connect()
        world.attach("k1", 300)
        world.request("k2", 100, wait=None)
        assert "quota" in world.answer("k2").explanation
        world.attach("k3", 700, user="bob")

    def test_the_first_in_the_queue_is_told_when_a_deadline_makes_room(self, world):
        world.attach("k1", 1000, duration=60.0)
        world.request("k2", 500, user="bob", wait=None)
        assert world.answer("k2").eta == pytest.approx(60.0)


class TestRelease:
    def test_the_share_is_free_when_the_worker_confirms_and_not_before(self, world):
        lease_id = world.attach("k1", 200)
        world.release(lease_id)
        assert lease(world, lease_id).state == "releasing"
        assert world.free() == 800
        world.settle()
        assert (lease(world, lease_id).state, lease(world, lease_id).reason) == ("ended", "release")
        assert world.free() == 1000
        assert session(world, lease_id).state == "parked"

    def test_is_idempotent(self, world):
        lease_id = world.attach("k1", 200)
        world.release(lease_id, "release")
        world.release(lease_id, "idle")
        world.settle()
        world.release(lease_id, "exit")
        assert lease(world, lease_id).reason == "release"

    def test_a_parked_session_resumes_on_its_device_with_a_higher_epoch(self, world):
        first = world.attach("k1", 200)
        world.release(first)
        world.settle()
        again = world.attach("k2", 400, session_id="s1")
        assert lease(world, again).session_id == "s1"
        assert (lease(world, first).epoch, lease(world, again).epoch) == (1, 2)
        assert not lease(world, again).new_session

    def test_a_release_that_is_still_under_way_delays_the_next_request_of_the_session_only_a_moment(
        self, world
    ):
        world.release(world.attach("k1", 200))
        world.request("k2", 200, session_id="s1", wait=0.0)
        assert isinstance(world.answer("k2"), instructions.TellQueued)
        world.settle()
        assert isinstance(world.answer("k2"), instructions.TellGranted)

    def test_closing_the_session_ends_the_worker(self, world):
        world.release(world.attach("k1", 200), close=True)
        world.settle()
        assert world.nodes["node1"].workers == {}
        assert world.machine.state.sessions["s1"].state == "closed"
        world.request("k2", 200, session_id="s1")
        assert world.answer("k2").reason == "unknown-session"

    @pytest.mark.parametrize("how", ["closed", "worker gone"])
    def test_a_request_that_waits_for_a_session_ends_with_it_and_the_journal_says_so(self, world, how):
        world.release(world.attach("k1", 200))
        world.settle()
        world.attach("k2", 1000, user="bob")
        world.request("k3", 1000, session_id="s1", wait=None)
        if how == "closed":
            world.handle(events.SessionClosed(world.now, "s1", "exit"))
        else:
            world.nodes["node1"].crash_worker("s1", world.now)
            world.settle()
        assert world.answer("k3").reason == "unknown-session"
        refused = [line for line in world.journal if line.kind == "refuse"]
        assert [(line.user, line.session_id, line.data["key"]) for line in refused] == [("ann", "s1", "k3")]

    def test_a_worker_that_never_answers_is_waited_for_until_it_is_fenced(self, world):
        lease_id = world.attach("k1", 200)
        world.release(lease_id)
        world.nodes["node1"].to_node.clear()
        world.advance(29)
        assert world.free() == 800
        world.advance(2)
        assert world.free() == 1000

    def test_an_attached_session_is_not_attached_twice(self, world):
        world.attach("k1", 200)
        world.request("k2", 200, session_id="s1")
        assert world.answer("k2").reason == "already-attached"


class TestHolders:
    def test_a_holder_that_does_not_renew_loses_the_lease(self, world):
        lease_id = world.attach("k1", 200)
        world.live(24, renew=False)
        assert lease(world, lease_id).state == "attached"
        world.live(3, renew=False)
        assert (lease(world, lease_id).state, lease(world, lease_id).reason) == ("ended", "lost")
        assert session(world, lease_id).state == "parked"

    def test_renewing_keeps_it(self, world):
        lease_id = world.attach("k1", 200)
        world.live(120)
        assert lease(world, lease_id).state == "attached"

    def test_a_late_renewal_brings_nothing_back(self, world):
        lease_id = world.attach("k1", 200)
        world.live(40, renew=False)
        world.handle(events.Renewed(world.now, (lease_id,)))
        assert lease(world, lease_id).state == "ended"

    def test_a_reservation_needs_no_renewal(self, world):
        lease_id = world.attach("k1", 200, reservation=True)
        world.live(300, renew=False)
        assert lease(world, lease_id).state == "attached"

    def test_a_deadline_ends_it(self, world):
        lease_id = world.attach("k1", 200, duration=60.0)
        world.live(59)
        assert lease(world, lease_id).state == "attached"
        world.live(6)
        assert lease(world, lease_id).reason == "deadline"

    def test_a_caller_that_went_away_before_the_answer_keeps_the_share_only_a_moment(self, world):
        world.request("k1", 200)
        world.handle(events.Cancelled(world.now, "ann", "k1"))
        world.live(10, renew=False)
        assert world.free() == 1000

    def test_and_finds_the_same_lease_when_it_comes_back_in_time(self, world):
        world.request("k1", 200)
        world.handle(events.Cancelled(world.now, "ann", "k1"))
        world.advance(2)
        lease_id = world.attach("k1", 200)
        world.live(20, renew=False)
        assert lease(world, lease_id).state == "attached"

    def test_nobody_is_blamed_when_the_pool_itself_stood_still(self, world):
        lease_id = world.attach("k1", 200)
        world.live(10, renew=False)
        world.now += 18  # 28 s since the last renewal, but only 10 in which the holder could have renewed
        world.handle(events.Tick(world.now))
        world.live(5)
        assert lease(world, lease_id).state == "attached"


class TestResize:
    def resize(self, world, lease_id, milli=None, mib=None):
        world.handle(events.Resized(world.now, lease_id, milli, mib))
        return [x for x in world.told if isinstance(x, instructions.TellResized)]

    def test_both_sizes_stay_taken_until_the_worker_confirms(self, world):
        lease_id = world.attach("k1", 600)
        self.resize(world, lease_id, 200)
        assert world.free() == 400
        world.settle()
        assert world.free() == 800
        assert lease(world, lease_id).epoch == 1
        assert world.nodes["node1"].workers["s1"].shares[0].milli == 200

    def test_growing_beyond_the_device_is_refused_with_numbers(self, world):
        lease_id = world.attach("k1", 600)
        world.attach("k2", 300, user="bob")
        (told,) = self.resize(world, lease_id, 800)
        assert told.reason == "full"
        assert "0.8 of a GPU is asked; the freest device node1/0 has 0.70" in told.explanation
        assert "bob holds 0.30" in told.explanation

    def test_a_worker_that_uses_more_refuses_and_the_old_size_stays(self, world):
        lease_id = world.attach("k1", 600)
        self.resize(world, lease_id, 200)
        applied = world.nodes["node1"].to_node.pop()
        world.handle(
            events.LeaseApplied(
                world.now,
                "node1",
                1,
                "s1",
                1,
                False,
                "in-use",
                applied.request,
                used_mib=3000,
            )
        )
        told = [x for x in world.told if isinstance(x, instructions.TellResized)][-1]
        assert told.reason == "in-use"
        assert "3000 MiB are in use" in told.explanation
        assert world.free() == 400

    def test_a_size_that_the_worker_refuses_for_good_is_not_called_unanswered(self, world):
        lease_id = world.attach("k1", 600)
        self.resize(world, lease_id, 200)
        applied = world.nodes["node1"].to_node.pop()
        refused = events.LeaseApplied(
            world.now, "node1", 1, "s1", 1, False, "its share is fixed", applied.request, answered=True
        )
        world.handle(refused)
        told = [x for x in world.told if isinstance(x, instructions.TellResized)][-1]
        assert (told.lease_id, told.reason) == (lease_id, "worker-refused")
        assert told.reason not in RESIZE_UNANSWERED
        assert world.free() == 400

    def test_a_worker_that_did_not_answer_has_refused_no_size(self, world):
        lease_id = world.attach("k1", 600)
        self.resize(world, lease_id, 200)
        applied = world.nodes["node1"].to_node.pop()
        silent = events.LeaseApplied(world.now, "node1", 1, "s1", 1, False, "no answer", applied.request)
        world.handle(silent)
        told = [x for x in world.told if isinstance(x, instructions.TellResized)][-1]
        assert (told.lease_id, told.reason) == (lease_id, "worker-failed")
        assert told.reason in RESIZE_UNANSWERED
        assert lease(world, lease_id).resize is None

    @pytest.mark.parametrize("milli", [200, 800])
    @pytest.mark.parametrize("heard", [True, False])
    def test_a_worker_that_did_not_answer_is_told_again_until_pool_and_worker_agree(
        self, world, milli, heard
    ):
        lease_id = world.attach("k1", 600)
        worker = world.nodes["node1"].workers["s1"]
        worker.late, worker.stuck = heard, not heard
        self.resize(world, lease_id, milli)
        world.settle()
        told = [x for x in world.told if isinstance(x, instructions.TellResized)][-1]
        assert (told.lease_id, told.reason) == (lease_id, "worker-failed")
        assert told.reason in RESIZE_UNANSWERED
        world.live(2 * world.timers.heartbeat)
        assert worker.shares[0].milli == (milli if heard else 600)
        assert world.free() == 1000 - max(600, milli), "it may have either size"
        assert self.resize(world, lease_id, 300)[-1].reason == "busy"
        worker.late = worker.stuck = False
        world.live(world.timers.heartbeat)
        assert worker.shares[0].milli == lease(world, lease_id).shares[0].milli == milli
        assert world.free() == 1000 - milli

    def test_a_worker_that_answers_at_last_may_refuse_what_it_has_no_room_for(self, world):
        lease_id = world.attach("k1", 600)
        worker = world.nodes["node1"].workers["s1"]
        worker.stuck = True
        self.resize(world, lease_id, 200)
        world.settle()
        worker.stuck, worker.keeps = False, (3000,)
        world.live(world.timers.heartbeat)
        assert worker.shares[0].milli == lease(world, lease_id).shares[0].milli == 600
        assert world.free() == 400

    def test_a_heartbeat_during_a_resize_does_not_name_a_size(self, world):
        lease_id = world.attach("k1", 600)
        self.resize(world, lease_id, 200)
        done = world.handle(events.NodeHeartbeat(world.now, "node1", 1, 5))
        answer = next(x for x in done if isinstance(x, instructions.AnswerHeartbeat))
        assert answer.leases[0].shares == ()

    def test_growing_does_not_overtake_those_who_wait(self, world):
        lease_id = world.attach("k1", 600)
        world.request("k2", 500, user="bob", wait=None)
        told = self.resize(world, lease_id, 900)[-1]
        assert told.reason == "full"
        assert "waits longer" in told.explanation

    def test_a_lease_that_is_over_has_no_size(self, world):
        lease_id = world.attach("k1", 600)
        world.release(lease_id)
        assert self.resize(world, lease_id, 200)[-1].reason == "not-attached"


def test_the_invariants_notice_a_device_that_is_promised_twice(world):
    from dataclasses import replace

    world.attach("k1", 700)
    other = replace(lease(world, "l1"), id="l9", key="k9", session_id="s9")
    world.machine.state.leases["l9"] = other
    world.machine.state.sessions["s9"] = replace(session(world, "l1"), id="s9", lease_id="l9")
    with pytest.raises(InvariantViolatedError, match="1400 milli-GPU are taken on node1/0"):
        check_invariants(world.machine.state)


@pytest.mark.parametrize("used", [False, True])
def test_a_reservation_whose_time_is_over_keeps_its_session_only_for_a_program(world, used):
    lease_id = world.attach("k1", 200, reservation=True, duration=10.0)
    if used:
        world.nodes["node1"].heartbeat(world.now)  # says that a client is connected
        world.settle()
    world.advance(11.0)
    assert (lease(world, lease_id).reason, session(world, lease_id).state) == (
        "deadline",
        "parked" if used else "closed",
    )


def test_a_fence_that_is_not_shorter_than_the_reuse_is_refused():
    with pytest.raises(ValueError, match="must be shorter"):
        Timers(fence=30.0, reuse=30.0)


def test_a_share_is_split_in_two_and_the_neighbour_gets_no_message(world):
    """55 % become 35 % and 20 % while the 45 % beside it runs on."""
    world.attach("k1", 550)
    world.attach("k2", 450, user="bob")
    done = world.handle(events.Resized(world.now, "l1", 350, None))
    world.settle()
    done += world.request("k3", 200, user="cat")
    sent = [item for item in done if isinstance(item, instructions.ToNode)]
    assert [(type(item).__name__, item.session_id) for item in sent] == [
        ("ApplyLease", "s1"),
        ("StartWorker", "s3"),
    ]
    world.settle()
    assert isinstance(world.answer("k3"), instructions.TellGranted)
    assert world.free() == 0

"""The loop that keeps jobs: what it does when an engine waits, fails, lies, takes away, or does not answer."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from gpupool.providers import grower, job_orders
from gpupool.providers.contract import JobReport
from gpupool.providers.elasticity import PENDING_PATIENCE, Ask, Scale
from gpupool.providers.grower import Grower

from tests.support.provider_world import ASK, World
from tests.support.scripted_provider import MemoryBook, ScriptedProvider


class TestGrowing:
    async def test_nobody_waits_so_nothing_is_asked_for(self) -> None:
        world = World()
        await world.look(times=3)
        assert world.provider.orders == {}

    async def test_five_small_asks_are_one_job_and_are_told_so(self) -> None:
        world = World()
        world.pool.waiting = [Ask(f"u{i}", 200, None) for i in range(5)]
        await world.look(times=3)
        assert len(world.provider.living()) == 1
        assert "lab has given a node" in world.pool.words("u4")

    async def test_what_no_device_could_serve_asks_for_nothing(self) -> None:
        world = World()
        world.pool.waiting = [
            Ask("big", None, 10**6),
            Ask("many", 500, None, count=2),
            Ask("else", 500, None, pools=("x",)),
            Ask("other", 500, None, unlike=frozenset({"lab"})),
        ]
        await world.look(times=2)
        assert world.provider.orders == {} and world.pool.said == {}

    async def test_what_still_waits_when_the_agent_has_just_connected_asks_for_no_other_job(self) -> None:
        world = World()
        job = await world.one_job(connect=False)
        world.pool.connect(world.provider.node_of(job))
        await world.look()  # the request is granted in a moment
        assert world.provider.living() == [job]
        await world.look()  # it is not: another one has the room
        assert len(world.provider.living()) == 2

    async def test_never_more_than_the_maximum(self) -> None:
        world = World()
        world.pool.waiting = [Ask(f"u{i}", 1000, None) for i in range(9)]
        await world.look(times=4)
        assert len(world.provider.living()) == 3
        assert "no more than 3 node(s)" in world.pool.words("u8")

    async def test_the_minimum_is_kept_without_anybody(self) -> None:
        world = World(scale=Scale(minimum=2, maximum=3, idle=1.0))
        await world.look(times=5)
        assert len(world.provider.living()) == 2


class TestTrouble:
    async def test_a_job_that_serves_does_not_end_the_pauses_after_refusals(self) -> None:
        world = World()
        await world.one_job(busy=True)
        world.provider.refuses = "above the quota"
        world.pool.waiting = [ASK]
        await world.look(times=60)
        assert 2 <= world.provider.submits - 1 <= 8
        assert "above the quota" in world.pool.words("ann")

    async def test_a_new_agent_ends_them(self) -> None:
        world = World()
        await world.one_job(busy=True)
        world.provider.refuses = "above the quota"
        world.pool.waiting = [ASK]
        await world.look(times=60)
        world.provider.refuses = ""
        await world.look(after=301.0)
        new = world.provider.living()[-1]
        world.pool.connect(world.provider.node_of(new), busy=True)
        await world.look(times=2)
        assert world.grower.provider("lab")[2].failures == 0

    async def test_a_time_limit_that_leaves_no_time_is_a_failure(self) -> None:
        world = World()
        world.provider.first = JobReport("running", seconds_left=90.0)
        world.pool.waiting = [ASK]
        await world.look(times=200)
        assert 2 <= world.provider.submits <= 10
        assert "time limit of 90 s" in world.pool.words("ann")


class TestAnswersThatAreLost:
    async def lost(self) -> World:
        """A pool that has ended while the answer to its submit was on its way."""
        world = World(scale=Scale(maximum=1, idle=60.0, drain_before=100.0, start=50.0))
        world.provider.loses_answers = True
        world.pool.waiting = [ASK]
        await world.look()
        (job,) = world.provider.jobs
        world.provider.down = True
        await world.grower.give_back()
        world.provider.down = world.provider.loses_answers = False
        assert world.book.jobs()[job].phase == "cancelling"
        return world

    async def test_what_never_came_to_the_engine_takes_no_place(self) -> None:
        world = await self.lost()
        world.provider.jobs.clear()
        world.restarted()
        await world.look(after=10.0)
        await world.look(after=61.0, times=2)
        assert len(world.provider.living()) == 1

    async def test_what_came_to_it_is_ended_by_the_next_pool(self) -> None:
        world = await self.lost()
        (job,) = world.provider.jobs
        world.provider.jobs[job] = JobReport("running")
        world.restarted()
        await world.look(after=10.0, times=4)
        assert job not in world.provider.living()
        assert job not in world.book.rows
        assert len(world.provider.living()) == 1


class TestAProviderThatIsNoLongerNamed:
    async def test_its_nodes_are_emptied_and_its_jobs_forgotten(self) -> None:
        world = World()
        job = await world.one_job(busy=True)
        node = world.provider.node_of(job)
        world.grower = Grower(world.book, world.pool, {"other": (ScriptedProvider(), world.scale)})
        await world.look()
        assert [(name, evict) for name, _, evict in world.pool.drains] == [(node, True)]
        del world.pool.nodes[node]
        await world.look(after=61.0)
        assert job not in world.book.rows


class TestShrinking:
    async def test_what_nobody_needs_is_drained_first_and_then_ended(self) -> None:
        world = World()
        job = await world.one_job(busy=True)
        await world.look(after=100.0, times=3)
        assert world.provider.living() == [job]
        node = world.provider.node_of(job)
        world.pool.change(node, busy=False)
        await world.look(after=1.0)
        await world.look(after=61.0)
        assert (
            world.pool.drains == [(node, "nobody needed it for 60 s", False)] and world.provider.cancels == []
        )
        await world.look()
        assert world.provider.cancels == [job]

    async def test_a_lease_that_came_before_the_drain_keeps_the_job(self) -> None:
        world = World()
        job = await world.one_job()
        await world.look(after=61.0)
        world.pool.change(world.provider.node_of(job), busy=True)
        await world.look(times=3)
        assert world.provider.living() == [job]

    async def test_who_stops_waiting_takes_back_what_the_engine_has_not_given(self) -> None:
        world = World()
        world.provider.first = JobReport("pending", "Resources")
        job = await world.one_job(connect=False)
        world.pool.waiting = []
        await world.look()
        await world.look(after=61.0)
        assert world.provider.cancels == [job]

    async def test_a_node_is_forgotten_when_it_is_lost_and_not_before(self) -> None:
        world = World()
        job = await world.one_job()
        node = world.provider.node_of(job)
        await world.look(after=61.0)
        await world.look(times=2)
        world.pool.change(node, connected=False)
        await world.look()
        assert node in world.pool.nodes and job in world.book.rows
        world.pool.change(node, lost=True)
        await world.look(times=2)
        assert node not in world.pool.nodes and world.book.rows == {}


class TestEnginesThatFail:
    async def test_if_the_engine_expects_a_start_whoever_waits_is_told_in_steps_of_five_minutes(self) -> None:
        world = World()
        world.provider.first = JobReport("pending", "Resources", starts_in=700.0)
        world.pool.waiting = [ASK]
        await world.look(times=2)
        assert world.pool.said[ASK.id].params["seconds"].value == 900.0
        (job,) = world.provider.living()
        for seconds, said in ((601.0, 900.0), (600.0, 600.0), (0.0, 300.0)):
            world.provider.jobs[job] = JobReport("pending", "Resources", starts_in=seconds)
            await world.look()
            assert world.pool.said[ASK.id].params["seconds"].value == said

    async def test_an_engine_that_lets_a_job_wait_for_ever_is_asked_for_no_more(self) -> None:
        world = World()
        world.provider.first = JobReport("pending", "Priority")
        world.pool.waiting = [ASK]
        await world.look()
        await world.look(after=PENDING_PATIENCE)
        world.pool.waiting = [Ask(f"u{i}", 1000, None) for i in range(3)]
        await world.look(after=1000.0, times=5)
        assert len(world.provider.orders) == 1
        assert "lets it wait (Priority)" in world.pool.words("u2")

    async def test_a_job_that_the_engine_never_starts_goes_back_and_is_asked_for_again(self) -> None:
        world = World()
        world.provider.first = JobReport("pending", "PartitionTimeLimit", never=True)
        world.pool.waiting = [ASK]
        await world.look()
        (job,) = world.provider.living()
        await world.look(after=PENDING_PATIENCE + 1.0, times=2)
        assert world.provider.cancels == [job]
        await world.look(after=1.0)
        assert "never starts it: PartitionTimeLimit" in world.pool.words("ann")
        world.provider.first = JobReport("running")
        await world.look(after=10.0, times=2)
        assert len(world.provider.living()) == 1 and job not in world.provider.living()

    async def test_a_job_that_dies_at_its_start_is_tried_again_ever_later(self) -> None:
        world = World()
        world.provider.first = JobReport("ended", "exit code 1")
        world.pool.waiting = [ASK]
        await world.look(times=200)  # 1000 s
        assert 4 <= len(world.provider.orders) <= 9
        assert "exit code 1" in world.pool.words("ann")

    async def test_a_quota_that_refuses_leaves_nothing_and_is_tried_again_later(self) -> None:
        world = World()
        world.provider.refuses = "above the quota"
        world.pool.waiting = [ASK]
        await world.look(times=3)
        assert world.book.rows == {} and "above the quota" in world.pool.words("ann")
        world.provider.refuses = ""
        await world.look(after=400.0)
        assert len(world.provider.living()) == 1

    async def test_an_engine_that_does_not_answer_changes_nothing(self) -> None:
        world = World()
        job = await world.one_job(busy=True)
        world.provider.down = True
        world.pool.waiting = [ASK]
        await world.look(after=100.0, times=5)
        assert world.pool.drains == [] and job in world.book.rows
        assert "does not answer" in world.pool.words("ann")
        world.provider.down = False
        await world.look(after=400.0, times=2)
        assert job in world.provider.living() and len(world.provider.living()) == 2

    async def test_an_answer_that_was_lost_makes_no_second_job(self) -> None:
        world = World()
        world.provider.loses_answers = True
        world.pool.waiting = [ASK]
        await world.look()
        world.provider.loses_answers = False
        await world.look(times=8)
        assert len(world.provider.orders) == 1
        assert [row["phase"] for row in world.book.rows.values()] == ["submitted"]

    async def test_a_submit_that_never_arrived_is_given_up_after_a_while(self) -> None:
        world = World()
        world.provider.loses_answers = True
        world.pool.waiting = [ASK]
        await world.look()
        world.provider.loses_answers = False
        world.provider.jobs.clear()
        await world.look(after=10.0)
        assert len(world.provider.orders) == 1
        await world.look(after=60.0, times=2)
        assert len(world.provider.living()) == 1

    async def test_an_agent_that_never_connects_is_ended(self) -> None:
        world = World()
        job = await world.one_job(connect=False)
        await world.look(after=51.0, times=2)
        assert world.provider.cancels == [job]
        await world.look(after=1.0)
        assert world.provider.living() == [] and "did not connect" in world.pool.words("ann")

    async def test_an_agent_with_other_devices_than_asked_for_serves_nobody(self) -> None:
        world = World()
        job = await world.one_job(connect=False)
        world.pool.connect(world.provider.node_of(job), devices=4)
        world.pool.waiting = []
        await world.look()
        assert world.provider.cancels == [job]
        assert [(node, evict) for node, _, evict in world.pool.drains] == [
            (world.provider.node_of(job), True)
        ]

    async def test_an_agent_that_connects_while_its_job_cannot_be_ended_serves_nobody(self) -> None:
        world = World()
        job = await world.one_job(connect=False)
        world.provider.unending = {job}
        await world.look(after=51.0, times=2)
        assert world.book.rows[job]["phase"] == "cancelling"
        node = world.provider.node_of(job)
        world.pool.connect(node)
        await world.look()
        assert world.pool.nodes[node].drained

    async def test_a_drain_that_could_not_be_stored_is_tried_again(self) -> None:
        world = World()
        job = await world.one_job(busy=True)
        node = world.provider.node_of(job)
        world.provider.jobs[job] = JobReport("running", "evicting", 50.0)
        world.pool.loses_drains = 1
        await world.look()
        assert not world.pool.nodes[node].drained
        await world.look()
        assert world.pool.nodes[node].drained
        assert [evict for _, _, evict in world.pool.drains] == [True, True]

    async def test_a_job_that_cannot_be_ended_keeps_no_other_from_its_end(self) -> None:
        world = World()
        world.pool.waiting = [replace(ASK, id=f"u{i}", milli=1000) for i in range(2)]
        await world.look()
        first, second = world.provider.living()
        world.provider.unending = {first}
        world.pool.waiting = []
        await world.look(after=61.0, times=3)
        assert world.provider.cancels == [second]

    async def test_a_job_that_cannot_be_ended_keeps_nobody_from_a_new_one(self) -> None:
        world = World()
        job = await world.one_job(connect=False)
        world.provider.unending = {job}
        world.pool.waiting = []
        await world.look(after=61.0, times=2)
        assert world.book.rows[job]["phase"] == "cancelling"
        world.pool.waiting = [ASK]
        await world.look(after=10.0, times=3)
        assert world.provider.submits == 2

    async def test_a_stranger_that_cannot_be_ended_stops_no_look(self) -> None:
        world = World()
        job = await world.one_job(busy=True)
        world.provider.jobs["stranger"] = JobReport("running")
        world.provider.unending = {"stranger"}
        world.provider.jobs[job] = JobReport("running", "evicting", 50.0)
        await world.look(after=400.0, times=2)
        assert world.pool.nodes[world.provider.node_of(job)].drained

    async def test_a_preempted_job_is_replaced_for_whoever_waits(self) -> None:
        world = World()
        job = await world.one_job(busy=True)
        world.provider.jobs[job] = JobReport("ended", "PREEMPTED")
        world.pool.waiting = [ASK]
        await world.look(times=2)
        assert len(world.provider.living()) == 1 and world.provider.living() != [job]

    async def test_an_engine_that_frees_the_node_of_a_living_agent_frees_no_share(self) -> None:
        world = World()
        job = await world.one_job(busy=True)
        node = world.provider.node_of(job)
        world.provider.jobs[job] = JobReport("ended", "NODE_FAIL")
        await world.look(times=3)
        assert world.pool.drains == [(node, "its job is over", True)]
        assert world.pool.nodes[node].busy and job in world.book.rows

    async def test_a_job_that_was_called_ended_and_lives_is_ended(self) -> None:
        world = World()
        job = await world.one_job()
        world.provider.jobs[job] = JobReport("ended", "hidden for a moment")
        await world.look()
        assert world.pool.drains[-1][1] == "its job is over"
        world.provider.jobs[job] = JobReport("running")
        await world.look(after=100.0)
        assert world.provider.cancels == [job]

    async def test_jobs_of_this_pool_that_the_ledger_does_not_know_are_ended(self) -> None:
        world = World()
        world.provider.jobs["stranger"] = JobReport("running")
        await world.look()
        assert world.provider.cancels == ["stranger"]

    async def test_a_former_leader_that_wakes_up_ends_no_job_of_its_successor(self) -> None:
        world = World()
        await world.look()
        former, former_book = world.grower, world.book
        # Another server has taken over; the former one is stopped meanwhile, and its next look for strangers is due.
        world.book = MemoryBook(rows=dict(former_book.rows))
        world.restarted()
        job = await world.one_job(busy=True)
        former_book.deposed = True
        world.pool.clock += 100.0
        with pytest.raises(RuntimeError, match="has taken over"):
            await former.step()
        assert world.provider.cancels == [] and world.provider.living() == [job]


class TestTimeLimits:
    async def test_a_node_that_the_engine_takes_back_is_emptied_with_its_words(self) -> None:
        world = World()
        job = await world.one_job(busy=True)
        world.provider.jobs[job] = JobReport("running", "EvictionByEvictionAPI: evicting", 30.0)
        await world.look()
        node = world.provider.node_of(job)
        assert world.pool.drains == [
            (node, "the engine takes it back: EvictionByEvictionAPI: evicting", True)
        ]
        assert world.provider.cancels == []

    async def test_a_node_is_emptied_before_its_time_limit_and_then_given_back(self) -> None:
        world = World()
        job = await world.one_job(busy=True)
        node = world.provider.node_of(job)
        world.provider.jobs[job] = JobReport("running", seconds_left=101.0)
        await world.look()
        assert world.pool.drains == []
        world.provider.jobs[job] = JobReport("running", seconds_left=99.0)
        await world.look(times=3)
        assert world.pool.drains == [(node, "its time limit is near", True)] and world.provider.cancels == []
        world.pool.change(node, busy=False)
        await world.look()
        assert world.provider.cancels == [job]

    async def test_a_node_is_emptied_in_time_though_the_engine_is_silent(self) -> None:
        world = World()
        job = await world.one_job(busy=True)
        node = world.provider.node_of(job)
        world.provider.jobs[job] = JobReport("running", seconds_left=150.0)
        await world.look()
        world.provider.down = True
        await world.look(after=49.0)
        assert world.pool.drains == []
        await world.look(after=2.0, times=3)
        assert world.pool.drains == [(node, "its time limit is near", True)] and world.provider.cancels == []

    async def test_what_the_engine_says_after_a_silence_counts_again(self) -> None:
        world = World()
        job = await world.one_job(busy=True)
        world.provider.jobs[job] = JobReport("running", seconds_left=150.0)
        await world.look()
        world.provider.down = True
        await world.look(after=20.0)
        world.provider.down = False
        await world.look(after=40.0)  # its limit was moved meanwhile
        assert world.pool.drains == []

    async def test_while_it_is_emptied_whoever_waits_gets_another(self) -> None:
        world = World()
        job = await world.one_job(busy=True)
        world.provider.jobs[job] = JobReport("running", seconds_left=50.0)
        world.pool.waiting = [ASK]
        await world.look(times=2)
        assert len(world.provider.living()) == 2

    async def test_a_successor_is_asked_for_before_the_node_is_emptied_and_kept_until_it_is_needed(
        self,
    ) -> None:
        world = World()
        job = await world.one_job()
        world.pool.serve(world.provider.node_of(job), ASK)
        world.provider.jobs[job] = JobReport("running", seconds_left=401.0)
        await world.look()
        assert world.provider.living() == [job]
        world.provider.jobs[job] = JobReport("running", seconds_left=399.0)
        await world.look(times=2)
        _, successor = world.provider.living()
        world.pool.connect(world.provider.node_of(successor))
        await world.look(after=61.0, times=3)
        assert world.provider.living() == [job, successor] and world.pool.drains == []

    async def test_no_successor_where_the_leases_fit_elsewhere_or_nobody_is_there(self) -> None:
        world = World()
        job = await world.one_job()
        world.provider.jobs[job] = JobReport("running", seconds_left=399.0)
        await world.look()
        assert world.provider.living() == [job]
        world.pool.connect("by-hand")
        world.pool.serve(world.provider.node_of(job), ASK)
        await world.look(times=2)
        assert world.provider.living() == [job]
        world.pool.serve("by-hand", Ask("bob", 900, None))
        await world.look(times=2)
        assert len(world.provider.living()) == 2

    @pytest.mark.parametrize(
        ("unlike", "asked"),
        [
            ({"pool": "training"}, 2),
            ({"sharing": "open"}, 2),
            ({"types": frozenset({"NVIDIA L4"})}, 2),
            ({"types": frozenset({"NVIDIA H100", "NVIDIA L4"})}, 1),
        ],
    )
    async def test_room_counts_only_where_the_sessions_may_go_on(
        self, unlike: dict[str, object], asked: int
    ) -> None:
        world = World()
        job = await world.one_job()
        world.pool.change(world.provider.node_of(job), types=frozenset({"NVIDIA H100"}))
        world.pool.serve(world.provider.node_of(job), ASK)
        world.pool.connect("by-hand")
        world.pool.change("by-hand", **{"types": frozenset({"NVIDIA H100"}), **unlike})
        world.provider.jobs[job] = JobReport("running", seconds_left=399.0)
        await world.look(times=2)
        assert len(world.provider.living()) == asked

    async def test_leases_of_two_nodes_share_a_successor_and_the_maximum_holds(self) -> None:
        world = World()
        world.pool.waiting = [Ask("a", 600, None), Ask("b", 600, None)]
        await world.look()
        for job, ask in zip(world.provider.living(), world.pool.waiting, strict=True):
            world.pool.connect(world.provider.node_of(job))
            world.pool.serve(world.provider.node_of(job), Ask(ask.id, 400, None))
            world.provider.jobs[job] = JobReport("running", seconds_left=300.0)
        world.pool.waiting = []
        await world.look(times=3)
        assert len(world.provider.living()) == 3


class TestTheEnd:
    async def test_an_engine_that_does_not_answer_keeps_nobody_from_ending(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(grower, "_FINISH", 0.05)
        monkeypatch.setattr(job_orders, "_GIVE_BACK", 0.05)
        world = World()
        job = await world.one_job(busy=True)
        world.provider.hangs = True
        running = asyncio.ensure_future(world.grower.run())
        await asyncio.sleep(0.01)
        await asyncio.wait_for(world.grower.give_back(), 10)
        running.cancel()
        assert world.book.jobs()[job].phase == "cancelling"

    async def test_a_job_that_was_being_submitted_is_ended_too(self) -> None:
        world = World()
        world.provider.slow = 0.05
        world.pool.waiting = [ASK]
        running = asyncio.ensure_future(world.grower.run())
        await asyncio.sleep(0.01)
        await world.grower.give_back()
        running.cancel()
        assert world.provider.living() == []

    async def test_a_pool_that_gives_all_back_ends_busy_jobs_too_and_asks_for_no_more(self) -> None:
        world = World()
        job = await world.one_job(busy=True)
        await world.grower.give_back()
        assert world.provider.living() == [] and world.provider.cancels == [job]
        world.pool.waiting = [ASK]
        await world.look(after=100.0, times=3)
        assert len(world.provider.orders) == 1

    async def test_what_an_engine_did_not_hear_is_ended_by_the_next_pool(self) -> None:
        world = World()
        job = await world.one_job()
        world.provider.down = True
        await world.grower.give_back()
        assert world.book.rows[job]["phase"] == "cancelling"
        world.provider.down = False
        world.restarted()
        await world.look()
        assert world.provider.living() == []


class TestTwoProviders:
    async def alike(self) -> tuple[World, ScriptedProvider]:
        """Two providers that both could serve somebody who waits."""
        world, other = World(), ScriptedProvider()
        world.grower = Grower(
            world.book, world.pool, {"lab": (world.provider, world.scale), "cloud": (other, world.scale)}
        )
        world.pool.waiting = [Ask("ann", 600, None)]
        await world.look(times=3)
        return world, other

    async def test_one_of_them_borrows_a_node_for_a_request(self) -> None:
        world, other = await self.alike()
        assert (len(world.provider.living()), len(other.living())) == (1, 0)

    async def test_the_other_does_so_when_the_first_lets_its_job_wait_for_ever(self) -> None:
        world, other = await self.alike()
        (job,) = world.provider.living()
        world.provider.jobs[job] = JobReport("pending")
        await world.look(after=PENDING_PATIENCE + 1.0, times=3)
        assert len(other.living()) == 1

    async def test_one_that_may_start_nothing_does_not_speak_for_the_one_that_does(self) -> None:
        world, other = World(), ScriptedProvider()
        full = replace(world.scale, maximum=0)
        world.grower = Grower(
            world.book, world.pool, {"lab": (world.provider, full), "cloud": (other, world.scale)}
        )
        world.pool.waiting = [Ask("ann", 600, None)]
        await world.look()
        assert world.pool.said["ann"].code == "provider.at-maximum"
        await world.look()
        assert (len(world.provider.living()), len(other.living())) == (0, 1)
        assert world.pool.said["ann"].code != "provider.at-maximum"

    async def two(self) -> tuple[World, ScriptedProvider, str, str]:
        """Two providers with a job each, of which each serves somebody, and both of which end soon."""
        world, other = World(), ScriptedProvider()
        world.grower = Grower(
            world.book,
            world.pool,
            {"lab": (world.provider, world.scale), "kube": (other, world.scale)},
        )
        world.pool.waiting = [
            Ask("ann", 600, None, unlike=frozenset({"kube"})),
            Ask("bob", 600, None, unlike=frozenset({"lab"})),
        ]
        await world.look()
        world.pool.waiting = []
        found = []
        for provider, user in ((world.provider, "ann"), (other, "bob")):
            (job,) = provider.living()
            world.pool.connect(provider.node_of(job))
            world.pool.serve(provider.node_of(job), Ask(user, 400, None))
            found.append(job)
        await world.look()
        for provider, job in zip((world.provider, other), found, strict=True):
            provider.jobs[job] = JobReport("running", seconds_left=399.0)
        return world, other, found[0], found[1]

    async def test_whose_jobs_end_together_do_not_count_on_each_other(self) -> None:
        world, other, _, _ = await self.two()
        await world.look(times=2)  # the first hears of the other's time limit at its second look
        assert (len(world.provider.living()), len(other.living())) == (2, 2)

    async def test_the_same_room_is_not_counted_on_twice(self) -> None:
        world, other, _, _ = await self.two()
        world.pool.connect("by-hand")
        world.pool.serve("by-hand", Ask("eve", 500, None))
        await world.look(times=2)
        assert (len(world.provider.living()), len(other.living())) == (1, 2)

    async def test_a_job_that_the_leases_of_the_other_need_is_not_given_back_as_idle(self) -> None:
        world, other, mine, its = await self.two()
        world.provider.jobs[mine] = JobReport("running", seconds_left=None)
        world.pool.serve(world.provider.node_of(mine))
        await world.look(after=61.0, times=3)
        assert world.pool.drains == [] and other.living() == [its]


class TestRestarts:
    async def test_jobs_are_taken_over(self) -> None:
        world = World()
        job = await world.one_job(busy=True)
        world.restarted()
        await world.look(after=100.0, times=3)
        assert world.provider.living() == [job] and len(world.provider.orders) == 1

    async def test_who_was_being_ended_is_ended_again(self) -> None:
        world = World()
        job = await world.one_job(connect=False)
        world.book.rows[job] = {**world.book.rows[job], "phase": "cancelling"}
        world.restarted()
        await world.look()
        assert world.provider.cancels == [job]


class TestLostNodes:
    async def test_a_job_whose_agent_is_lost_is_given_back_though_sessions_remember_it(self) -> None:
        world = World()
        job = await world.one_job(busy=True)
        world.pool.change(world.provider.node_of(job), connected=False, lost=True)
        await world.look()
        await world.look(after=61.0, times=3)
        assert world.provider.cancels == [job]

    async def test_the_minimum_is_of_nodes_that_serve(self) -> None:
        world = World(scale=Scale(minimum=1, maximum=2, idle=60.0, drain_before=100.0, start=50.0))
        await world.look()
        (job,) = world.provider.living()
        world.pool.connect(world.provider.node_of(job))
        await world.look(times=2)
        world.pool.change(world.provider.node_of(job), connected=False, lost=True)
        await world.look(after=61.0, times=4)
        (other,) = world.provider.living()
        assert other != job


async def test_providers_are_closed_at_the_end_and_jobs_go_on() -> None:
    world = World()
    job = await world.one_job()
    running = asyncio.create_task(world.grower.run())
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert world.provider.closed
    assert world.provider.living() == [job]

"""Whatever users do, fair share keeps its word: what is deserved is there within the notice, and nobody starves."""

from __future__ import annotations

import random

from gpupool.scheduler.fairshare import Project, ProjectTree
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.support.fair_pool import FairPool

LEAVES = ("a", "b/x", "b/y", "c/x", "default")
deserved = st.one_of(st.none(), st.integers(0, 12))


@st.composite
def trees(draw: st.DrawFn) -> ProjectTree:
    return ProjectTree(
        Project(
            path,
            draw(deserved),
            draw(st.one_of(st.none(), st.integers(12, 20))),
            draw(st.integers(0, 3)),
            draw(st.integers(0, 1)),
        )
        for path in LEAVES
    )


class FairPoolMachine(RuleBasedStateMachine):
    @initialize(tree=trees(), capacity=st.integers(4, 24))
    def begin(self, tree: ProjectTree, capacity: int) -> None:
        self.pool = FairPool(tree, capacity)
        #: Since when a request has been first of its project and within what it deserves, and what its project held then.
        self.due_since: dict[str, tuple[int, int]] = {}

    @rule(
        project=st.sampled_from(LEAVES),
        milli=st.integers(1, 6),
        kind=st.sampled_from(["interactive", "guaranteed", "preemptible"]),
        priority=st.sampled_from([50, 100, 125]),
    )
    def ask(self, project: str, milli: int, kind: str, priority: int) -> None:
        self.pool.ask(project, milli, kind, priority)

    @precondition(lambda self: self.pool.leases)
    @rule(which=st.integers(0, 20))
    def end(self, which: int) -> None:
        names = list(self.pool.leases)
        self.pool.end(names[which % len(names)])

    @precondition(lambda self: self.pool.requests)
    @rule(which=st.integers(0, 20))
    def leave(self, which: int) -> None:
        names = list(self.pool.requests)
        self.pool.leave(names[which % len(names)])

    @rule(times=st.integers(1, 4))
    def wait(self, times: int) -> None:
        for _ in range(times):
            self.pool.tick()
            self.what_is_deserved_is_there_within_the_notice()

    @invariant()
    def never_more_than_there_is(self) -> None:
        assert sum(lease.milli for lease in self.pool.leases.values()) <= self.pool.capacity

    @invariant()
    def every_limit_is_kept(self) -> None:
        standings = self.pool.standings()
        for path in self.pool.tree.paths:
            limit = self.pool.tree.limit(path)
            assert limit is None or standings.standing(path).allocated <= limit

    @invariant()
    def nothing_protected_is_taken_back(self) -> None:
        assert not any(protected for _, protected in self.pool.taken)

    @invariant()
    def guaranteed_leases_stay_within_what_is_deserved(self) -> None:
        for path in self.pool.tree.paths:
            held = sum(
                lease.milli
                for lease in self.pool.leases.values()
                if lease.kind == "guaranteed" and path in self.pool.tree.ancestors(lease.project)
            )
            assert held <= self.pool.tree.deserved(path, self.pool.capacity)

    @invariant()
    def what_is_deserved_is_there_within_the_notice(self) -> None:
        pool = self.pool
        standings = pool.standings()
        due = {}
        for request in pool.requests.values():
            first = min(
                (other for other in pool.requests.values() if other.project == request.project),
                key=lambda other: (-other.priority, other.number),
            )
            within = all(
                standings.standing(path).allocated + request.milli <= pool.tree.deserved(path, pool.capacity)
                for path in pool.tree.ancestors(request.project)
            )
            if first is request and within:
                held = standings.standing(request.project).allocated
                since, before = self.due_since.get(request.id, (pool.now, held))
                # What its own project got meanwhile went to a request before it, with room that was coming for it.
                due[request.id] = (since if held <= before else pool.now, held)
        self.due_since = due
        late = {name: pool.now - since for name, (since, _) in due.items() if pool.now - since > pool.notice}
        assert not late, (late, pool)


TestFairPool = FairPoolMachine.TestCase
TestFairPool.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


def test_room_that_was_taken_back_comes_to_the_first_in_line() -> None:
    """Not to those behind the one for whom it was taken back."""
    tree = ProjectTree(
        [
            Project("a", weight=0),
            Project("b/x", weight=0),
            Project("b/y", weight=0),
            Project("c/x", weight=0),
            Project("default", 0, 20, weight=0),
        ]
    )
    pool = FairPool(tree, 11)
    pool.ask("b/y", 1)
    pool.ask("b/y", 2)
    pool.ask("b/x", 3, "preemptible")
    pool.ask("c/x", 3, priority=50)
    pool.ask("b/y", 2, priority=125)
    behind = pool.ask("b/x", 1, priority=125)
    pool.tick()
    pool.ask("a", 1)
    pool.ask("a", 1)
    mine = pool.ask("c/x", 1, priority=50)
    for _ in range(pool.notice):
        pool.tick()
    assert mine not in pool.requests
    assert behind not in pool.requests


def test_nobody_starves_within_its_fair_share_though_others_never_stop_asking() -> None:
    """Two hundred moments of a crowd that wants everything, against one who asks once and has lower priority."""
    tree = ProjectTree(
        [
            Project("one", 0, priority=0),
            Project("a", 4),
            Project("b/x", 4, weight=3),
            Project("b/y", 0, weight=3),
        ]
    )
    for seed in range(8):
        dice = random.Random(seed)
        pool = FairPool(tree, 20)
        ends: dict[str, int] = {}
        mine = ""
        for moment in range(200):
            for _ in range(2):
                project = dice.choice(["a", "b/x", "b/y"])
                pool.ask(project, dice.randint(1, 3), dice.choice(["interactive", "preemptible"]), 125)
            if moment == 40:
                mine = pool.ask("one", 2, "preemptible", 50)
            for name in pool.leases:
                ends.setdefault(name, pool.now + dice.randint(5, 30))
            for name in [name for name in pool.leases if ends[name] <= pool.now]:
                pool.end(name)
            pool.tick()
            if moment > 40 and mine not in pool.requests:
                break
        assert mine not in pool.requests, f"seed {seed}: still waiting after {pool.now - 40} moments"
        assert mine not in pool.refused


def test_all_are_served_in_the_end_when_leases_end() -> None:
    """Requests larger than any fair share too: a crowd that has stopped asking leaves room for everybody."""
    tree = ProjectTree([Project("a", 4), Project("b", 4, weight=3), Project("c", 0, weight=0)])
    for seed in range(10):
        dice = random.Random(seed)
        pool = FairPool(tree, 12)
        for _ in range(40):
            pool.ask(dice.choice("abc"), dice.randint(1, 12), dice.choice(["interactive", "preemptible"]))
        ends: dict[str, int] = {}
        for _ in range(40 * 10):
            if not pool.requests:
                break
            for name in pool.leases:
                ends.setdefault(name, pool.now + dice.randint(1, 8))
            for name in [name for name in pool.leases if ends[name] <= pool.now]:
                pool.end(name)
            pool.tick()
        assert not pool.requests
        assert not pool.refused

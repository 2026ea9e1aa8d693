"""Exactly at the line: one milli-GPU decides."""

from __future__ import annotations

import pytest
from gpupool.scheduler.fairshare import HeldLease, Project, ProjectTree, Standings, Waiting, fair_shares


def lease(name: str, project: str, milli: int, kind: str = "interactive", priority: int = 100) -> HeldLease:
    return HeldLease(name, project, milli, kind, priority, granted_at=float(name[1:]))


@pytest.mark.parametrize(("second", "protected"), [(500, True), (501, False)])
def test_a_lease_is_protected_up_to_the_last_milli_that_is_deserved(second: int, protected: bool) -> None:
    tree = ProjectTree([Project("A", 2000)])
    standings = Standings(tree, 8000, [lease("l1", "A", 1500), lease("l2", "A", second)])
    assert standings.is_protected("l1")
    assert standings.is_protected("l2") is protected


def test_a_lease_that_is_too_large_is_passed_over() -> None:
    tree = ProjectTree([Project("A", 2000)])
    leases = [lease("l1", "A", 1500), lease("l2", "A", 1000), lease("l3", "A", 500)]
    standings = Standings(tree, 8000, leases)
    assert [standings.is_protected(x.id) for x in leases] == [True, False, True]
    assert standings.standing("A").protected == 2000


def test_guaranteed_leases_above_what_is_deserved_cost_siblings_their_protection_while_they_last() -> None:
    """A device is lost: x keeps its two guaranteed GPUs, and the department has only two."""
    tree = ProjectTree([Project("d", 2000), Project("d/x", 1000), Project("d/y", 1000), Project("e", 1000)])
    standings = Standings(tree, 3000, [lease("l1", "d/y", 1000)])
    assert standings.is_protected("l1")
    standings.granted(lease("l2", "d/x", 2000, "guaranteed"))
    assert not standings.is_protected("l1")
    assert standings.standing("d").protected == 2000
    standings.without(["l2"])
    assert standings.is_protected("l1")


@pytest.mark.parametrize(("held", "taken"), [(1000, []), (1001, ["l1"])])
def test_who_has_exactly_its_fair_share_gives_nothing(held: int, taken: list[str]) -> None:
    tree = ProjectTree([Project("a", 0), Project("b", 0), Project("default", 0)])
    waiting = [Waiting("w", "b", 500), Waiting("v", "a", 1000)]
    standings = Standings(tree, 2000, [lease("l1", "a", held, "preemptible")], waiting)
    standings.asked(Waiting("more", "b", 500))
    standings.refresh()
    assert standings.standing("a").fair_share == 1000
    assert [x.id for x in standings.takeable("b", 500)] == taken


@pytest.mark.parametrize(("asked", "may"), [(500, True), (501, False)])
def test_who_takes_reaches_exactly_its_fair_share(asked: int, may: bool) -> None:
    tree = ProjectTree([Project("a", 0), Project("b", 0), Project("default", 0)])
    leases = [lease("l1", "a", 1500, "preemptible"), lease("l2", "b", 500)]
    standings = Standings(tree, 2000, leases, [Waiting("w", "b", 2000), Waiting("v", "a", 2000)])
    assert standings.standing("b").fair_share == 1000
    assert standings.entitled("b", asked).admitted is may
    assert standings.may_take_from("b", asked, ["l1"]).admitted is may


def test_what_is_deserved_is_taken_from_whoever_has_more_than_that_though_within_its_fair_share() -> None:
    """`c` has the most above its share, but its guaranteed lease stays; `b` has what it may have of the rest."""
    tree = ProjectTree([Project("a", 1000), Project("b", 0), Project("c", 1000), Project("default", 0)])
    leases = [lease("l1", "b", 1000), lease("l2", "c", 2000, "guaranteed")]
    standings = Standings(tree, 3000, leases, [Waiting("w", "a", 1000)])
    assert standings.standing("b").fair_share < 1000
    assert [x.id for x in standings.takeable("a", 1000)] == ["l1"]


def test_who_deserves_it_is_not_stopped_by_the_fair_share_of_another() -> None:
    """`b` is at its fair share, above what it deserves; `a` stays within what it deserves itself."""
    tree = ProjectTree([Project("a", 1000), Project("b", 0), Project("default", 0)])
    standings = Standings(tree, 3000, [lease("l1", "b", 3000)], [])
    assert standings.standing("b").fair_share == 3000  # nobody asked when shares were computed
    assert standings.may_take_from("a", 1000, ["l1"])
    assert standings.may_take_from("a", 1001, ["l1"]).reason == "over-quota"


def test_a_limit_counts_what_is_held() -> None:
    tree = ProjectTree([Project("a", 0, limit=1000)])
    standings = Standings(tree, 8000, [lease("l1", "a", 600)])
    assert standings.admit("a", 400, "preemptible")
    assert standings.admit("a", 401, "preemptible").facts == {
        "project": "a", "asked_milli": 401, "used_milli": 600, "cap_milli": 1000
    }  # fmt: skip


def test_guaranteed_leases_fit_beside_protected_ones_to_the_last_milli() -> None:
    tree = ProjectTree([Project("a", 1000)])
    standings = Standings(tree, 8000, [lease("l1", "a", 600)])
    assert standings.admit("a", 400, "guaranteed")
    assert not standings.admit("a", 401, "guaranteed")


class TestOrder:
    tree = ProjectTree(
        [
            Project("high", 0, priority=1),
            Project("low", 1000),
            Project("d/x", 0, weight=9),
            Project("default", 0),
        ]
    )

    def first(self, standings: Standings, *requests: tuple[str, int]) -> str:
        return min(requests, key=lambda request: standings.order_key(*request))[0]

    def test_what_is_deserved_comes_before_priority(self) -> None:
        standings = Standings(self.tree, 4000, [], [Waiting("1", "high", 3000), Waiting("2", "low", 1000)])
        assert self.first(standings, ("high", 1000), ("low", 1000)) == "low"
        assert self.first(standings, ("high", 1000), ("low", 1001)) == "high"

    def test_above_what_is_deserved_priority_comes_first(self) -> None:
        waiting = [Waiting("1", "high", 500), Waiting("2", "d/x", 2500), Waiting("3", "low", 1000)]
        standings = Standings(self.tree, 4000, [], waiting)
        assert self.first(standings, ("d/x", 500), ("high", 500)) == "high"

    def test_what_stays_within_a_fair_share_comes_before_what_does_not(self) -> None:
        waiting = [Waiting("1", "high", 500), Waiting("2", "d/x", 5000)]
        standings = Standings(self.tree, 4000, [lease("l1", "high", 2000)], waiting)
        assert self.first(standings, ("high", 500), ("d/x", 100)) == "high"
        assert self.first(standings, ("high", 501), ("d/x", 100)) == "d/x"

    def test_a_department_below_what_it_deserves_comes_before_one_of_higher_priority(self) -> None:
        tree = ProjectTree(
            [Project("d", 2000), Project("d/x", 0), Project("d/y", 2000), Project("e", 0, priority=1)]
        )
        waiting = [Waiting("1", "d/x", 500), Waiting("2", "e", 500)]
        standings = Standings(tree, 4000, [], waiting)
        assert self.first(standings, ("e", 500), ("d/x", 500)) == "d/x"

    def test_a_department_within_its_share_does_not_bring_forward_a_request_that_is_above_it(self) -> None:
        tree = ProjectTree(
            [Project("b", 5000, priority=1), Project("b/x", 0), Project("b/y", 5000), Project("c/x", 2000)]
        )
        waiting = [Waiting("1", "b/x", 6000), Waiting("2", "c/x", 2000)]
        standings = Standings(tree, 7000, [], waiting)
        assert self.first(standings, ("b/x", 6000), ("c/x", 2000)) == "c/x"

    def test_a_request_within_the_share_of_its_project_but_not_of_its_department_waits_for_those_within_both(
        self,
    ) -> None:
        tree = ProjectTree(
            [
                Project("d", 0, limit=1000, priority=1),
                Project("d/x", 0),
                Project("d/y", 0),
                Project("e", 0),
                Project("default", 0),
            ]
        )
        waiting = [Waiting("1", "d/x", 500), Waiting("2", "e", 2000)]
        standings = Standings(tree, 2000, [lease("l1", "d/y", 999)], waiting)
        assert (standings.standing("d").fair_share, standings.standing("d/x").fair_share) == (1000, 500)
        assert self.first(standings, ("d/x", 1), ("e", 500)) == "d/x"
        assert self.first(standings, ("d/x", 500), ("e", 500)) == "e"

    def test_a_grant_in_one_pass_counts_for_the_next_turn_of_its_department(self) -> None:
        tree = ProjectTree([Project("d/x", 0), Project("d/y", 0), Project("e", 0), Project("default", 0)])
        waiting = [Waiting("1", "d/x", 2000), Waiting("2", "d/y", 2000), Waiting("3", "e", 2000)]
        standings = Standings(tree, 4000, [], waiting)
        requests = [("d/x", 500), ("d/y", 500), ("e", 500)]
        order = []
        for number in range(6):
            order.append(self.first(standings, *requests))
            standings.granted(lease(f"l{number}", order[-1], 500))
        assert order == ["d/x", "e", "d/y", "e", "d/x", "e"]


def test_a_project_without_weight_gets_what_nobody_else_wants_whatever_its_priority() -> None:
    tree = ProjectTree([Project("idle", 0, weight=0, priority=9), Project("a", 0), Project("default", 0)])
    assert fair_shares(tree, 4000, {"idle": 9000, "a": 3000}) == {"a": 3000, "default": 0, "idle": 1000}


@pytest.mark.parametrize(("asked", "may"), [(750, True), (751, False)])
def test_a_project_takes_no_more_than_its_own_share_though_its_department_might(
    asked: int, may: bool
) -> None:
    tree = ProjectTree([Project("d/x", 0), Project("d/y", 0), Project("e", 0), Project("default", 0)])
    waiting = [Waiting("1", "d/x", 2000), Waiting("2", "d/y", 2000)]
    standings = Standings(tree, 3000, [lease("l1", "e", 3000, "preemptible")], waiting)
    assert (standings.standing("d").fair_share, standings.standing("d/x").fair_share) == (1500, 750)
    assert standings.may_take_from("d/x", asked, ["l1"]).admitted is may

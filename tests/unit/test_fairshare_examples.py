"""The examples that people have in mind when they say quota: Run:ai's article, and a university's GPUs."""

from __future__ import annotations

import pytest
from gpupool.scheduler.fairshare import HeldLease, Project, ProjectTree, Standings, Waiting, fair_shares


def held(
    project: str, number: int, milli: int = 1000, kind: str = "interactive", since: int = 0
) -> list[HeldLease]:
    return [
        HeldLease(f"{project}{since + n}", project, milli, kind, granted_at=float(since + n))
        for n in range(number)
    ]


def wants(project: str, number: int, milli: int = 1000) -> list[Waiting]:
    return [Waiting(f"{project} ask {n}", project, milli) for n in range(number)]


class TestRunAiArticle:
    """Eight GPUs; team A deserves 2, team B deserves 6."""

    tree = ProjectTree([Project("A", 2000), Project("B", 6000)])

    def test_a_uses_all_eight_while_b_is_idle(self) -> None:
        standings = Standings(self.tree, 8000, [], wants("A", 8))
        for number in range(8):
            assert standings.admit("A", 1000, "interactive")
            standings.granted(*held("A", 1, since=number), request_id=f"A ask {number}")
        assert standings.standing("A").fair_share == 8000
        assert standings.standing("A").allocated == 8000

    def test_b_gets_back_exactly_its_six_the_newest_first(self) -> None:
        standings = Standings(self.tree, 8000, held("A", 8), wants("B", 6))
        taken = []
        for number in range(6):
            victim = standings.takeable("B", 1000)[0]
            taken.append(victim.id)
            standings.without([victim.id])
            standings.granted(*held("B", 1, since=number), request_id=f"B ask {number}")
        assert taken == ["A7", "A6", "A5", "A4", "A3", "A2"]
        assert standings.standing("A").allocated == standings.standing("A").protected == 2000
        assert standings.standing("B").allocated == standings.standing("B").protected == 6000

    def test_a_seventh_gpu_for_b_is_not_taken_from_a(self) -> None:
        standings = Standings(self.tree, 8000, held("A", 2) + held("B", 6), wants("B", 1))
        assert standings.takeable("B", 1000) == []
        verdict = standings.entitled("B", 1000)
        assert (verdict.reason, verdict.facts["used_milli"], verdict.facts["cap_milli"]) == (
            "over-quota",
            6000,
            6000,
        )
        assert verdict.explanation == (
            "project B may ask others for room up to 6 GPUs and holds 6 GPUs; 1 GPU more is above that"
        )
        assert not verdict.never  # it gets it when one is idle

    def test_a_guaranteed_third_gpu_of_a_is_refused_at_once(self) -> None:
        standings = Standings(self.tree, 8000, held("A", 2, kind="guaranteed"))
        verdict = standings.admit("A", 1000, "guaranteed")
        assert (verdict.admitted, verdict.reason) == (False, "over-quota")
        assert verdict.facts == {"project": "A", "asked_milli": 1000, "used_milli": 2000, "cap_milli": 2000}
        assert standings.admit("A", 1000, "interactive")
        assert standings.admit("A", 1000, "preemptible")

    def test_b_comes_before_a_as_long_as_it_has_less_than_it_deserves(self) -> None:
        standings = Standings(self.tree, 8000, held("A", 4) + held("B", 3), wants("A", 4) + wants("B", 4))
        assert standings.order_key("B", 1000) < standings.order_key("A", 1000)

    def test_twenty_users_share_one_gpu_and_leave_the_others_alone(self) -> None:
        standings = Standings(self.tree, 8000)
        for lease in held("A", 20, milli=50):
            assert standings.admit("A", 50, "guaranteed")
            standings.granted(lease)
        assert standings.standing("A").protected == 1000


class TestUniversity:
    """Nobody deserves anything; PhD students weigh three times what undergraduates do."""

    tree = ProjectTree(
        [Project("phd", 0, weight=3), Project("undergraduate", 0, weight=1), Project("default", 0)]
    )

    def test_four_spare_gpus_are_divided_three_to_one(self) -> None:
        assert fair_shares(self.tree, 4000, {"phd": 9000, "undergraduate": 9000}) == {
            "default": 0, "phd": 3000, "undergraduate": 1000
        }  # fmt: skip

    def test_who_wants_less_leaves_the_rest_to_the_other(self) -> None:
        assert fair_shares(self.tree, 4000, {"phd": 500, "undergraduate": 9000})["undergraduate"] == 3500

    def test_higher_priority_is_served_first_whatever_the_weights(self) -> None:
        tree = ProjectTree([Project("exam", 0, priority=1), Project("phd", 0, weight=3)])
        assert fair_shares(tree, 4000, {"exam": 3000, "phd": 9000}) == {
            "default": 0,
            "exam": 3000,
            "phd": 1000,
        }

    def test_who_used_the_pool_last_week_gets_less_now(self) -> None:
        tree = ProjectTree([Project("a", 0), Project("b", 0)])
        shares = fair_shares(tree, 4000, {"a": 9000, "b": 9000}, {"a": 0.5, "b": 0.0})
        # Parts of the weights 1/2 each: 2·1/2 - 1/2 against 2·1/2.
        assert (shares["a"], shares["b"]) == (1333, 2667)

    def test_who_used_it_all_gets_what_the_other_leaves(self) -> None:
        tree = ProjectTree([Project("a", 0), Project("b", 0)])
        assert fair_shares(tree, 4000, {"a": 9000, "b": 1000}, {"a": 1.4})["a"] == 3000


class TestCompany:
    """Departments of projects of people (Run:ai's two levels, and one more)."""

    tree = ProjectTree(
        [
            Project("research", 6000),
            Project("research/vision", 4000),
            Project("research/text", 2000),
            Project("product", 2000),
            Project("product/search", None),
        ]
    )

    def test_children_divide_what_their_parent_is_entitled_to(self) -> None:
        wishes = {"research/vision": 9000, "research/text": 9000, "product/search": 1000}
        assert fair_shares(self.tree, 8000, wishes) == {
            "default": 0, "product": 1000, "product/search": 1000,
            "research": 7000, "research/vision": 4500, "research/text": 2500,
        }  # fmt: skip

    def test_a_department_takes_its_quota_back_from_another(self) -> None:
        standings = Standings(self.tree, 8000, held("research/vision", 8), wants("product/search", 2))
        assert standings.takeable("product/search", 1000)
        assert standings.may_take_from("product/search", 1000, ["research/vision7"])
        verdict = standings.may_take_from("product/search", 1000, ["research/vision3"])
        assert verdict.reason == "protected"

    def test_a_project_takes_its_quota_back_inside_its_department_first(self) -> None:
        """The department as a whole has what it is entitled to, so other departments give nothing."""
        leases = held("research/vision", 6) + held("product/search", 2)
        standings = Standings(self.tree, 8000, leases, wants("research/text", 2))
        assert {lease.project for lease in standings.takeable("research/text", 1000)} == {"research/vision"}

    def test_a_limit_of_the_department_holds_for_its_projects(self) -> None:
        tree = ProjectTree([Project("research", 2000, limit=3000), Project("research/vision", 2000)])
        standings = Standings(tree, 8000, held("research/vision", 3))
        verdict = standings.admit("research/vision", 500, "preemptible")
        assert (verdict.reason, verdict.facts["project"], verdict.never) == ("limit", "research", False)
        assert verdict.explanation == (
            "project research is limited to 3 GPUs and holds 3 GPUs; 0.5 GPUs more is too much"
        )
        assert standings.admit("research/vision", 3500, "preemptible").never


class TestInsideOneProject:
    """Train 50, build 100, inference 125: who gives way to whom (Run:ai's priorities)."""

    tree = ProjectTree([Project("A", 2000)])

    def leases(self) -> list[HeldLease]:
        return [
            HeldLease("notebook", "A", 1000, "interactive", 100, 1.0),
            HeldLease("training", "A", 1000, "preemptible", 50, 2.0),
        ]

    def test_a_notebook_takes_the_place_of_a_training(self) -> None:
        standings = Standings(self.tree, 2000, self.leases(), wants("A", 1))
        assert [lease.id for lease in standings.takeable("A", 1000, priority=100)] == ["training"]

    def test_a_notebook_within_what_is_deserved_gives_way_to_nobody(self) -> None:
        standings = Standings(self.tree, 2000, self.leases(), wants("A", 1))
        assert standings.may_take_from("A", 1000, ["notebook"], priority=125).reason == "protected"

    def test_equals_wait_for_each_other(self) -> None:
        standings = Standings(self.tree, 2000, self.leases(), wants("A", 1))
        verdict = standings.may_take_from("A", 1000, ["training"], priority=50)
        assert (
            verdict.explanation
            == "lease training has priority 50, the request 50; only a lower one gives way"
        )

    def test_the_lowest_priority_and_newest_goes_first(self) -> None:
        leases = [
            HeldLease("old", "A", 500, "preemptible", 50, 1.0),
            HeldLease("better", "A", 500, "preemptible", 60, 9.0),
            HeldLease("new", "A", 500, "preemptible", 50, 2.0),
        ]
        standings = Standings(self.tree, 2000, leases)
        assert [lease.id for lease in standings.takeable("A", 500)] == ["new", "old", "better"]


class TestAPoolWithoutProjects:
    """Nobody has made one: everything belongs to `default`, and nothing changes."""

    tree = ProjectTree([])

    def test_default_deserves_everything_and_all_is_protected(self) -> None:
        standings = Standings(self.tree, 2000, held("default", 2), wants("default", 5))
        assert all(standings.is_protected(lease.id) for lease in held("default", 2))
        assert standings.takeable("default", 1000) == []
        assert standings.admit("default", 1000, "guaranteed").reason == "over-quota"

    def test_a_lease_of_a_project_that_is_gone_counts_for_default(self) -> None:
        standings = Standings(self.tree, 2000, held("gone", 1))
        assert standings.standing("default").allocated == 1000

    def test_a_lost_device_ends_protection_of_the_youngest(self) -> None:
        standings = Standings(self.tree, 1000, held("default", 2))
        assert [standings.is_protected(name) for name in ("default0", "default1")] == [True, False]


@pytest.mark.parametrize(
    ("capacity", "says"),
    [
        (8000, ()),
        (6000, ("All projects deserve 8 GPUs together, but the pool has 6 GPUs: what each deserves shrinks in "
                "proportion.",)),
        (9000, ("All projects deserve 8 GPUs together, but the pool has 9 GPUs: nobody is sure of the other 1 GPU.",)),
    ],
)  # fmt: skip
def test_what_is_deserved_should_add_up_to_the_pool(capacity: int, says: tuple[str, ...]) -> None:
    tree = ProjectTree([Project("A", 2000), Project("B", 6000), Project("default", 0)])
    assert tree.warnings(capacity) == says


def test_the_notice_floor_is_the_nearest_that_is_set() -> None:
    tree = ProjectTree(
        [Project("a", min_run=600.0), Project("a/x"), Project("a/y", min_run=0.0), Project("b")]
    )
    assert [tree.min_run(path, 60.0) for path in ("a/x", "a/y", "b")] == [600.0, 0.0, 60.0]

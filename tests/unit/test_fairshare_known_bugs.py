"""What went wrong in other fair-share schedulers, by their issue numbers (kai-scheduler/KAI-Scheduler)."""

from __future__ import annotations

from gpupool.scheduler.fairshare import HeldLease, Project, ProjectTree, Standings, Waiting


def held(project: str, number: int, milli: int = 1000, kind: str = "interactive") -> list[HeldLease]:
    return [HeldLease(f"{project}{n}", project, milli, kind, granted_at=float(n)) for n in range(number)]


def test_1934_what_is_taken_back_reaches_the_fair_share_not_only_what_is_deserved() -> None:
    """alice runs on everything; bob deserves 1 GPU of 8, but is entitled to half."""
    tree = ProjectTree([Project("alice", 1000), Project("bob", 1000)])
    standings = Standings(tree, 8000, held("alice", 8), [Waiting(f"b{n}", "bob", 1000) for n in range(8)])
    for number in range(4):
        victim = standings.takeable("bob", 1000)[0]
        standings.without([victim.id])
        standings.granted(HeldLease(f"bob{number}", "bob", 1000, granted_at=100.0 + number), f"b{number}")
    assert standings.standing("bob").allocated == standings.standing("alice").allocated == 4000
    assert standings.takeable("bob", 1000) == []


def test_1565_who_is_over_its_share_disturbs_nobody_even_if_all_find_another_place() -> None:
    """48 GPUs asked by the one that had far too much once moved 376 of the one that had too little."""
    tree = ProjectTree([Project("mid", 3000), Project("pre", 1000)])
    waiting = [Waiting("w", "pre", 1000), Waiting("v", "mid", 2000)]
    standings = Standings(tree, 4000, held("mid", 1) + held("pre", 2), waiting)
    assert standings.entitled("pre", 1000).reason == "over-quota"
    assert not standings.may_take_from("pre", 1000, ["mid0"])


def test_1833_what_is_there_is_divided_fairly_when_it_is_less_than_is_deserved() -> None:
    """Half of the devices are gone: both teams give way, and who came first does not keep everything."""
    tree = ProjectTree([Project("a", 4000), Project("b", 4000), Project("default", 0)])
    standings = Standings(tree, 4000, held("a", 4), [Waiting(f"b{n}", "b", 1000) for n in range(4)])
    assert (standings.standing("a").fair_share, standings.standing("b").fair_share) == (2000, 2000)
    assert [lease.id for lease in standings.takeable("b", 1000)] == ["a3", "a2"]


def test_2065_more_than_is_deserved_is_taken_back_whatever_the_priority_of_its_project() -> None:
    """Twelve GPUs; A (priority 90) has 12 of which it deserves 8; B (priority 80) asks for 4 of its 8."""
    tree = ProjectTree([Project("A", 8000, priority=90), Project("B", 8000, priority=80)])
    standings = Standings(tree, 12_000, held("A", 3, 4000), [Waiting("w", "B", 4000)])
    assert [lease.id for lease in standings.takeable("B", 4000)] == ["A2", "A1"]


def test_2092_what_is_deserved_is_safe_from_projects_of_higher_priority() -> None:
    tree = ProjectTree([Project("A", 4000, priority=90), Project("B", 4000, priority=80)])
    standings = Standings(tree, 8000, held("A", 4) + held("B", 4), [Waiting("w", "A", 1000, 125)])
    assert standings.takeable("A", 1000, priority=125) == []


def test_1750_a_project_that_gives_nothing_does_not_hide_one_that_must() -> None:
    """The asker's sibling is over its share, while another project of lower priority has less than it deserves."""
    tree = ProjectTree(
        [
            Project("org", 6000, priority=110),
            Project("org/asker", 4000),
            Project("org/batch", 0),
            Project("protected", 1000, priority=100),
        ]
    )
    leases = held("org/asker", 1) + held("org/batch", 5, kind="preemptible") + held("protected", 1)
    standings = Standings(tree, 7000, leases, [Waiting("w", "org/asker", 1000)])
    assert {lease.project for lease in standings.takeable("org/asker", 1000)} == {"org/batch"}


def test_374_a_third_department_that_cannot_be_served_does_not_block_the_other_two() -> None:
    """`c` wants a share that it cannot use. `b` as a whole is over its own, but less than `a`: its poor child is helped."""
    tree = ProjectTree([Project("a/x", 0), Project("b/rich", 0), Project("b/poor", 0), Project("c/y", 0)])
    leases = held("a/x", 8, 500) + held("b/rich", 5, 500)
    waiting = [Waiting("huge", "c/y", 50_000), Waiting("w", "b/poor", 500)]
    standings = Standings(tree, 6500, leases, waiting)
    assert standings.standing("b").allocated > standings.standing("b").fair_share
    taken = {lease.project for lease in standings.takeable("b/poor", 500)}
    assert taken == {"a/x", "b/rich"}
    # Never so far that the two change places: then each could take from the other for ever.
    assert not standings.may_take_from("b/poor", 500, [f"a/x{n}" for n in range(3)])


def test_no_two_projects_take_from_each_other_in_turns() -> None:
    tree = ProjectTree([Project("a", 0), Project("b", 0), Project("default", 0)])
    standings = Standings(
        tree, 5000, held("a", 5), [Waiting(f"{p}{n}w", p, 1000) for p in "ab" for n in range(9)]
    )
    moves = 0
    while moves < 100:
        for asker in ("b", "a"):
            found = standings.takeable(asker, 1000)
            if found:
                standings.without([found[0].id])
                standings.granted(HeldLease(f"m{moves}", asker, 1000, granted_at=100.0 + moves))
                moves += 1
                break
        else:
            break
    assert moves == 2
    assert standings.standing("b").allocated == 2000


def test_sizes_of_requests_do_not_decide_between_projects_of_one_department() -> None:
    """`x` holds more than its sibling `y`; asking for little must not bring it before `y`."""
    tree = ProjectTree([Project("d/x", 2000), Project("d/y", 2000), Project("e", 2000)])
    standings = Standings(
        tree,
        6000,
        held("d/x", 2),
        [Waiting("1", "d/x", 100), Waiting("2", "d/y", 1000), Waiting("3", "e", 900)],
    )
    keys = sorted(
        ["d/x", "d/y", "e"], key=lambda p: standings.order_key(p, {"d/x": 100, "d/y": 1000, "e": 900}[p])
    )
    assert keys == ["e", "d/y", "d/x"]

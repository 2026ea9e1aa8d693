"""Fair shares are what their definition says, for any small tree; and what the rules promise holds for any figures."""

from __future__ import annotations

from fractions import Fraction

from gpupool.scheduler.fairshare import (
    HeldLease,
    Project,
    ProjectTree,
    Standings,
    Waiting,
    fair_shares,
)
from gpupool.scheduler.fairshare.apportion import Claim, apportion
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.fair_solver import children_of, solve_deserved, solve_shares, with_parents

#: Trees of one to three levels; no path is both a leaf and a parent unless the tree makes it a parent.
PATHS = ("a", "b", "b/x", "b/y", "c/x", "c/y", "c/z/p", "c/z/q", "default")
amounts = st.one_of(st.none(), st.integers(0, 30))


@st.composite
def projects(draw: st.DrawFn) -> list[Project]:
    found = []
    for path in draw(st.lists(st.sampled_from(PATHS), unique=True, max_size=6)):
        deserved, limit = draw(amounts), draw(amounts)
        if deserved is not None and limit is not None and deserved > limit:
            deserved, limit = limit, deserved
        weight, priority = draw(st.integers(0, 4)), draw(st.integers(0, 1))
        found.append(Project(path, deserved, limit, weight, priority))
    return found


wishes = st.dictionaries(st.sampled_from([*PATHS, "c/z"]), st.integers(0, 40))
#: In sixteenths, which are exact as floats and, up to the last digit, in millionths.
used = st.dictionaries(st.sampled_from(PATHS), st.integers(0, 32).map(lambda n: Fraction(n, 16)))


@given(projects(), st.integers(0, 60))
@settings(max_examples=100, deadline=None)
def test_deserved_is_what_its_definition_says(made: list[Project], capacity: int) -> None:
    tree = ProjectTree(made)
    expected = solve_deserved(with_parents(made), capacity)
    assert {path: tree.deserved(path, capacity) for path in tree.paths} == {
        path: milli for path, milli in expected.items() if path
    }


@given(projects(), st.integers(0, 60), wishes, used)
@settings(max_examples=100, deadline=None)
def test_fair_shares_are_what_their_definition_says(
    made: list[Project], capacity: int, wanted: dict[str, int], usage: dict[str, Fraction]
) -> None:
    tree = ProjectTree(made)
    shares = fair_shares(tree, capacity, wanted, {path: float(part) for path, part in usage.items()})
    assert shares == solve_shares(with_parents(made), capacity, wanted, usage)


@given(projects(), st.integers(0, 10_000), wishes, used, st.randoms())
@settings(max_examples=100, deadline=None)
def test_fair_shares_use_all_that_is_wanted_and_keep_every_limit(
    made: list[Project], capacity: int, wanted: dict[str, int], usage: dict[str, Fraction], random: object
) -> None:
    tree = ProjectTree(made)
    parts = {path: float(part) for path, part in usage.items()}
    shares = fair_shares(tree, capacity, wanted, parts)
    whole = with_parents(made)

    def wants(path: str) -> int:
        children = children_of(whole, path)
        amount = sum(wants(child) for child in children) if children else wanted.get(path, 0)
        return amount if not path or whole[path].limit is None else min(amount, whole[path].limit or 0)

    for parent in ("", *tree.paths):
        children = tree.children(parent)
        if children:
            available = shares[parent] if parent else capacity
            assert sum(shares[child] for child in children) == min(available, sum(map(wants, children)))
    for path in tree.paths:
        assert 0 <= shares[path] <= wants(path)
        assert shares[path] >= min(tree.deserved(path, capacity), wants(path))  # always reachable
    random.shuffle(made)  # type: ignore[attr-defined]
    assert fair_shares(ProjectTree(made), capacity, dict(reversed(wanted.items())), parts) == shares


@given(projects(), st.integers(0, 60), wishes, st.sampled_from(PATHS), st.integers(1, 20))
@settings(max_examples=100, deadline=None)
def test_who_wants_more_never_gets_less(
    made: list[Project], capacity: int, wanted: dict[str, int], path: str, more: int
) -> None:
    tree = ProjectTree(made)
    leaf = tree.leaf(path)
    before = fair_shares(tree, capacity, wanted)[leaf]
    after = fair_shares(tree, capacity, {**wanted, leaf: wanted.get(leaf, 0) + more})[leaf]
    assert after >= before


@given(projects(), st.integers(0, 60), wishes, used, st.integers(1, 20))
@settings(max_examples=100, deadline=None)
def test_a_larger_pool_gives_nobody_less(
    made: list[Project], capacity: int, wanted: dict[str, int], usage: dict[str, Fraction], more: int
) -> None:
    # What siblings leave depends on the pool itself, so here everybody's part is set.
    tree = ProjectTree(
        [Project(p.path, p.deserved or 0, p.limit, p.weight, p.priority) for p in made if p.path != "default"]
        + [Project("default", 0)]
    )
    parts = {path: float(part) for path, part in usage.items()}
    promised = sum(tree[path].deserved or 0 for path in tree.children(""))
    small = fair_shares(tree, promised + capacity, wanted, parts)
    large = fair_shares(tree, promised + capacity + more, wanted, parts)
    assert all(large[path] >= small[path] for path in tree.paths)


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 30)), max_size=6), st.integers(0, 100))
@settings(max_examples=100, deadline=None)
def test_apportion_is_one_milli_at_a_time(claims: list[tuple[int, int]], amount: int) -> None:
    made = [Claim(f"p{number}", weight, wants) for number, (weight, wants) in enumerate(claims)]
    given_out = {claim.name: 0 for claim in made}
    for _ in range(amount):
        hungry = [claim for claim in made if given_out[claim.name] < claim.wants]
        if not hungry:
            break
        due = min(hungry, key=lambda c: (Fraction(given_out[c.name] + 1, c.weight), c.name))
        given_out[due.name] += 1
    assert apportion(amount, made) == given_out


leases = st.lists(
    st.tuples(
        st.sampled_from(PATHS),
        st.integers(1, 12),
        st.sampled_from(["interactive", "guaranteed", "preemptible"]),
        st.sampled_from([50, 100, 125]),
    ),
    max_size=12,
)


@given(projects(), st.integers(0, 60), leases, st.lists(st.integers(0, 11), max_size=4))
@settings(max_examples=100, deadline=None)
def test_what_was_updated_in_place_is_what_would_be_made_anew(
    made: list[Project], capacity: int, held: list[tuple[str, int, str, int]], gone: list[int]
) -> None:
    tree = ProjectTree(made)
    records = [
        HeldLease(f"l{n}", path, milli, kind, priority, float(n))
        for n, (path, milli, kind, priority) in enumerate(held)
    ]
    waiting = [Waiting(f"w{n}", path, milli, priority) for n, (path, milli, _, priority) in enumerate(held)]
    lived = Standings(tree, capacity, waiting=waiting)
    for lease in records:
        lived.granted(lease, f"w{lease.id[1:]}")
        lived.is_protected(lease.id)  # so that what is remembered can be out of date
        lived.order_key(lease.project, 1)
    lived.without([f"l{n}" for n in gone])
    lived.refresh()
    kept = [lease for n, lease in enumerate(records) if n not in gone]
    fresh = Standings(tree, capacity, kept)
    for path in tree.paths:
        assert lived.standing(path) == fresh.standing(path)
        assert lived.order_key(path, 3) == fresh.order_key(path, 3)
    assert [lived.is_protected(x.id) for x in kept] == [fresh.is_protected(x.id) for x in kept]


@given(projects(), st.integers(0, 60), leases)
@settings(max_examples=100, deadline=None)
def test_protection_is_what_its_definition_says(
    made: list[Project], capacity: int, held: list[tuple[str, int, str, int]]
) -> None:
    tree = ProjectTree(made)
    records = [
        HeldLease(f"l{n}", tree.leaf(path), milli, kind, priority, float(n))
        for n, (path, milli, kind, priority) in enumerate(held)
    ]
    room = {path: tree.deserved(path, capacity) for path in tree.paths}
    for lease in records:
        if lease.kind == "guaranteed":
            for path in tree.ancestors(lease.project):
                room[path] -= lease.milli
    protected = {lease.id for lease in records if lease.kind == "guaranteed"}
    for lease in sorted(records, key=lambda x: (-x.priority, x.granted_at)):
        above = tree.ancestors(lease.project)
        if lease.kind == "interactive" and all(room[path] >= lease.milli for path in above):
            protected.add(lease.id)
            for path in above:
                room[path] -= lease.milli
    standings = Standings(tree, capacity, records)
    assert {lease.id for lease in records if standings.is_protected(lease.id)} == protected
    for path in tree.paths:
        inside = [x for x in records if x.id in protected and path in tree.ancestors(x.project)]
        assert standings.standing(path).protected == sum(x.milli for x in inside)


@given(projects(), st.integers(1, 60), leases, st.sampled_from(PATHS), st.integers(1, 20))
@settings(max_examples=100, deadline=None)
def test_what_is_deserved_can_always_be_taken_back(
    made: list[Project], capacity: int, held: list[tuple[str, int, str, int]], path: str, milli: int
) -> None:
    """As long as guaranteed leases were admitted within what was deserved: one lease after the other, all that is needed."""
    tree = ProjectTree(made)
    standings = Standings(tree, capacity)
    used = 0
    for n, (name, size, kind, priority) in enumerate(held):
        if used + size <= capacity and standings.admit(name, size, kind):
            standings.granted(HeldLease(f"l{n}", name, size, kind, priority, float(n)))
            used += size
    leaf = tree.leaf(path)
    above = tree.ancestors(leaf)
    if any(standings.standing(p).allocated + milli > tree.deserved(p, capacity) for p in above):
        return  # more than is deserved
    standings.asked(Waiting("ask", leaf, milli))
    standings.refresh()
    assert standings.entitled(leaf, milli)
    free = capacity - used
    taken: list[str] = []
    for lease in standings.takeable(leaf, milli):
        if free >= milli:
            break
        if standings.may_take_from(leaf, milli, [*taken, lease.id]):
            taken.append(lease.id)
            free += lease.milli
    assert free >= milli

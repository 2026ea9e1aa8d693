"""Leases that begin like others go their own way, whatever happens to those, as a copy of everything would."""

from __future__ import annotations

from gpupool.scheduler.fairshare.lease import HeldLease
from gpupool.scheduler.fairshare.leases import Leases, group_of
from hypothesis import given
from hypothesis import strategies as st

NAMES = [f"l{number}" for number in range(6)]
KINDS = ("interactive", "preemptible")
#: In one of three books a lease is added or taken away, or the book begins anew like another one.
STEPS = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.sampled_from(["add", "pop", "like"]),
        st.sampled_from(NAMES),
        st.integers(0, 2),
        st.sampled_from(KINDS),
    ),
    max_size=60,
)


@given(steps=STEPS)
def test_a_book_is_like_a_copy(steps: list[tuple[int, str, str, int, str]]) -> None:
    books = [Leases(), Leases(), Leases()]
    copies: list[dict[str, HeldLease]] = [{}, {}, {}]
    for which, what, name, number, kind in steps:
        if what == "like":
            books[which] = Leases(books[number])
            copies[which] = dict(copies[number])
        elif what == "pop":
            assert books[which].pop(name) == copies[which].pop(name, None)
        elif name not in copies[which]:
            copies[which][name] = HeldLease(name, f"p{number}", 100 + number, kind, number)
            books[which].add(copies[which][name])
        for book, copy in zip(books, copies, strict=True):
            compare(book, copy)


def compare(book: Leases, copy: dict[str, HeldLease]) -> None:
    assert {name: book.get(name) for name in NAMES} == {name: copy.get(name) for name in NAMES}
    groups = {group_of(lease) for lease in copy.values()}
    assert groups <= set(book.groups())
    found = [lease for group in book.groups() for lease in book.of(group)]
    assert sorted(found, key=lambda lease: lease.id) == sorted(copy.values(), key=lambda lease: lease.id)
    for kind in KINDS:
        of_leaf = {lease.id for lease in book.of_leaf("p1", kind)}
        assert of_leaf == {lease.id for lease in copy.values() if (lease.project, lease.kind) == ("p1", kind)}

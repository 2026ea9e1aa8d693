"""Indexes of a table against walks over it, through changes, steps that are taken back, and groups of steps."""

from __future__ import annotations

from dataclasses import dataclass

from gpupool.model.index import Index, Moments, Subset
from gpupool.model.table import Table
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.support.index_from_records import check_moments, grouped, said

KEYS = st.sampled_from("abcdef")


@dataclass(frozen=True)
class Row:
    number: int
    name: str | None
    moment: float | None


ROWS = st.builds(
    Row, st.integers(0, 3), st.none() | st.sampled_from("xyz"), st.none() | st.sampled_from((0.0, 1.0, 2.0))
)


class IndexStory(RuleBasedStateMachine):
    @initialize(rows=st.lists(st.tuples(KEYS, ROWS), max_size=4))
    def begin(self, rows):
        """Some records are there before anybody looks."""
        self.table = Table()
        for key, row in rows:
            self.table[key] = row
        self.table.commit()
        self.in_group = False
        self.index = Index(self.table, lambda row: row.name)
        self.some = Subset(self.table, lambda row: row.number > 1)
        self.moments = Moments(self.table, lambda row: row.moment)

    @rule(key=KEYS, row=ROWS)
    def put(self, key, row):
        self.table[key] = row

    @rule(key=KEYS)
    def remove(self, key):
        if key in self.table:
            del self.table[key]

    @rule(key=KEYS, row=ROWS)
    def remove_and_put(self, key, row):
        """It stands at the end of the table then."""
        self.remove(key)
        self.put(key, row)

    @rule()
    def commit(self):
        self.table.commit()

    @rule()
    def rollback(self):
        self.table.rollback()

    @precondition(lambda self: not self.in_group)
    @rule()
    def begin_group(self):
        self.table.commit()
        self.table.begin_group()
        self.in_group = True

    @precondition(lambda self: self.in_group)
    @rule(keep=st.booleans())
    def end_group(self, keep):
        self.table.end_group(keep=keep)
        self.in_group = False

    @rule()
    def look(self):
        """Only now and then: what was touched since the last look may have gone and come back."""
        rows = list(self.table.values())
        assert said(self.index) == grouped(rows, lambda row: row.name)
        assert self.some.records() == [row for row in rows if row.number > 1]
        assert len(self.some) == len(self.some.records())
        check_moments(self.moments, rows, lambda row: row.moment)

    @invariant()
    def places_are_in_the_order_of_the_rows(self):
        if hasattr(self, "table"):
            places = [self.table.place(key) for key in self.table]
            assert places == sorted(set(places))

    def teardown(self):
        if hasattr(self, "table"):
            self.look()


TestIndexStory = IndexStory.TestCase
TestIndexStory.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)

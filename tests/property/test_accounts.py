"""Accounts say what counting every second would say, whatever leases come, change and go."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
from gpupool.model.state import LeaseRecord, LimitRecord, State
from gpupool.pool.model.step import Ids, Step
from gpupool.pool.model.timers import Timers
from gpupool.pool.projects import accounts
from gpupool.scheduler.model import PlacedShare
from hypothesis import given, settings
from hypothesis import strategies as st

HALF_LIFE = 40.0
TIMERS = Timers(half_life=HALF_LIFE)
IDS = Ids(lambda: "s", lambda: "l", lambda: "t", itertools.count(1))
WINDOW = 25

#: What happens one after the other: seconds before it, whether the pool was there in them, which lease, its new size; 0: it
#: ends.
steps = st.lists(
    st.tuples(
        st.integers(0, 30),
        st.sampled_from([True, True, False]),
        st.sampled_from(["a", "b", "c"]),
        st.sampled_from([0, 0, 100, 350, 1000]),
    ),
    max_size=15,
)


def lease(name: str, milli: int, now: float) -> LeaseRecord:
    return LeaseRecord(
        name, f"session {name}", "ann", name, "", "", 1, (PlacedShare("n/0", milli, 10),), "attached", now, True,
        project="p",
    )  # fmt: skip


class Counted:
    """Second by second: who holds what, and when the window began."""

    def __init__(self) -> None:
        self.sizes: dict[str, int] = {}
        self.now = 0
        self.begins: int | None = None
        self.window = 0
        self.lately = 0.0

    def until(self, now: int, served: bool = True) -> None:
        while self.now < now:
            if self.begins is not None and self.now >= self.begins + WINDOW:
                self.begins, self.window = None, 0
            if self.begins is None and self.sizes:
                self.begins = self.now
            held = sum(self.sizes.values()) if served else 0
            self.window += held
            second = HALF_LIFE / math.log(2) * (1 - math.exp2(-1 / HALF_LIFE))
            self.lately = self.lately * math.exp2(-1 / HALF_LIFE) + held * second
            self.now += 1


@given(steps, st.integers(0, 60))
@settings(max_examples=150, deadline=None)
def test_accounts_are_what_counting_every_second_says(
    happened: list[tuple[int, bool, str, int]], at_last: int
) -> None:
    state, counted = State(), Counted()
    state.limits["ann"] = LimitRecord("ann", gpu_seconds=1, window_seconds=WINDOW)
    state.commit()
    now = 0
    for seconds, served, name, milli in happened:
        now += seconds
        counted.until(now, served)
        if not served:
            step = Step(state, TIMERS, {}, IDS, float(now))
            for held in state.index.holding.records():
                accounts.not_served(step, held, float(now - seconds))
            state.commit()
        old = state.leases.get(name)
        if milli and (old is None or not old.holds):
            state.leases[name] = lease(name, milli, float(now))
        elif old is not None and old.holds:
            shares = (PlacedShare("n/0", milli, 10),)
            state.leases[name] = replace(old, shares=shares) if milli else replace(old, state="ended")
        counted.sizes[name] = milli
        if not milli:
            counted.sizes.pop(name)
        accounts.follow(Step(state, TIMERS, {}, IDS, float(now)))
        state.commit()
    now += at_last
    counted.until(now)
    used = accounts.used_in_window(state, "ann", float(now))
    if counted.begins is not None and counted.now >= counted.begins + WINDOW:
        counted.window = 0
    assert used.milli_ms == counted.window * 1000
    lately = accounts.decayed_usage(state, TIMERS, float(now)).get("p", 0.0)
    assert lately == pytest.approx(counted.lately, abs=1e-6)

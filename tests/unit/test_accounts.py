"""What was used: of a user's window, and lately by projects."""

from __future__ import annotations

import itertools
import math

import pytest
from gpupool.model.state import AccountRecord, LeaseRecord, LimitRecord, Resize, State
from gpupool.pool.model.step import Ids, Step
from gpupool.pool.model.timers import Timers
from gpupool.pool.projects import accounts
from gpupool.scheduler.model import PlacedShare

TIMERS = Timers(half_life=100.0)
IDS = Ids(lambda: "s", lambda: "l", lambda: "t", itertools.count(1))


class Pool:
    """A state in which leases come, change and go at given moments."""

    def __init__(self, window: int = 100) -> None:
        self.state = State()
        self.state.limits["ann"] = LimitRecord("ann", gpu_seconds=60, window_seconds=window)
        self.state.commit()

    def at(self, now: float, *leases: LeaseRecord, gone: tuple[str, ...] = ()) -> None:
        for lease in leases:
            self.state.leases[lease.id] = lease
        for name in gone:
            old = self.state.leases[name]
            self.state.leases[name] = LeaseRecord(
                **{**{f: getattr(old, f) for f in LeaseRecord.__dataclass_fields__}, "state": "ended"}
            )
        accounts.follow(Step(self.state, TIMERS, {}, IDS, now))
        self.state.commit()

    def used(self, now: float) -> tuple[float, float | None]:
        window = accounts.used_in_window(self.state, "ann", now)
        return window.gpu_seconds, window.begins

    def lately(self, now: float, project: str = "default") -> float:
        return accounts.decayed_usage(self.state, TIMERS, now).get(project, 0.0)


def lease(
    name: str, milli: int, granted_at: float, *, devices: int = 1, project: str = "default", resized: int = 0
) -> LeaseRecord:
    shares = tuple(PlacedShare(f"n/{i}", milli, 10) for i in range(devices))
    resize = (
        Resize(tuple(PlacedShare(f"n/{i}", resized, 10) for i in range(devices)), 1, 0.0) if resized else None
    )
    return LeaseRecord(
        name, f"session {name}", "ann", name, "", "", 1, shares, "attached", granted_at, new_session=True,
        project=project, resize=resize,
    )  # fmt: skip


def test_nothing_used_has_no_window() -> None:
    assert Pool().used(50.0) == (0.0, None)


def test_a_window_begins_with_the_first_use_and_counts_live_leases() -> None:
    pool = Pool()
    pool.at(10.0, lease("a", 500, 10.0, devices=2))
    assert pool.used(40.0) == (30.0, 10.0)


def test_what_ended_leases_used_stays_until_the_window_ends() -> None:
    pool = Pool()
    pool.at(10.0, lease("a", 1000, 10.0))
    pool.at(30.0, gone=("a",))
    assert pool.used(109.0) == (20.0, 10.0)
    assert pool.used(110.0) == (0.0, None)


def test_the_next_window_begins_with_the_next_use() -> None:
    pool = Pool()
    pool.at(10.0, lease("a", 1000, 10.0))
    pool.at(30.0, gone=("a",))
    pool.at(250.0, lease("b", 1000, 250.0))
    assert pool.used(260.0) == (10.0, 250.0)


@pytest.mark.parametrize(
    ("now", "used", "begins"), [(109.0, 99.0, 10.0), (111.0, 1.0, 110.0), (345.0, 35.0, 310.0)]
)
def test_a_lease_that_goes_on_begins_the_next_window(now: float, used: float, begins: float) -> None:
    pool = Pool()
    pool.at(10.0, lease("a", 1000, 10.0))
    assert pool.used(now) == (used, begins)
    pool.at(now, gone=("a",))
    assert pool.used(now) == (used, begins)


def test_a_changed_size_counts_as_long_as_it_lasted() -> None:
    pool = Pool()
    pool.at(0.0, lease("a", 200, 0.0))
    pool.at(10.0, lease("a", 200, 0.0, resized=800))  # both sizes are kept: the larger one is taken
    pool.at(20.0, lease("a", 800, 0.0))
    pool.at(30.0, lease("a", 800, 0.0, resized=100))
    pool.at(40.0, lease("a", 100, 0.0))
    expected = 0.2 * 10 + 0.8 * 30 + 0.1 * 10
    assert pool.used(50.0)[0] == pytest.approx(expected)
    lately = sum(
        milli * (math.exp2(-(50 - until) / 100) - math.exp2(-(50 - since) / 100)) * 100 / math.log(2)
        for milli, since, until in ((200, 0, 10), (800, 10, 40), (100, 40, 50))
    )
    assert pool.lately(50.0) == pytest.approx(lately)
    pool.at(50.0, gone=("a",))
    assert pool.used(50.0)[0] == pytest.approx(expected)
    assert pool.lately(50.0) == pytest.approx(lately)


def test_what_a_project_used_weighs_half_after_the_half_life() -> None:
    pool = Pool()
    pool.at(0.0, lease("a", 1000, 0.0, project="research"))
    pool.at(30.0, gone=("a",))
    assert pool.lately(130.0, "research") == pytest.approx(pool.lately(30.0, "research") / 2)


def test_who_holds_the_whole_pool_for_ever_has_used_all_of_it() -> None:
    pool = Pool()
    pool.at(0.0, lease("a", 1000, 0.0, devices=8))
    assert accounts.parts_of_pool(pool.state, TIMERS, 5000.0, 8000) == {"default": pytest.approx(1.0)}


def test_a_lease_that_is_forgotten_later_is_not_booked_twice() -> None:
    pool = Pool()
    pool.at(0.0, lease("a", 1000, 0.0))
    pool.at(10.0, gone=("a",))
    del pool.state.leases["a"]
    pool.at(20.0)
    assert pool.used(20.0) == (10.0, 0.0)
    assert isinstance(pool.state.accounts["user/ann"], AccountRecord)


@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")])
def test_leases_that_end_together_are_booked_from_the_first_grant(order: tuple[str, str]) -> None:
    pool = Pool()
    pool.at(0.0, lease("a", 1000, 0.0))
    pool.at(50.0, lease("b", 1000, 50.0))
    pool.at(60.0, gone=order)
    assert pool.used(60.0) == (70.0, 0.0)

"""Quotas that are nearly used up: said once, and again only after they were well below."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from gpupool.model import events
from gpupool.model.alert import Alert
from gpupool.model.clock import Clock
from gpupool.model.state import LimitRecord, ProjectRecord
from gpupool.pool.lifecycle.shell import PoolShell
from gpupool.pool.model.timers import Timers
from gpupool.pool.projects import alerts
from gpupool.pool.projects.alerts import AlertBook
from gpupool.pool.reporting import alert_watch
from gpupool.scheduler.model import Quota
from gpupool.sentences import Sentence, param, say, without_users
from hypothesis import given
from hypothesis import strategies as st

from tests.support.pool_world import PoolWorld


def level(used: int, cap: int = 1000, name: str = "ann") -> Alert:
    return Alert("user", name, "limit", used, cap)


def look(book: AlertBook, *used: Alert) -> tuple[list[int], list[int]]:
    new, over = book.review(used)
    book.take(new, over)
    return [x.used for x in new], [x.used for x in over]


def test_a_quota_is_near_at_95_percent_and_no_longer_below_90() -> None:
    book = AlertBook()
    assert look(book, level(949)) == ([], [])
    assert look(book, level(950)) == ([950], [])
    assert look(book, level(1000)) == ([], [])
    assert look(book, level(900)) == ([], [])
    assert look(book, level(960)) == ([], [])
    assert look(book, level(899)) == ([], [899])
    assert look(book, level(950)) == ([950], [])


def test_a_quota_that_is_gone_is_over() -> None:
    book = AlertBook()
    look(book, level(950), level(990, name="bob"))
    assert look(book, level(990, name="bob")) == ([], [950])
    assert [alert.name for alert in book.raised] == ["bob"]


@given(st.lists(st.integers(0, 1200), max_size=30), st.integers(1, 100))
def test_near_and_over_alternate(amounts: list[int], percent: int) -> None:
    book = AlertBook(percent)
    said = []
    for amount in amounts:
        new, over = look(book, level(amount))
        said += ["near"] * len(new) + ["over"] * len(over)
        assert bool(book.raised) == (said[-1:] == ["near"])
        if 100 * amount >= percent * 1000:
            assert book.raised
        if 100 * amount < (percent - alerts.SLACK_PERCENT) * 1000:
            assert not book.raised
    assert said == ["near", "over"] * (len(said) // 2) + ["near"] * (len(said) % 2)


class TestLevels:
    def found(self, world: PoolWorld, quotas: dict[str, Quota] | None = None) -> dict[str, tuple[int, int]]:
        used = alerts.levels(world.machine.state, world.timers, quotas or {}, world.now)
        return {x.id: (x.used, x.cap) for x in used}

    @pytest.fixture
    def world(self) -> PoolWorld:
        world = PoolWorld(nodes={"node1": 2})
        world.connect()
        return world

    def test_a_pool_without_quotas_has_none(self, world: PoolWorld) -> None:
        world.attach("k1", 1000)
        assert self.found(world) == {}

    def test_projects_by_limit_and_by_what_they_were_promised(self, world: PoolWorld) -> None:
        world.handle(events.ProjectSet(world.now, ProjectRecord("a", deserved=1500, limit=1600), "root"))
        world.handle(events.ProjectSet(world.now, ProjectRecord("b", deserved=None), "root"))
        world.attach("k1", 700, count=2, project="a")
        assert self.found(world) == {"project/limit/a": (1400, 1600), "project/deserved/a": (1400, 1500)}

    def test_users_by_sum_by_number_and_by_window(self, world: PoolWorld) -> None:
        world.handle(
            events.LimitSet(world.now, LimitRecord("ann", milli=900, shares=4, gpu_seconds=10), "root")
        )
        world.attach("k1", 400, count=2)
        world.now += 2.5
        assert self.found(world) == {
            "user/limit/ann": (800, 900),
            "user/shares/ann": (2, 4),
            "user/window/ann": (2000, 10_000),
        }

    def test_quotas_of_the_command_line_and_of_everybody_count_too(self, world: PoolWorld) -> None:
        world.attach("k1", 300)
        world.attach("k2", 200, user="bob")
        assert self.found(world, {"*": Quota(milli=400), "bob": Quota(milli=0)}) == {
            "user/limit/ann": (300, 400)
        }


PROJECT = say("alert.project", project=param.project("a/b"))


@pytest.mark.parametrize(
    ("alert", "said"),
    [
        (
            Alert("project", "a/b", "limit", 1900, 2000),
            say(
                "alert.limit",
                who=PROJECT,
                used=param.milli(1900),
                cap=param.milli(2000),
                percent=param.count(95),
            ),
        ),
        (
            Alert("project", "a/b", "deserved", 2010, 2000),
            say(
                "alert.deserved",
                who=PROJECT,
                used=param.milli(2010),
                cap=param.milli(2000),
                percent=param.count(100),
            ),
        ),
        (
            Alert("user", "ann", "window", 95_500, 100_000),
            say(
                "alert.window",
                who=param.user("ann"),
                used=param.number(95),
                cap=param.number(100),
                percent=param.count(95),
            ),
        ),
        (
            Alert("user", "ann", "shares", 4, 4),
            say(
                "alert.shares",
                who=param.user("ann"),
                used=param.count(4),
                cap=param.count(4),
                percent=param.count(100),
            ),
        ),
    ],
)
def test_an_alert_is_said_with_its_numbers(alert: Alert, said: Sentence) -> None:
    assert alert.said() == said


def test_whose_quota_it_is_is_a_field_that_can_be_left_out() -> None:
    near = level(960)
    assert without_users(near.said(), "bob").params["who"] == param.user("")
    assert without_users(near.said(), "ann") == near.said()


def test_the_journal_says_what_is_near_and_what_is_not_any_more() -> None:
    world, near = PoolWorld(nodes={"node1": 1}), level(960)
    world.handle(events.QuotasNear(world.now, (near,), ()))
    world.handle(events.QuotasNear(world.now, (), (near,)))
    said = [line.said for line in world.journal if line.kind.startswith("alert")]
    assert said == [near.said(), say("alert.over", of=near.said())]


async def test_a_pool_that_starts_again_does_not_say_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gpupool.ledger.ledger import Ledger

    near, other = level(960), level(990, name="bob")

    def opened() -> PoolShell:
        return PoolShell(Ledger(tmp_path / "pool.sqlite", Clock.start()), Clock.start(), Timers())

    pool = opened()
    pool.apply(events.QuotasNear(pool.clock.now(), (near, other), ()))
    pool.apply(events.QuotasNear(pool.clock.now(), (), (other,)))
    pool.ledger.close()
    pool = opened()
    threads: set[int] = set()
    read = alert_watch._standing

    def noted(*given: Any) -> list[Alert]:
        threads.add(threading.get_ident())
        return read(*given)

    monkeypatch.setattr(alert_watch, "_standing", noted)
    await alert_watch.remember(pool)
    assert threads and threading.get_ident() not in threads, "calls are answered meanwhile"
    assert pool.alerts.raised == [near]
    await alert_watch.look(pool)  # nobody holds anything now
    assert pool.alerts.raised == []
    pool.ledger.close()

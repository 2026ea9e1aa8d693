"""The history in either database."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from gpupool.ledger import samples, schema
from gpupool.ledger.ledger import Ledger
from gpupool.ledger.servers import ServerIdentity
from gpupool.ledger.snapshot import snapshot
from gpupool.model.clock import Clock
from gpupool.model.history_amounts import LEVELS, MINUTE_MS, Amounts, Subject, total
from sqlalchemy import Connection, Engine, func, select

from tests.support import postgres
from tests.support.charged_world import ChargedWorld

CLOCK = Clock(offset=1_700_000_000.0)
T0 = 1_700_000_000_000 // 3_600_000 * 3_600_000
DAY = 86_400_000
ANN = Subject("vm/0", "ann", "research/vision", "s1", "a.ipynb")
BOB = Subject("big/vm/1", "bob", "research", "s2", "b.ipynb")
ROWS = {
    ANN: Amounts(held_milli_ms=100, used_milli_ms=30, idle_milli_ms=70),
    BOB: Amounts(held_milli_ms=10, used_milli_ms=10),
    Subject("vm/0"): Amounts(capacity_milli_ms=1000),
    Subject(user="ann", project="research/vision"): Amounts(waiting_milli_ms=7, waiting_request_ms=1),
    Subject(): Amounts(covered_ms=60_000),
}


@pytest.fixture(params=("file", "postgresql"))
def where(request: pytest.FixtureRequest, tmp_path: Path) -> Path | str:
    if request.param == "file":
        return tmp_path / "pool.sqlite"
    made: postgres.Cluster = request.getfixturevalue("postgres_server")
    return made.database()


@pytest.fixture
def engine(where: Path | str) -> Iterator[Engine]:
    with Ledger(where, CLOCK, leader=ServerIdentity()) as ledger:
        yield ledger.engine


def whole(engine: Engine, **what: str) -> Amounts:
    with snapshot(engine) as connection:
        found = samples.points(connection, samples.Wanted(0, T0 + 100 * DAY, **what), 3_600_000)
        return total(found.values())


class TestEitherDatabase:
    def test_adds_what_comes_in_two_parts(self, engine: Engine) -> None:
        for _ in range(2):
            with samples.writing(engine) as connection:
                samples.add(connection, MINUTE_MS, T0, ROWS)
        assert whole(engine) == total([*ROWS.values(), *ROWS.values()])

    @pytest.mark.parametrize(
        ("what", "held", "capacity", "waiting"),
        [
            ({}, 110, 1000, 7),
            ({"node": "vm"}, 100, 1000, 0),
            ({"node": "big/vm"}, 10, 0, 0),
            ({"node": "big"}, 0, 0, 0),
            ({"device": "vm/0"}, 100, 1000, 0),
            ({"user": "ann"}, 100, 0, 7),
            ({"project": "research"}, 110, 0, 7),
            ({"project": "research/vision"}, 100, 0, 7),
            ({"project": "res"}, 0, 0, 0),
            ({"session": "s2"}, 10, 0, 0),
            ({"session": "s2", "user": "ann"}, 0, 0, 0),
        ],
    )
    def test_picks_what_is_asked_for(
        self, engine: Engine, what: dict[str, str], held: int, capacity: int, waiting: int
    ) -> None:
        with samples.writing(engine) as connection:
            samples.add(connection, MINUTE_MS, T0, ROWS)
        found = whole(engine, **what)
        assert (found.held_milli_ms, found.capacity_milli_ms, found.waiting_milli_ms) == (
            held,
            capacity,
            waiting,
        )
        assert found.covered_ms == 60_000
        wanted = samples.Wanted(0, T0 + DAY, **what)
        assert total(amounts for subject, amounts in ROWS.items() if wanted.has(subject)) == found

    def test_thins_and_keeps_sums(self, engine: Engine) -> None:
        minutes = [*range(0, 20), 1440, 10_000, 90 * 1440]
        for minute in minutes:
            with samples.writing(engine) as connection:
                samples.add(connection, MINUTE_MS, T0 + minute * MINUTE_MS, ROWS)
        before = whole(engine)
        now = T0 + 90 * DAY
        while thinned(engine, now):
            pass
        assert whole(engine) == before
        with snapshot(engine) as connection:
            found = connection.execute(
                select(
                    schema.samples.c.resolution_ms, func.count(schema.samples.c.from_ms.distinct())
                ).group_by(schema.samples.c.resolution_ms)
            ).all()
        assert dict(found) == {LEVELS[0].length_ms: 1, LEVELS[2].length_ms: 3}  # type: ignore[arg-type]
        while thinned(engine, now + 91 * DAY):
            pass
        assert whole(engine) == Amounts()

    def test_says_of_sessions_what_they_were_called(self, engine: Engine) -> None:
        with samples.writing(engine) as connection:
            samples.add(connection, MINUTE_MS, T0, ROWS)
        with snapshot(engine) as connection:
            found = dict(samples.subjects(connection, samples.Wanted(0, T0 + DAY, user="ann")))
        assert found[ANN] == ROWS[ANN]

    def test_says_what_a_session_was_called_last(self, engine: Engine) -> None:
        for minute, label in enumerate(("z.ipynb", "a.ipynb")):
            rows = {replace(ANN, label=label): ROWS[ANN]}
            with samples.writing(engine) as connection:
                samples.add(connection, MINUTE_MS, T0 + minute * MINUTE_MS, rows)
        with snapshot(engine) as connection:
            ((subject, amounts),) = samples.subjects(connection, samples.Wanted(0, T0 + DAY))
        assert (subject.label, amounts.held_milli_ms) == ("a.ipynb", 200)


def thinned(engine: Engine, now_ms: int) -> bool:
    with samples.writing(engine) as connection:
        return samples.thin(connection, now_ms)


def test_what_was_held_is_what_was_charged_by_session(tmp_path: Path) -> None:
    world = ChargedWorld(tmp_path / "pool.sqlite", nodes={"node1": 1})
    world.connect()
    begin = world.now_ms
    lease = world.attach("k1", 200)
    world.now += 2.0
    world.attach("k2", 800, user="bob")
    world.now += 1.0
    world.release(lease)
    world.settle()
    world.now += 1.0
    assert world.ledger is not None
    with snapshot(world.ledger.engine) as connection:
        known = held_between(connection, begin, world.now_ms)
        later = held_between(connection, begin + 2500, world.now_ms)
    assert {(s.device, s.user, s.session): a.held_milli_ms for s, a in known.items()} == {
        ("node1/0", "ann", "s1"): 200 * 3000,
        ("node1/0", "bob", "s2"): 800 * 2000,
    }
    assert sum(amounts.held_milli_ms for amounts in later.values()) == 200 * 500 + 800 * 1500


def held_between(connection: Connection, from_ms: int, to_ms: int) -> dict[Subject, Amounts]:
    return dict(samples.held(connection, from_ms, to_ms, to_ms).leases)

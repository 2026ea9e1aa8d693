"""One story in each kind of database: the same rows, the same sums, whatever the grouping."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpupool.ledger import audit, schema, usage
from gpupool.ledger.snapshot import snapshot
from gpupool.model import events
from gpupool.pool.reporting.usage_report import usage_report
from gpupool.scheduler.fairshare.tree import Project, ProjectTree
from sqlalchemy import text, update
from sqlalchemy.exc import DBAPIError, OperationalError

from tests.support import postgres
from tests.support.charged_world import ChargedWorld

#: Of the world's clock, 10 s before the next hour of the wall clock.
BEFORE_AN_HOUR = 2790.0


@pytest.fixture(params=("file", "postgresql"))
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ChargedWorld]:
    where: Path | str = tmp_path / "pool.sqlite"
    if request.param == "postgresql":
        made: postgres.Cluster = request.getfixturevalue("postgres_server")
        where = made.database()
    world = ChargedWorld(where, nodes={"node1": 2, "rack/node2": 1})
    world.now = BEFORE_AN_HOUR
    for name in world.nodes:
        world.connect(name)
    yield world
    assert world.ledger is not None
    world.ledger.close()


def later(world: ChargedWorld, seconds: float) -> None:
    """All goes well meanwhile."""
    world.now += seconds
    for node in world.nodes.values():
        node.heartbeat(world.now)
    world.settle()
    held = tuple(lease.id for lease in world.machine.state.leases.values() if lease.live)
    world.handle(events.Renewed(world.now, held))


def live(world: ChargedWorld) -> None:
    """Leases of three users across the beginning of an hour: one on both nodes, a resize, a wait, a restart of the pool."""
    first = world.attach("k1", 200)
    later(world, 4.001)
    world.attach("k2", 300, user="bob", count=3, nodes="any")
    world.request("k3", 900, user="Eve", wait=None)
    later(world, 10.5)
    world.handle(events.Resized(world.now, first, 450, None))
    world.settle()
    later(world, 7)
    world.crash()
    for name in world.nodes:
        world.connect(name)
    later(world, 9)
    for lease in list(world.machine.state.leases.values()):
        world.release(lease.id)
    world.settle()
    later(world, 5)


def test_rows_and_sums_are_those_of_the_leases(world: ChargedWorld) -> None:
    live(world)
    world.check_charges()
    assert world.waits_in_ledger() == world.waited
    held, now = sum(world.held.values()), world.now_ms
    assert world.ledger is not None
    with snapshot(world.ledger.engine) as connection:
        for size in range(4):
            for by in itertools.combinations(("user", "project", "device", "node", "hour"), size):
                rows = usage.used(connection, usage.Selection(0, now, by), now)
                assert usage.total(rows)[0] == held
                assert rows == sorted(rows, key=lambda row: row.key)
        by_node = usage.used(connection, usage.Selection(0, now, ("node", "day")), now)
        there = usage.there(connection, usage.Selection(0, now, ("device",)), now)
        waited = usage.waited(connection, usage.Selection(0, now, ("user",)), now)
        steps = usage.capacity_steps(connection, 0, now, now)
    assert {row.node for row in by_node} == {"node1", "rack/node2"}
    assert {row.device: row.milli_ms for row in there} == dict(world.there)
    assert {row.user: row.milli_ms for row in waited} == dict(world.waited)
    assert sum(step.milli * (step.until - step.since) for step in steps) == sum(world.there.values())


def test_of_too_many_rows_only_one_more_than_may_be_is_read(
    world: ChargedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    live(world)
    selection = usage.Selection(0, world.now_ms, ("user", "device", "hour"))
    assert world.ledger is not None
    with snapshot(world.ledger.engine) as connection:
        whole = usage.used(connection, selection, world.now_ms)
        assert len(whole) > 3
        monkeypatch.setattr(usage, "MAXIMUM_ROWS", len(whole))
        assert usage.used(connection, selection, world.now_ms) == whole
        read, row = [], usage._row
        monkeypatch.setattr(usage, "_row", lambda *given: read.append(given) or row(*given))
        monkeypatch.setattr(usage, "MAXIMUM_ROWS", 2)
        with pytest.raises(usage.TooLargeError):
            usage.used(connection, selection, world.now_ms)
    assert len(read) == 3


@pytest.mark.parametrize("user", ["", "ann"])
def test_a_report_of_one_user_has_no_rows_of_projects_without_any_of_hers(
    world: ChargedWorld, user: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    live(world)
    monkeypatch.setattr(usage, "MAXIMUM_ROWS", 20)
    tree = ProjectTree([Project(f"p{number}") for number in range(30)] + [Project("default")])
    selection = usage.Selection(0, world.now_ms, ("project", "hour"), user)
    assert world.ledger is not None
    with snapshot(world.ledger.engine) as connection:
        if not user:
            with pytest.raises(usage.TooLargeError):
                usage_report(connection, selection, tree, world.now_ms)
            return
        rows = usage_report(connection, selection, tree, world.now_ms).rows
    assert {row.project for row in rows} == {"default"}
    assert all(row.deserved_milli_ms > 0 for row in rows)


def test_what_a_project_that_has_others_below_it_now_deserves_is_theirs(world: ChargedWorld) -> None:
    live(world)
    tree = ProjectTree(
        [Project("research"), Project("research/a"), Project("research/b"), Project("default")]
    )
    selection = usage.Selection(0, world.now_ms, ("project",))
    assert world.ledger is not None
    with world.ledger.engine.begin() as connection:
        connection.execute(update(schema.charges).values(project="research"))
    with snapshot(world.ledger.engine) as connection:
        answer = usage_report(connection, selection, tree, world.now_ms)
    deserved = {row.project: row.deserved_milli_ms for row in answer.rows}
    assert deserved["research"] == 0
    assert 0 < sum(deserved.values()) <= answer.capacity_milli_ms


def test_the_journal_is_read_in_pages_and_added_up(world: ChargedWorld) -> None:
    live(world)
    assert world.ledger is not None
    with snapshot(world.ledger.engine) as connection:
        last = audit.last_number(connection)
        lines = audit.page(connection, audit.Filter(), 0, last)
        assert [line.number for line in lines] == list(range(1, last + 1))
        of_bob = audit.Filter(user="bob")
        before = audit.number_before(connection, of_bob, 2)
        assert [line.number for line in audit.page(connection, of_bob, before)] == [
            line.number for line in lines if line.user == "bob"
        ][-2:]
        made = audit.decisions(connection, 0, 1e11)
    assert (made.granted, made.queued) == (3, 1)
    assert made.ended == {"release": 3}, "of bob's lease each part"
    assert made.wait(0.5) == 0.0
    assert made.wait(1.0) == pytest.approx(26.5, abs=0.01), "Eve's request waits on when the pool restarts"


def test_a_look_changes_nothing_and_sees_one_moment(world: ChargedWorld) -> None:
    world.attach("k1", 200)
    assert world.ledger is not None
    with snapshot(world.ledger.engine) as connection:
        before = audit.last_number(connection)
        world.attach("k2", 200)  # a step is stored meanwhile
        assert audit.last_number(connection) == before
        with pytest.raises((OperationalError, DBAPIError), match=r"readonly|read-only"):
            connection.execute(text("UPDATE charges SET milli = 0"))
    with snapshot(world.ledger.engine) as connection:
        assert audit.last_number(connection) > before

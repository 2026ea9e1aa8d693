"""The ledger: all or nothing, nothing forgotten, nothing rewritten."""

from __future__ import annotations

import sqlite3
import stat
from dataclasses import fields, replace
from pathlib import Path

import pytest
from gpupool.ledger import rows, schema, statements
from gpupool.ledger.ledger import Ledger, LedgerError, read_journal
from gpupool.model import events
from gpupool.model.clock import Clock
from gpupool.model.state import LeaseRecord, LeftWorker, SessionRecord, State
from gpupool.scheduler.model import Quota

from tests.support.pool_world import PoolWorld

CLOCK = Clock(offset=1_700_000_000.0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "pool.sqlite"


@pytest.fixture
def world(path: Path) -> PoolWorld:
    world = PoolWorld(path, nodes={"node1": 2})
    world.connect()
    return world


def stored(state: State) -> dict[str, object]:
    """What must survive: leases and sessions without their volatile fields."""
    leases = {
        x.id: (x.state, x.reason, x.epoch, x.shares, x.key, x.user, x.ends_at) for x in state.leases.values()
    }
    sessions = {
        x.id: (x.state, x.reason, x.epoch, x.secret, x.address, x.device_ids, x.lease_id)
        for x in state.sessions.values()
    }
    return {"leases": leases, "sessions": sessions, "keys": dict(state.keys), "devices": dict(state.devices)}


def test_the_state_comes_back_as_it_was(world: PoolWorld, path: Path) -> None:
    world.attach("k1", 200, duration=600.0)
    world.release(world.attach("k2", 300, user="bob"))
    world.attach("k3", 100, count=2, reservation=True)
    assert stored(Ledger(path, CLOCK).load()) == stored(world.machine.state)


def test_renewals_and_heartbeats_write_nothing(world: PoolWorld) -> None:
    lease_id = world.attach("k1", 200)
    machine, ledger = world.machine, world.ledger
    assert ledger is not None
    for event in (
        events.Renewed(world.now, (lease_id,)),
        events.NodeHeartbeat(world.now, "node1", 1, 1),
        events.Tick(world.now),
    ):
        machine.handle(event)
        assert not ledger.store(machine.state, [], world.now)
        machine.state.commit()


class Watched:
    """A record that notes which of its fields are read."""

    def __init__(self, record: object) -> None:
        self.record = record
        self.read: set[str] = set()

    def __getattr__(self, name: str) -> object:
        self.read.add(name)
        return getattr(self.record, name)


@pytest.mark.parametrize("table", ["nodes", "devices", "sessions", "leases"])
def test_a_row_has_every_field_that_is_not_fleeting(world: PoolWorld, table: str) -> None:
    """Else a change of one would not be stored, or each heartbeat would be compared as rows."""
    world.attach("k1", 200)
    (binding,) = [binding for binding in statements.BINDINGS if binding.name == table]
    record = next(iter(getattr(world.machine.state, table).values()))
    watched = Watched(record)
    binding.to_row(watched, CLOCK)
    assert watched.read == {field.name for field in fields(record)} - rows.FLEETING[type(record)]


def test_a_step_is_stored_whole_or_not_at_all(path: Path) -> None:
    ledger = Ledger(path, CLOCK)
    state = State()
    session = SessionRecord("s1", "ann", "", "", "n", ("n/0",), "ab")
    state.sessions["s1"] = session
    for lease_id in ("l1", "l2"):  # the second has the first one's key, which the database refuses
        state.leases[lease_id] = LeaseRecord(
            lease_id, "s1", "ann", "k1", "", "", 1, (), "starting", 0.0, new_session=True
        )
    with pytest.raises(LedgerError, match="UNIQUE"):
        ledger.store(state, [], 0.0)
    assert not ledger.load().sessions
    assert not ledger.load().leases


def test_an_error_does_not_show_secrets(path: Path) -> None:
    ledger = Ledger(path, CLOCK)
    state = State()
    state.sessions["s1"] = SessionRecord("s1", "ann", "", "", "n", ("n/0",), "SECRET")
    ledger.store(state, [], 0.0)
    again = State()
    again.sessions["s1"] = SessionRecord("s1", "ann", "", "", "n", ("n/0",), "SECRET")
    with pytest.raises(LedgerError) as caught:
        ledger.store(again, [], 0.0)
    assert "SECRET" not in str(caught.value)


def test_a_full_disk_is_an_error_and_leaves_the_last_state(world: PoolWorld, path: Path) -> None:
    lease_id = world.attach("k1", 200)
    ledger = world.ledger
    assert ledger is not None
    with ledger.engine.connect() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
    ledger.engine.dispose()

    from sqlalchemy import event

    @event.listens_for(ledger.engine, "connect")
    def limit(connection: sqlite3.Connection, _record: object) -> None:
        connection.execute(f"PRAGMA max_page_count = {pages}")

    def fill() -> None:
        for number in range(500):
            world.request(f"more{number}", 1, label="x" * 250)

    with pytest.raises(LedgerError, match="full"):
        fill()
    world.machine.state.rollback()
    after = Ledger(path, CLOCK).load()
    assert lease_id in after.leases
    assert stored(after)["leases"] == stored(world.machine.state)["leases"]


def test_the_journal_tells_the_life_of_a_lease_in_order(world: PoolWorld) -> None:
    lease_id = world.attach("k1", 200)
    world.release(lease_id, "idle")
    world.settle()
    assert world.ledger is not None
    with world.ledger.engine.connect() as connection:
        lines = read_journal(connection, lease_id=lease_id)
    assert [line["kind"] for line in lines] == ["grant", "attached", "release", "ended"]
    assert lines[2]["data"]["reason"] == "idle"
    assert all(line["explanation"] for line in lines)


@pytest.mark.parametrize("statement", ["DELETE FROM journal", "UPDATE journal SET sentence = '{}'"])
def test_the_journal_cannot_be_changed(world: PoolWorld, path: Path, statement: str) -> None:
    world.attach("k1", 200)
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        sqlite3.connect(path).execute(statement)


def test_refusals_are_in_the_journal_with_their_numbers(world: PoolWorld) -> None:
    world.request("k1", mib=9000)
    assert world.ledger is not None
    with world.ledger.engine.connect() as connection:
        line = read_journal(connection)[-1]
    assert (line["kind"], line["user"], line["data"]["reason"]) == ("refuse", "ann", "bad-share")
    assert "7936 MiB" in line["explanation"]


def test_the_file_is_for_its_owner_only_and_safe_against_power_loss(path: Path) -> None:
    ledger = Ledger(path, CLOCK)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with ledger.engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar_one() == "wal"
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar_one() == 2


@pytest.mark.parametrize("version", [schema.SCHEMA_VERSION - 1, schema.SCHEMA_VERSION + 1])
def test_a_ledger_of_another_version_is_left_alone(path: Path, version: int) -> None:
    with Ledger(path, CLOCK) as ledger, ledger.engine.begin() as connection:
        connection.execute(schema.meta.update().values(value=str(version)))
    before = path.read_bytes()
    with pytest.raises(LedgerError) as error:
        Ledger(path, CLOCK)
    assert f"version {version}, this gpupool has version {schema.SCHEMA_VERSION}" in str(error.value)
    assert path.read_bytes() == before


def test_a_file_that_is_no_ledger_is_named(path: Path) -> None:
    path.write_bytes(b"not a database, but long enough to be looked at" * 100)
    with pytest.raises(LedgerError, match=r"pool\.sqlite cannot be opened"):
        Ledger(path, CLOCK)


def test_quotas_are_kept(path: Path) -> None:
    ledger = Ledger(path, CLOCK)
    ledger.set_quota("ann", Quota(milli=500, shares=2))
    ledger.set_quota("*", Quota(milli=1000))
    ledger.set_quota("*", None)
    assert Ledger(path, CLOCK).quotas() == {"ann": Quota(milli=500, shares=2)}


def test_where_memory_lies_is_kept(world: PoolWorld, path: Path) -> None:
    world.release(world.attach("k1", 200, strict=True))
    world.settle()
    left = LeftWorker("node2", "host", ("node2/0",), (77,))
    table = world.machine.state.sessions
    table["s1"] = replace(table["s1"], place="image", parked_mib=(5, 6), left=left, source_gone=True)
    assert world.ledger is not None
    world.ledger.store(world.machine.state, [], world.now)
    loaded = Ledger(path, CLOCK).load().sessions["s1"]
    assert (loaded.place, loaded.parked_mib, loaded.left, loaded.source_gone) == ("image", (5, 6), left, True)
    assert loaded.strict
    assert loaded.parked_at == pytest.approx(table["s1"].parked_at)

"""Ledgers that older versions of the program wrote. `tests/support/old_ledgers` has what they were: dumps of one story,
told to the program of that time."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from gpupool.ledger import migrations, schema
from gpupool.ledger.ledger import Ledger, read_journal
from gpupool.ledger.rebuild import state_at
from gpupool.ledger.steps import StepsMissing
from gpupool.pool import tokens
from gpupool.pool.clock import Clock
from gpupool.pool.invariants import check_invariants
from gpupool.scheduler.model import Quota

from tests.support.pool_world import PoolWorld

OLD = Path(__file__).resolve().parents[1] / "support" / "old_ledgers"
CLOCK = Clock(offset=1_700_000_000.0)
VERSIONS = range(1, schema.SCHEMA_VERSION)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "pool.sqlite"


def written_by(version: int, path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.executescript((OLD / f"version{version}.sql").read_text())
        found = database.execute("SELECT value FROM meta WHERE name = 'schema_version'").fetchone()
    assert found == (str(version),)
    database.close()


def shape(path: Path) -> dict[str, object]:
    """Columns, indexes and triggers of a database; the order of columns is the migrations' own."""
    with sqlite3.connect(path) as database:
        tables = [row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        columns = {
            table: sorted(
                (name, kind, bool(needed), bool(key))
                for _, name, kind, needed, _, key in database.execute(f"PRAGMA table_info({table})")
            )
            for table in tables
        }
        rest = database.execute(
            "SELECT type, name, tbl_name FROM sqlite_master WHERE type IN ('index', 'trigger')"
        )
        others = sorted(rest.fetchall())
    database.close()
    return {"columns": columns, "others": others}


@pytest.mark.parametrize("version", VERSIONS)
class TestAnOldLedger:
    def test_has_the_tables_of_a_new_one_afterwards(self, version: int, path: Path, tmp_path: Path) -> None:
        written_by(version, path)
        Ledger(path, CLOCK).close()
        Ledger(tmp_path / "new.sqlite", CLOCK).close()
        assert shape(path) == shape(tmp_path / "new.sqlite")

    def test_keeps_leases_sessions_quotas_and_tokens(self, version: int, path: Path) -> None:
        written_by(version, path)
        with Ledger(path, CLOCK) as ledger:
            state = ledger.load()
            check_invariants(state)
            held = {(x.user, x.shares[0].milli, x.state) for x in state.leases.values() if x.holds}
            assert held == {("ann", 200, "attached"), ("eve", 100, "attached")}
            assert [x.reservation for x in state.leases.values() if x.user == "eve"] == [True]
            assert [(x.ends_at or 0) > x.granted_at for x in state.leases.values() if x.user == "ann"] == [
                True
            ]
            states = sorted(session.state for session in state.sessions.values())
            assert states == ["attached", "attached", "closed", "parked"]
            assert {session.place for session in state.sessions.values()} <= {"device", "none"}
            assert all(session.token == "ab" * 32 for session in state.sessions.values())
            assert ledger.quotas() == {"ann": Quota(milli=500, shares=2)}
            assert [token.subject for token in tokens.list_tokens(ledger)] == ["ann"]
            with ledger.engine.connect() as connection:
                kinds = [line["kind"] for line in read_journal(connection)]
            assert kinds.count("grant") == 4
            assert kinds[-1] == "refuse"

    def test_is_gone_on_with_and_its_steps_begin_now(self, version: int, path: Path) -> None:
        written_by(version, path)
        world = PoolWorld(path, nodes={"node1": 2})
        assert world.ledger is not None
        with world.ledger.engine.connect() as connection:
            old_line = read_journal(connection)[0]["number"]
        with pytest.raises(StepsMissing, match="before steps were recorded"):
            state_at(world.ledger, line=old_line)
        world.connect()
        lease_id = world.attach("after", 100)
        assert lease_id in state_at(world.ledger, unix=CLOCK.to_unix(world.now)).leases
        world.ledger.close()

    def test_stays_as_it_is_when_a_migration_fails(
        self, version: int, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        written_by(version, path)
        before = shape(path)
        last = schema.SCHEMA_VERSION - 1
        broken = {
            **migrations.MIGRATIONS,
            last: (*migrations.MIGRATIONS[last], "ALTER TABLE nowhere ADD COLUMN x"),
        }
        monkeypatch.setattr(migrations, "MIGRATIONS", broken)
        with pytest.raises(Exception, match="nowhere"):
            Ledger(path, CLOCK)
        assert shape(path) == before

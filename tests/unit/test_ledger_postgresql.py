"""The same ledger in PostgreSQL: what the file does, it does; one pool to a database; no commit is in doubt."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from gpupool.ledger import rebuild, schema, steps
from gpupool.ledger.ledger import Ledger, LedgerError, read_journal
from gpupool.ledger.provider_jobs import ProviderJobs
from gpupool.ledger.reading import reading
from gpupool.ledger.servers import ServerIdentity
from gpupool.model import events
from gpupool.model.clock import Clock
from gpupool.model.state import LeaseRecord, LeftWorker, SessionRecord, State
from gpupool.pool.access import tokens
from gpupool.pool.lifecycle import restore
from gpupool.pool.lifecycle.invariants import check_invariants
from gpupool.pool.lifecycle.replay import replay
from gpupool.scheduler.model import Quota
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from tests.support import postgres
from tests.support.pool_world import PoolWorld

CLOCK = Clock(offset=1_700_000_000.0)
KINDS = ("file", "postgresql")


@pytest.fixture(params=KINDS)
def where(request: pytest.FixtureRequest, tmp_path: Path) -> Path | str:
    if request.param == "file":
        return tmp_path / "pool.sqlite"
    made: postgres.Cluster = request.getfixturevalue("postgres_server")
    return made.database()


@pytest.fixture
def url(postgres_server: postgres.Cluster) -> str:
    return postgres_server.database()


class TestEitherDatabase:
    @pytest.fixture
    def world(self, where: Path | str) -> Iterator[PoolWorld]:
        world = PoolWorld(where, nodes={"node1": 2}, quotas={"bob": Quota(milli=900)})
        world.connect()
        yield world
        assert world.ledger is not None
        world.ledger.close()

    def test_gives_the_state_back_as_it_was(self, world: PoolWorld, where: Path | str) -> None:
        world.attach("k1", 200, duration=600.0, strict=True)
        world.release(world.attach("k2", 300, user="bob"))
        world.settle()
        world.attach("k3", 100, count=2, reservation=True)
        table = world.machine.state.sessions
        left = LeftWorker("node2", "host", ("node2/0",), (77,))
        from dataclasses import replace

        table["s2"] = replace(table["s2"], parked_mib=(5, 6), left=left, source_gone=True)
        assert world.ledger is not None
        world.ledger.store(world.machine.state, [], world.now)
        world.machine.state.commit()
        with Ledger(where, CLOCK) as other:
            loaded = other.load()
        check_invariants(loaded)
        state = world.machine.state
        assert dict(loaded.devices) == dict(state.devices)
        assert dict(loaded.keys) == dict(state.keys)
        for name in state.leases:
            assert loaded.leases[name].shares == state.leases[name].shares
            assert loaded.leases[name].state == state.leases[name].state
            assert loaded.leases[name].ends_at == state.leases[name].ends_at
        assert loaded.sessions["s2"].left == left
        assert loaded.sessions["s1"].secret == "ab" * 32

    def test_survives_the_death_of_the_pool(self, world: PoolWorld) -> None:
        lease = world.attach("k1", 200)
        world.crash()
        world.connect()
        world.settle()
        assert world.machine.state.leases[lease].state == "attached"
        assert world.attach("k1", 200) == lease

    def test_stores_a_step_whole_or_not_at_all(self, where: Path | str) -> None:
        ledger = Ledger(where, CLOCK)
        state = State()
        state.sessions["s1"] = SessionRecord("s1", "ann", "", "", "n", ("n/0",), "SECRET")
        for lease_id in ("l1", "l2"):
            state.leases[lease_id] = LeaseRecord(
                lease_id, "s1", "ann", "k1", "", "", 1, (), "starting", 0.0, new_session=True
            )
        with pytest.raises(LedgerError, match=r"(?i)unique") as caught:
            ledger.store(state, [], 0.0)
        assert "SECRET" not in str(caught.value)
        assert not ledger.load().sessions
        ledger.close()

    def test_keeps_its_journal(self, world: PoolWorld) -> None:
        world.attach("k1", 200)
        assert world.ledger is not None
        for statement in ("DELETE FROM journal", "UPDATE journal SET sentence = '{}'", "UPDATE steps SET event = ''",
                          "DELETE FROM steps"):  # fmt: skip
            with (
                pytest.raises(DBAPIError, match=r"append-only|only behind"),
                world.ledger.engine.begin() as connection,
            ):
                connection.execute(text(statement))

    def test_rebuilds_and_replays(self, world: PoolWorld, where: Path | str) -> None:
        lease = world.attach("k1", 200)
        world.request("k2", 950, user="bob")
        assert world.ledger is not None
        with reading(where) as connection:
            lines = read_journal(connection)
            for line in lines:
                again = replay(connection, steps.number_of_line(connection, line["number"]))
                assert again.same
        assert lines[-1]["kind"] == "refuse"
        grant = next(line["number"] for line in lines if line["kind"] == "grant")
        assert lease in rebuild.state_at(world.ledger, line=grant).leases

    def test_drops_old_steps_behind_a_checkpoint(self, world: PoolWorld) -> None:
        assert world.ledger is not None
        world.ledger.checkpoint_steps = 5
        for number in range(8):
            world.release(world.attach(f"k{number}", 100))
            world.settle()
        with world.ledger.engine.begin() as connection:
            assert steps.prune(connection, CLOCK.to_unix(world.now)) > 5
        with world.ledger.engine.connect() as connection:
            assert replay(connection, world.ledger.last_step).same

    def test_knows_tokens_and_quotas(self, where: Path | str) -> None:
        with Ledger(where, CLOCK) as ledger:
            made = tokens.create(ledger, "ann")
            assert tokens.verify(ledger, made.secret) is not None
            assert tokens.revoke(ledger, made.info.id)
            assert tokens.verify(ledger, made.secret) is None
            ledger.set_quota("ann", Quota(milli=500, shares=2))
            assert ledger.quotas() == {"ann": Quota(milli=500, shares=2)}

    def test_goes_on_after_a_restore_with_higher_epochs(self, world: PoolWorld) -> None:
        session = world.machine.state.leases[world.attach("k1", 200)].session_id
        assert world.ledger is not None
        done = restore.begin_anew(world.ledger)
        assert restore.waits(world.ledger)
        world.crash()
        world.connect()
        world.live(35)
        lease = world.attach("k2", 200, session_id=session)
        assert world.machine.state.leases[lease].epoch > done.epoch


class TestOnePool:
    def test_a_second_server_is_refused(self, url: str) -> None:
        first = Ledger(url, CLOCK, leader=ServerIdentity())
        with pytest.raises(LedgerError, match="another pool server uses this database"):
            Ledger(url, CLOCK, leader=ServerIdentity())
        first.close()
        Ledger(url, CLOCK, leader=ServerIdentity()).close()

    def test_commands_may_look_meanwhile(self, url: str) -> None:
        with Ledger(url, CLOCK, leader=ServerIdentity()), Ledger(url, CLOCK) as beside:
            assert tokens.list_tokens(beside) == []

    def test_one_that_was_overtaken_stores_nothing_more(
        self, url: str, postgres_server: postgres.Cluster
    ) -> None:
        world = world_on(url)
        world.attach("k1", 200)
        end_connections(postgres_server)
        with Ledger(url, CLOCK, leader=ServerIdentity()) as other:
            state = other.load()
            Ledger.store(other, state, [], 0.0, events.Restarted(0.0))
        for why in (
            "terminating connection",
            "has used this database meanwhile",
            "has used this database meanwhile",
        ):
            with pytest.raises(LedgerError, match=why):
                world.request("k2", 100)
            world.machine.state.rollback()

    def test_one_that_was_overtaken_knows_of_no_job_of_a_provider(
        self, url: str, postgres_server: postgres.Cluster
    ) -> None:
        """Else it would take its successor's jobs for nobody's, and end them."""
        former = Ledger(url, CLOCK, leader=ServerIdentity())
        rows = ProviderJobs(former.database)
        rows.store("a1", {"phase": "intended"})
        assert rows.row("a1") == {"phase": "intended"} and rows.row("b2") is None
        end_connections(postgres_server)
        with Ledger(url, CLOCK, leader=ServerIdentity()) as other:
            ProviderJobs(other.database).store("b2", {"phase": "intended"})
        with pytest.raises(SQLAlchemyError, match="has taken over"):
            rows.row("b2")


class TestABrokenConnection:
    def test_between_steps_is_mended(self, url: str, postgres_server: postgres.Cluster) -> None:
        world = world_on(url)
        world.attach("k1", 200)
        end_connections(postgres_server)
        with pytest.raises(LedgerError):
            world.request("k2", 100)
        world.machine.state.rollback()
        lease = world.attach("k2", 100)
        assert world.ledger is not None
        assert lease in world.ledger.load().leases

    def test_in_a_commit_that_took_place_is_found_out(
        self, url: str, postgres_server: postgres.Cluster
    ) -> None:
        """The answer is lost, the step is not: it counts, and the lease is not granted twice."""
        world = world_on(url)
        break_after_commit(world, postgres_server)
        lease = world.attach("k1", 200)
        assert world.ledger is not None
        assert list(world.ledger.load().leases) == [lease]
        world.attach("k2", 200)

    def test_in_a_commit_that_did_not_take_place_is_found_out(
        self, url: str, postgres_server: postgres.Cluster
    ) -> None:
        world = world_on(url)
        break_before_commit(world, postgres_server)
        with pytest.raises(LedgerError):
            world.request("k1", 200)
        world.machine.state.rollback()
        assert world.ledger is not None
        assert not world.ledger.load().leases
        lease = world.attach("k1", 200)
        assert list(world.ledger.load().leases) == [lease]

    def test_whose_outcome_cannot_be_asked_ends_the_pool_if_it_took_place(
        self, url: str, postgres_server: postgres.Cluster
    ) -> None:
        world = world_on(url)
        break_after_commit(world, postgres_server, stay_down=True)
        with pytest.raises(LedgerError):
            world.request("k1", 200)
        world.machine.state.rollback()
        postgres_server.start()
        with pytest.raises(LedgerError, match="start the pool again"):
            world.request("k1", 200)
        world.machine.state.rollback()
        with pytest.raises(LedgerError, match="start the pool again"):
            world.request("k1", 200)
        assert world.ledger is not None
        world.ledger.close()
        again = world_on(url)
        lease = again.attach("k1", 200)
        assert again.ledger is not None
        assert list(again.ledger.load().leases) == [lease]
        with again.ledger.engine.connect() as connection:
            assert [line["kind"] for line in read_journal(connection, lease_id=lease)].count("grant") == 1


class TestSecrets:
    def test_a_password_in_the_url_is_refused_and_not_repeated(self) -> None:
        for named in ("postgresql+psycopg://ann:hunter2@db/pool", "postgresql://db/pool?password=hunter2"):
            with pytest.raises(LedgerError, match="pgpass") as caught:
                Ledger(named, CLOCK)
            assert "hunter2" not in str(caught.value)

    def test_another_database_is_named(self) -> None:
        with pytest.raises(LedgerError, match="mysql"):
            Ledger("mysql://db/pool", CLOCK)

    def test_one_that_does_not_answer_is_named(self, tmp_path: Path) -> None:
        if why := postgres.why_not():
            pytest.skip(why)
        with pytest.raises(LedgerError, match="cannot be opened"):
            Ledger(f"postgresql+psycopg://ann@/pool?host={tmp_path}", CLOCK, leader=ServerIdentity())


def world_on(url: str) -> PoolWorld:
    world = PoolWorld(None, nodes={"node1": 2})
    world.ledger = Ledger(url, CLOCK, leader=ServerIdentity())
    world._path = url  # type: ignore[assignment]
    world._open()
    world.connect()
    return world


def end_connections(postgres_server: postgres.Cluster) -> None:
    postgres_server.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE application_name LIKE 'gpupool-%' AND pid <> pg_backend_pid()"
    )


def break_after_commit(
    world: PoolWorld, postgres_server: postgres.Cluster, *, stay_down: bool = False
) -> None:
    """The next commit takes place, and the connection is gone before its answer is read."""
    _once_at_commit(world, postgres_server, commit_first=True, stay_down=stay_down)


def break_before_commit(world: PoolWorld, postgres_server: postgres.Cluster) -> None:
    _once_at_commit(world, postgres_server, commit_first=False, stay_down=False)


def _once_at_commit(
    world: PoolWorld, postgres_server: postgres.Cluster, *, commit_first: bool, stay_down: bool
) -> None:
    assert world.ledger is not None
    engine = world.ledger.database._writers  # type: ignore[attr-defined]
    dialect, original = engine.dialect, engine.dialect.do_commit

    def commit(connection: object) -> None:
        dialect.do_commit = original
        if commit_first:
            original(connection)
        if stay_down:
            postgres_server.end()
        else:
            end_connections(postgres_server)
        connection.execute("COMMIT")  # type: ignore[attr-defined]  # the driver finds out

    dialect.do_commit = commit


def test_the_schema_is_the_same_in_both(url: str, tmp_path: Path) -> None:
    from sqlalchemy import inspect

    names = []
    for where in (url, tmp_path / "pool.sqlite"):
        with Ledger(where, CLOCK) as ledger:
            found = inspect(ledger.engine)
            names.append(
                {
                    table: sorted(c["name"] for c in found.get_columns(table))
                    for table in found.get_table_names()
                }
            )
    assert names[0] == names[1]
    assert set(names[0]) == set(schema.metadata.tables)

"""Backups: whole, private, taken while the pool writes; and a restore after which nothing is granted twice."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import stat
import threading
from pathlib import Path
from typing import Any

import pytest
from gpupool.ledger import backup, schema
from gpupool.ledger.ledger import Ledger, read_journal
from gpupool.model.clock import Clock
from gpupool.pool.lifecycle import restore
from gpupool.pool.lifecycle.invariants import check_invariants
from gpupool.pool.model.timers import Timers
from gpupool.pool.projects import accounts

from tests.support.pool_world import PoolWorld

CLOCK = Clock(offset=1_700_000_000.0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir(mode=0o700)
    return folder / "pool.sqlite"


@pytest.fixture
def world(path: Path) -> PoolWorld:
    world = PoolWorld(path, nodes={"node1": 2})
    world.connect()
    return world


def take(ledger: Path, target: Path) -> backup.BackupInfo:
    """A backup as `gpupool pool backup` leaves it."""
    with backup.copy_of(ledger) as copy:
        file = backup.PrivateFile(target)
        for piece in backup.pieces(copy):
            file.write(piece)
        file.keep()
    return backup.check(target)


def periods(ledger: Path) -> list[list[dict[str, Any]]]:
    """The rows of leases, of devices and of requests that wait."""
    with contextlib.closing(sqlite3.connect(ledger)) as database:
        database.row_factory = sqlite3.Row
        tables = ("charges", "capacity", "waits")
        return [[dict(row) for row in database.execute(f"SELECT * FROM {table}")] for table in tables]


class TestABackup:
    def test_holds_what_the_pool_knew_and_is_private(
        self, world: PoolWorld, path: Path, tmp_path: Path
    ) -> None:
        lease = world.attach("k1", 200)
        target = tmp_path / "copy"
        info = take(path, target)
        assert (info.version, info.leases, info.sessions) == (schema.SCHEMA_VERSION, 1, 1)
        assert info.taken_unix == CLOCK.to_unix(world.now)
        assert stat.S_IMODE(target.stat().st_mode) == 0o600
        assert lease in Ledger(target, CLOCK).load().leases
        assert sorted(p.name for p in path.parent.iterdir()) == [
            "pool.sqlite",
            "pool.sqlite-shm",
            "pool.sqlite-wal",
        ]

    def test_is_of_one_moment_though_the_pool_writes_on(
        self, world: PoolWorld, path: Path, tmp_path: Path
    ) -> None:
        stop, problems, made = threading.Event(), [], []

        def copy() -> None:
            try:
                while not stop.is_set():
                    made.append(take(path, tmp_path / f"copy{len(made)}"))
            except BaseException as error:
                problems.append(error)

        thread = threading.Thread(target=copy)
        thread.start()
        number = 0
        while number < 40 or (len(made) < 3 and thread.is_alive()):
            lease = world.attach(f"k{number}", 900, count=2)
            world.release(lease, close=True)
            world.settle()
            number += 1
        stop.set()
        thread.join()
        assert not problems
        for number in range(len(made)):
            state = Ledger(tmp_path / f"copy{number}", CLOCK).load()
            check_invariants(state)
            assert sum(lease.holds for lease in state.leases.values()) <= 1

    def test_that_breaks_off_leaves_no_file(self, tmp_path: Path) -> None:
        file = backup.PrivateFile(tmp_path / "copy")
        file.write(b"half")
        file.discard()
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("damage", ["cut", "flipped", "text", "another", "newer", "missing"])
    def test_that_is_damaged_or_something_else_is_named(
        self, world: PoolWorld, path: Path, tmp_path: Path, damage: str
    ) -> None:
        for number in range(10):
            world.attach(f"k{number}", 100, label="x" * 200)
        target = tmp_path / "copy"
        take(path, target)
        raw = bytearray(target.read_bytes())
        expected = {
            "cut": "no whole ledger|damaged", "flipped": "damaged|no whole ledger", "text": "no whole ledger",
            "another": "no ledger of a pool", "newer": "schema version 99", "missing": "there is no file",
        }[damage]  # fmt: skip
        match damage:
            case "cut":
                target.write_bytes(raw[: len(raw) // 2])
            case "flipped":
                for at in range(4096, len(raw), 4096):
                    raw[at : at + 8] = b"\xff" * 8
                target.write_bytes(raw)
            case "text":
                target.write_text("hello " * 1000)
            case "another":
                target.unlink()
                sqlite3.connect(target).execute("CREATE TABLE x (y)").connection.commit()
            case "newer":
                with sqlite3.connect(target) as database:
                    database.execute("UPDATE meta SET value = '99' WHERE name = 'schema_version'")
            case "missing":
                target.unlink()
        with pytest.raises(backup.BackupError, match=expected):
            backup.check(target)


class TestARestore:
    def test_goes_on_and_nothing_of_the_time_between_is_granted_twice(
        self, world: PoolWorld, path: Path, tmp_path: Path
    ) -> None:
        """The pool granted epochs after the backup; workers have seen them. No lease after the restore has one of them."""
        first = world.attach("k1", 200)
        session = world.machine.state.leases[first].session_id
        other = world.attach("k2", 300, user="bob")
        take(path, tmp_path / "copy")
        world.release(first)
        world.settle()
        again = world.attach("k3", 400, session_id=session)
        unknown = world.attach("k4", 500, user="eve")
        used = {(x.session_id, x.epoch) for x in world.machine.state.leases.values()}
        highest = max(epoch for _, epoch in used)
        assert world.ledger is not None
        world.ledger.close()

        done = restore.restore(tmp_path / "copy", path, force=True)
        assert (done.ended, done.sessions) == (2, 2)
        assert done.epoch > highest
        assert done.aside is not None
        assert again in Ledger(done.aside, CLOCK).load().leases, "what was replaced is kept whole"

        # Meanwhile the pool is away, and its workers fence themselves.
        for node in world.nodes.values():
            node.cut()
        world.ledger = Ledger(path, CLOCK)
        assert restore.waits(world.ledger)
        world.now += world.timers.reuse
        world._open()
        restore.waited(world.ledger)
        assert not restore.waits(world.ledger)
        state = world.machine.state
        assert unknown not in state.leases
        assert state.leases[first].state == "releasing"
        assert (state.leases[first].reason, state.leases[other].reason) == ("lost", "lost")
        world.connect()
        world.settle()
        assert state.leases[first].state == "ended"
        assert state.sessions[session].state == "parked"
        resumed = world.attach("k5", 400, session_id=session)
        assert state.leases[resumed].epoch > done.epoch
        fresh = world.attach("k6", 500, user="eve")
        assert not used & {(x.session_id, x.epoch) for x in (state.leases[resumed], state.leases[fresh])}
        assert world.nodes["node1"].workers[session].epoch == state.leases[resumed].epoch

    def test_counts_nothing_of_the_time_that_the_backup_does_not_know(
        self, world: PoolWorld, path: Path, tmp_path: Path
    ) -> None:
        world.attach("k1", 1000)
        world.attach("k2", 1000)
        world.live(20)
        world.request("k3", 1000, user="bob", wait=None)
        world.live(20)
        take(path, tmp_path / "copy")
        known = [[(row["from_ms"], row["to_ms"]) for row in rows] for rows in periods(path)]
        last = max(begin for rows in known for begin, _ in rows)
        restore.restore(tmp_path / "copy", tmp_path / "new.sqlite")
        charges, capacity, waits = periods(tmp_path / "new.sqlite")
        for before, rows in zip(known[:2], (charges, capacity), strict=True):
            old, new = rows[: len(before)], rows[len(before) :]
            assert [(row["from_ms"], row["to_ms"]) for row in old] == [(begin, last) for begin, _ in before]
            assert len(new) == 2
            # The backup is of 2023.
            assert all(row["from_ms"] > last + 86_400_000 and row["to_ms"] is None for row in new)
        assert [(row["from_ms"], row["to_ms"]) for row in waits] == [(last, last)]
        clock = Clock.start()
        with Ledger(tmp_path / "new.sqlite", clock) as ledger:
            state = ledger.load()
        used = accounts.decayed_usage(state, Timers(half_life=1e12), clock.now())["default"]
        assert used == pytest.approx(2000 * 20, abs=2000 * 10)

    def test_twice_from_one_backup_gives_no_epoch_twice(
        self, world: PoolWorld, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        session = world.machine.state.leases[world.attach("k1", 200)].session_id
        take(path, tmp_path / "copy")
        assert world.ledger is not None
        world.ledger.close()
        monkeypatch.setattr(restore.time, "time", lambda: 1_800_000_000.0)
        first = restore.restore(tmp_path / "copy", path, force=True)
        world.crash()
        world.connect()
        world.live(35)
        lease = world.attach("k2", 200, session_id=session)
        used = world.machine.state.leases[lease].epoch
        world.ledger.close()
        # Within the same second: the ledger that is replaced knows what was used.
        second = restore.restore(tmp_path / "copy", path, force=True)
        assert first.epoch < used <= second.epoch - 1

    def test_says_so_in_the_journal(self, world: PoolWorld, path: Path, tmp_path: Path) -> None:
        world.attach("k1", 200)
        take(path, tmp_path / "copy")
        new = tmp_path / "new.sqlite"
        restore.restore(tmp_path / "copy", new)
        with Ledger(new, CLOCK) as ledger, ledger.engine.connect() as connection:
            kinds = [line["kind"] for line in read_journal(connection)]
        assert kinds[-2:] == ["restored", "release"]
        assert not list(tmp_path.glob("new.sqlite-*"))

    def test_leaves_a_ledger_alone_unless_told(self, world: PoolWorld, path: Path, tmp_path: Path) -> None:
        lease = world.attach("k1", 200)
        take(path, tmp_path / "copy")
        with pytest.raises(backup.BackupError, match="--force"):
            restore.restore(tmp_path / "copy", path)
        assert lease in Ledger(path, CLOCK).load().leases

    def test_of_a_damaged_backup_changes_nothing(self, world: PoolWorld, path: Path, tmp_path: Path) -> None:
        lease = world.attach("k1", 200)
        (tmp_path / "copy").write_text("nonsense " * 1000)
        with pytest.raises(backup.BackupError):
            restore.restore(tmp_path / "copy", path, force=True)
        assert lease in Ledger(path, CLOCK).load().leases
        assert not list(path.parent.glob("*before*"))

    def test_over_a_ledger_that_cannot_be_read(self, world: PoolWorld, path: Path, tmp_path: Path) -> None:
        lease = world.attach("k1", 200)
        take(path, tmp_path / "copy")
        assert world.ledger is not None
        world.ledger.close()
        path.write_bytes(b"broken " * 1000)
        done = restore.restore(tmp_path / "copy", path, force=True)
        assert lease in Ledger(path, CLOCK).load().leases
        assert done.aside is not None
        assert done.aside.read_bytes().startswith(b"broken")

    @pytest.mark.parametrize("version", [schema.SCHEMA_VERSION - 1, schema.SCHEMA_VERSION + 1])
    def test_of_another_version_is_refused_and_named(self, version: int, path: Path, tmp_path: Path) -> None:
        Ledger(path, CLOCK).close()
        shutil.copy(path, tmp_path / "copy")
        with contextlib.closing(sqlite3.connect(tmp_path / "copy")) as database, database:
            database.execute("UPDATE meta SET value = ? WHERE name = 'schema_version'", (str(version),))
        with pytest.raises(
            backup.BackupError, match=f"version {version}, this gpupool has version {schema.SCHEMA_VERSION}"
        ):
            restore.restore(tmp_path / "copy", path, force=True)

    def test_without_epochs_left_is_refused(self) -> None:
        with pytest.raises(restore.EpochsExhaustedError, match="no epoch is left"):
            restore.epoch_floor(restore.LARGEST_EPOCH - 5, 1_800_000_000.0)

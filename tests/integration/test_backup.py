"""`gpupool pool backup`, `restore` and `replay` against a real pool server on a socket."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
import stat
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from gpupool.cli.main import app
from gpupool.client import maintenance
from gpupool.client.errors import GpupoolError, PoolRefusedError
from gpupool.client.pool import PoolClient
from gpupool.ledger import backup
from gpupool.ledger.ledger import Ledger
from gpupool.model.clock import Clock
from gpupool.pool.api import maintenance_service
from gpupool.pool.lifecycle import restore
from gpupool.pool.options import Serving
from gpupool.proto import pool_pb2 as pb
from gpupool.proto import pool_pb2_grpc
from gpupool.proto.sentences import from_message
from typer.testing import CliRunner

from tests.support.pool_server import Caller, ScriptedNode, make_token, pool_server


@dataclass
class Stand:
    home: Path
    serving: Serving
    caller: Caller
    node: ScriptedNode


@contextlib.asynccontextmanager
async def running(home: Path, **workers: int) -> AsyncIterator[Stand]:
    async with (
        pool_server(home=home, timers_scale=0.3) as serving,
        Caller(f"unix:{serving.socket}") as caller,
    ):
        node = ScriptedNode(caller)
        node.workers = dict(workers)
        async with node:
            yield Stand(home, serving, caller, node)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    monkeypatch.setenv("GPUPOOL_HOME", str(home))
    monkeypatch.delenv("GPUPOOL_ENDPOINT", raising=False)
    return home


async def gpupool(*arguments: str | Path) -> Any:
    """The command, beside the server's event loop."""
    return await asyncio.to_thread(CliRunner().invoke, app, [str(argument) for argument in arguments])


async def test_a_pool_goes_on_from_its_backup(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[Ledger] = []
    remember = restore.waited

    def count(ledger: Ledger) -> None:
        waited.append(ledger)
        remember(ledger)

    monkeypatch.setattr(restore, "waited", count)
    file = tmp_path / "monday.sqlite"
    async with running(home) as stand:
        first = await stand.caller.grant("k1", 200)
        await stand.caller.call("Release", pb.ReleaseLease(lease_id=first.lease_id))
        made = await gpupool("pool", "backup", file)
        assert made.exit_code == 0, made.output
        assert "1 session(s)" in made.stdout
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        # What comes now is not in it.
        resumed = await stand.caller.grant("k2", 300, session_id=first.session_id)
        unknown = await stand.caller.grant("k3", 400)
        refused = await gpupool("pool", "restore", "--force", file)
        assert (refused.exit_code, "stop it first" in refused.stderr) == (1, True)
        workers = dict(stand.node.workers)

    refused = await gpupool("pool", "restore", file)
    assert (refused.exit_code, "--force" in refused.stderr) == (1, True)
    restored = await gpupool("pool", "restore", "--force", "--json", file)
    assert restored.exit_code == 0, restored.output
    done = json.loads(restored.stdout)
    assert done["ended"] == 0
    assert stat.S_IMODE((home / "pool.sqlite").stat().st_mode) == 0o600
    assert Path(done["aside"]).exists()

    started = asyncio.get_running_loop().time()
    async with running(home, **workers) as stand:
        # Workers of before have had the time to fence themselves (30 s; here 1.5).
        assert asyncio.get_running_loop().time() - started >= 1.5
        named = pb.LeaseListRequest(ids=[unknown.lease_id])
        assert not (await stand.caller.call("ListLeases", named)).leases
        again = await stand.caller.grant("k4", 300, session_id=first.session_id)
        assert again.epoch > max(done["epoch"], resumed.epoch)
        await stand.node.wait_for(lambda message: message.HasField("stop"))
        stops = {m.stop.session_id for m in stand.node.received if m.HasField("stop")}
        assert stops == {unknown.session_id}, "a worker that the restored pool does not know is ended"
        assert len(waited) == 1
    async with running(home):
        assert len(waited) == 1, "it waits once"


async def test_a_decision_is_made_again_from_a_backup(home: Path, tmp_path: Path) -> None:
    file = tmp_path / "copy.sqlite"
    async with running(home) as stand:
        first = await stand.caller.grant("k1", 1000, count=2)
        refused = await stand.caller.ask("k2", 500)
        assert refused.refused.reason == "full"
        assert (await gpupool("pool", "backup", file)).exit_code == 0
    numbers = {}
    with contextlib.closing(sqlite3.connect(file)) as database:
        for number, kind in database.execute("SELECT number, kind FROM journal"):
            numbers[kind] = number
    for kind in ("grant", "attached", "refuse"):
        again = await gpupool("pool", "replay", str(numbers[kind]), "--ledger", file, "--json")
        assert again.exit_code == 0, again.output
        assert json.loads(again.stdout)["recorded"][0]["kind"] == kind
    shown = await gpupool("pool", "replay", str(numbers["refuse"]), "--ledger", file)
    assert str(from_message(refused.refused.details.said))[:40] in shown.stdout
    assert "the same decision" in shown.stdout
    what_if = await gpupool(
        "pool", "replay", str(numbers["refuse"]), "--ledger", file, "--without-lease", first.lease_id
    )
    assert what_if.exit_code == 1
    assert "another decision" in what_if.stdout
    nothing = await gpupool("pool", "replay", "999", "--ledger", file)
    assert (nothing.exit_code, "no line 999" in nothing.stderr) == (1, True)


async def test_a_file_that_is_there_or_damaged_is_named(home: Path, tmp_path: Path) -> None:
    file = tmp_path / "copy.sqlite"
    file.write_text("something else")
    there = await gpupool("pool", "backup", file)
    assert (there.exit_code, "--force" in there.stderr) == (1, True)
    damaged = await gpupool("pool", "backup", "--check", file)
    assert (damaged.exit_code, "no whole ledger" in damaged.stderr) == (1, True)
    Ledger(tmp_path / "almost", Clock(0.0)).close()
    for damage in ("DELETE FROM meta", "INSERT INTO meta VALUES ('schema_version', 'new')"):
        with contextlib.closing(sqlite3.connect(tmp_path / "almost")) as database:
            database.execute(damage)
            database.commit()
        almost = await gpupool("pool", "backup", "--check", tmp_path / "almost")
        assert (almost.exit_code, "schema version" in almost.stderr) == (1, True)
    (tmp_path / "almost").unlink()
    away = await gpupool("pool", "backup", tmp_path / "other")
    assert away.exit_code == 69
    assert not (tmp_path / "other").exists()
    assert {path.name for path in tmp_path.iterdir()} == {"copy.sqlite", "home"}


async def test_only_administrators_get_one(home: Path) -> None:
    async with pool_server(home=home, listen="127.0.0.1:0") as serving:
        for role, subject in (("user", "ann"), ("node", "node1")):
            token = make_token(serving, subject, role)
            async with Caller(f"127.0.0.1:{serving.port}", token) as caller:
                stub: Any = pool_pb2_grpc.MaintenanceStub
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    async for _ in stub(caller.channel).Backup(pb.BackupRequest(), metadata=caller.metadata):
                        pass
            assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED


async def test_one_at_a_time_and_the_pool_goes_on(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reached, go_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()
    check = backup.check

    def slow(path: Path) -> backup.BackupInfo:
        loop.call_soon_threadsafe(reached.set)
        go_on.wait(10)
        return check(path)

    monkeypatch.setattr(maintenance_service.backup, "check", slow)
    async with running(home) as stand, PoolClient(f"unix:{stand.serving.socket}") as client:
        got: list[bytes] = []
        first = asyncio.create_task(maintenance.backup(client, got.append))
        await reached.wait()
        await stand.caller.grant("k1", 200)  # decisions are made meanwhile
        with pytest.raises(PoolRefusedError, match="another backup"):
            await maintenance.backup(client, lambda _: None)
        go_on.set()
        await first
        assert b"".join(got).startswith(b"SQLite format 3")
        assert not list(home.glob(".backup-*"))


async def test_what_arrives_otherwise_than_it_was_sent_is_not_kept(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance_service.backup, "pieces", lambda _path: iter([b"cut short"]))
    async with running(home) as stand, PoolClient(f"unix:{stand.serving.socket}") as client:
        with pytest.raises(GpupoolError, match="broke off"):
            await maintenance.backup(client, lambda _: None)
        failed = await gpupool("pool", "backup", tmp_path / "copy", "--pool", f"unix:{stand.serving.socket}")
    assert failed.exit_code == 1
    assert not (tmp_path / "copy").exists()

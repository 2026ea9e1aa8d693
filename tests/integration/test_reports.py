"""Reports of a running pool, over its real port and through the real commands."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import math
import threading
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from gpupool.cli.main import app
from gpupool.client.errors import PoolRefusedError
from gpupool.client.pool import PoolClient
from gpupool.client.reports import JournalLine, Reports
from gpupool.ledger import audit, schema
from gpupool.pool.api import reports_service
from gpupool.pool.options import Serving
from gpupool.proto import pool_pb2 as pb
from sqlalchemy import func, select
from typer.testing import CliRunner, Result

from tests.support.pool_server import Caller, ScriptedNode, make_token, pool_server


@dataclass
class Stand:
    """A pool with one node of two devices, on which ann has used 0.2 for a moment and bob holds 0.5."""

    serving: Serving
    admin: Caller
    token_files: dict[str, Path]
    ended: str
    held: str

    async def command(self, *words: str, user: str = "") -> Result:
        """Runs `gpupool …` beside the server's event loop."""
        where = {"GPUPOOL_ENDPOINT": f"unix:{self.serving.socket}"}
        if user:
            where = {
                "GPUPOOL_ENDPOINT": f"127.0.0.1:{self.serving.port}",
                "GPUPOOL_TOKEN_FILE": str(self.token_files[user]),
            }
        return await asyncio.to_thread(CliRunner().invoke, app, list(words), env=where)

    def client(self, user: str = "") -> PoolClient:
        if user:
            return PoolClient(f"127.0.0.1:{self.serving.port}", self.token_files[user])
        return PoolClient(f"unix:{self.serving.socket}")

    def in_ledger(self, now: float) -> int:
        """Milli-GPU-milliseconds of all charges until `now`."""
        table = schema.charges
        until = func.coalesce(table.c.to_ms, round(now * 1000))
        with self.serving.pool.ledger.engine.connect() as connection:
            return connection.execute(
                select(func.sum(table.c.milli * (until - table.c.from_ms)))
            ).scalar_one()


@pytest.fixture
async def stand(tmp_path: Path) -> AsyncIterator[Stand]:
    async with (
        pool_server(listen="127.0.0.1:0", timers_scale=1.0) as serving,
        Caller(f"unix:{serving.socket}") as admin,
        ScriptedNode(admin),
    ):
        files = {}
        for name in ("ann", "bob"):
            files[name] = tmp_path / f"{name}.token"
            files[name].write_text(make_token(serving, name, "user"))
            files[name].chmod(0o600)
        first = await admin.grant("k1", 200, on_behalf_of="ann", label="a.ipynb")
        await asyncio.sleep(0.1)
        await admin.call("Release", pb.ReleaseLease(lease_id=first.lease_id))
        second = await admin.grant("k2", 500, on_behalf_of="bob")
        await admin.ask("k3", 900, count=2, on_behalf_of="bob")  # refused: full
        yield Stand(serving, admin, files, first.lease_id, second.lease_id)


async def lines(client: PoolClient, **wanted: Any) -> list[JournalLine]:
    async with client as connection:
        return [line async for line in Reports(connection).audit(**wanted)]


class TestUsage:
    async def test_every_grouping_adds_up_to_the_ledger(self, stand: Stand) -> None:
        to = round(time.time() - 0.005, 3)
        async with stand.client() as connection:
            for by in ((), ("user",), ("project", "user"), ("device", "hour"), ("node", "day"), ("hour",)):
                report = await Reports(connection).usage(0, to, by)
                assert sum(row.milli_ms for row in report.rows) == report.total_milli_ms
                assert report.total_milli_ms == stand.in_ledger(to)
            report = await Reports(connection).usage(0, to, ("user",))
        assert {row.user: row.leases for row in report.rows} == {"ann": 1, "bob": 1}
        ann = next(row for row in report.rows if row.user == "ann")
        assert 200 * 100 <= ann.milli_ms <= 200 * 5000
        assert report.capacity_milli_ms > report.total_milli_ms

    async def test_a_user_sees_her_own_rows_and_the_totals_of_all(self, stand: Stand) -> None:
        async with stand.client("ann") as connection:
            report = await Reports(connection).usage(0, time.time(), ("user",))
            with pytest.raises(PoolRefusedError, match="ann may not see what 'bob' did") as caught:
                await Reports(connection).usage(0, time.time(), ("user",), user="bob")
        assert [row.user for row in report.rows] == ["ann"]
        assert report.total_milli_ms > report.rows[0].milli_ms
        assert caught.value.reason == "forbidden"

    async def test_nonsense_is_named(self, stand: Stand) -> None:
        async with stand.client() as connection:
            for begin, end, by, said in (
                (5, 5, (), "ends (5) before or when it begins (5)"),
                (0, 9, ("colour",), "'colour' is nothing to group by"),
                (0, 9, ("hour", "day"), "by hour or by day"),
                (-1, 9, (), "from_unix -1 is no time"),
                (math.nan, 9, (), "from_unix nan is no time"),
                (0, 1e300, (), "to_unix 1e+300 is no time"),
            ):
                with pytest.raises(PoolRefusedError) as caught:
                    await Reports(connection).usage(begin, end, by)
                assert said in str(caught.value)

    async def test_a_ledger_that_cannot_be_read_is_named(self, stand: Stand) -> None:
        with stand.serving.pool.ledger.engine.begin() as connection:
            connection.exec_driver_sql("ALTER TABLE charges RENAME TO away")
        async with stand.client() as connection:
            with pytest.raises(
                PoolRefusedError, match="the ledger cannot be read: no such table: charges"
            ) as caught:
                await Reports(connection).usage(0, 9)
        assert caught.value.reason == "ledger"

    async def test_rows_by_project_say_what_it_deserved_and_what_it_waited_for(self, stand: Stand) -> None:
        waiting = stand.admin.request("k4", 1000, count=2, on_behalf_of="bob", wait_seconds=-1)
        await waiting.read()
        await asyncio.sleep(0.05)
        async with stand.client() as connection:
            report = await Reports(connection).usage(0, time.time(), ("project",))
            by_device = await Reports(connection).usage(0, time.time(), ("device",))
        waiting.cancel()
        (row,) = report.rows
        assert row.project == "default"
        assert row.milli_ms < row.deserved_milli_ms <= report.capacity_milli_ms
        assert row.waiting_milli_ms == report.total_waiting_milli_ms >= 2000 * 50
        assert {row.device for row in by_device.rows} == {"node1/0", "node1/1"}
        assert sum(row.capacity_milli_ms for row in by_device.rows) == by_device.capacity_milli_ms


class TestReportCommand:
    async def test_a_bill_adds_up_to_the_ledger(self, stand: Stand) -> None:
        await stand.admin.call("Release", pb.ReleaseLease(lease_id=stand.held))
        done = await stand.command(
            "report",
            "usage",
            "--from",
            "today",
            "--by",
            "user,device",
            "--csv",
            "--price",
            "1800000",
            "--currency",
            "EUR",
        )
        assert done.exit_code == 0, done.output
        rows = list(csv.DictReader(io.StringIO(done.stdout)))
        assert list(rows[0]) == [
            "from", "to", "user", "device", "leases", "milli_gpu_seconds", "mib_seconds", "gpu_hours", "price",
            "cost", "currency",
        ]  # fmt: skip
        assert sum(Decimal(row["milli_gpu_seconds"]) for row in rows) * 1000 == stand.in_ledger(time.time())
        for row in rows:
            exact = Decimal(row["milli_gpu_seconds"]) / 1000 / 3600 * 1_800_000
            assert abs(Decimal(row["cost"]) - exact) <= Decimal("0.005")
        assert {row["currency"] for row in rows} == {"EUR"}

    async def test_json_holds_the_exact_integers(self, stand: Stand) -> None:
        await stand.admin.call("Release", pb.ReleaseLease(lease_id=stand.held))
        done = await stand.command(
            "report", "usage", "--from", "1h", "--by", "user", "--json", "--price", "1.80"
        )
        data = json.loads(done.stdout)
        assert sum(row["milli_gpu_ms"] for row in data["rows"]) == stand.in_ledger(time.time())
        assert data["pool"]["milli_gpu_ms"] == stand.in_ledger(time.time())
        assert data["by"] == ["user"]
        assert data["cost"] == "0.00"

    async def test_people_get_a_table(self, stand: Stand) -> None:
        done = await stand.command("report", "usage", "--from", "1h", "--by", "user,hour")
        assert done.exit_code == 0, done.output
        assert "ann" in done.stdout and "FROM (UTC)" in done.stdout and "total" in done.stdout
        assert "GPU hours" in done.stderr


async def test_stats_are_of_the_pool_now_and_of_the_time(stand: Stand) -> None:
    done = await stand.command("pool", "stats", "--last", "1h", "--json", user="ann")
    found = json.loads(done.stdout)
    assert (found["capacity_milli"], found["held_milli"], found["free_milli"]) == (2000, 500, 1500)
    assert (found["leases"], found["parked_sessions"], found["waiting_requests"]) == (1, 1, 0)
    assert (found["granted"], found["refused"], found["ended"]) == (2, {"full": 1}, {"release": 1})
    assert found["wait_p50_seconds"] == found["wait_p99_seconds"] == 0.0
    assert 0.1 <= found["held_mean_seconds"] < 5
    assert "refused" in (await stand.command("pool", "stats")).stdout
    too_long = await stand.command("pool", "stats", "--last", "367d")
    assert (too_long.exit_code, too_long.stdout) == (2, "")


async def test_looks_of_one_user_hold_up_nobody_else(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    loop, look = asyncio.get_running_loop(), reports_service.usage_report
    begun: asyncio.Queue[None] = asyncio.Queue()
    go_on = threading.Event()

    def slow(*arguments: Any) -> pb.ReportAnswer:
        loop.call_soon_threadsafe(begun.put_nowait, None)
        assert go_on.wait(20)
        return look(*arguments)

    async with stand.client("ann") as ann, stand.client("bob") as bob, asyncio.timeout(20):
        with monkeypatch.context() as patch:
            patch.setattr(reports_service, "usage_report", slow)
            calls = [asyncio.create_task(Reports(ann).usage(0, time.time())) for _ in range(5)]
            for _ in range(reports_service.LOOKS_OF_ONE_USER):
                await begun.get()
            # The looks go on in their threads after ann has hung up; those that have not begun never do.
            for call in calls:
                call.cancel()
            await asyncio.wait(calls)
            later = asyncio.create_task(Reports(ann).usage(0, time.time()))
            patch.setattr(reports_service, "usage_report", look)
            await Reports(bob).usage(0, time.time())
        assert not later.done()
        go_on.set()
        await later
        assert begun.empty()


class TestAudit:
    async def test_a_leases_life_in_order(self, stand: Stand) -> None:
        found = await lines(stand.client(), lease_id=stand.ended)
        assert [line.kind for line in found] == ["grant", "attached", "release", "ended"]
        assert found[0].data["key"] == "k1"
        assert [line.number for line in found] == sorted(line.number for line in found)

    async def test_a_user_sees_lines_of_her_own_only(self, stand: Stand) -> None:
        found = await lines(stand.client("ann"))
        assert {line.user for line in found} == {"ann"}
        with pytest.raises(PoolRefusedError, match="may not see"):
            await lines(stand.client("ann"), user="bob")
        assert {"", "ann", "bob"} <= {line.user for line in await lines(stand.client())}

    async def test_the_latest_lines_are_the_last_ones(self, stand: Stand) -> None:
        everything = await lines(stand.client(), limit=-1)
        assert await lines(stand.client(), limit=3) == everything[-3:]
        assert await lines(stand.client(), kind="refuse", limit=1) == [
            line for line in everything if line.kind == "refuse"
        ]
        assert await lines(stand.client(), to_unix=everything[2].at_unix) == everything[:2]

    async def test_a_follower_is_told_of_lines_as_they_are_written(self, stand: Stand) -> None:
        heard: asyncio.Queue[JournalLine] = asyncio.Queue()

        async def follow() -> None:
            async with stand.client() as connection:
                async for line in Reports(connection).audit(kind="grant", limit=1, follow=True):
                    heard.put_nowait(line)

        follower = asyncio.create_task(follow())
        try:
            async with asyncio.timeout(10):
                assert (await heard.get()).lease_id == stand.held
                grant = await stand.admin.grant("k9", 100)
                assert (await heard.get()).lease_id == grant.lease_id
        finally:
            follower.cancel()

    async def test_one_user_may_have_only_so_many_followers(
        self, stand: Stand, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(reports_service, "_MOST_FOLLOWERS", 1)
        async with stand.client() as first:
            follower = Reports(first).audit(limit=1, follow=True)
            await anext(follower)
            with pytest.raises(PoolRefusedError) as caught:
                await lines(stand.client(), limit=1, follow=True)
            assert caught.value.reason == "busy"
            assert len(await lines(stand.client(), limit=1)) == 1
            await follower.aclose()
        async with stand.client() as second, asyncio.timeout(10):
            await anext(Reports(second).audit(limit=1, follow=True))

    async def test_a_follower_reads_no_line_of_the_journal_twice(
        self, stand: Stand, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(reports_service, "FOLLOW_SECONDS", 0.01)
        read: asyncio.Queue[int] = asyncio.Queue()
        loop, page = asyncio.get_running_loop(), audit.page

        def noted(connection: Any, wanted: audit.Filter, after: int, upto: int | None = None) -> Any:
            loop.call_soon_threadsafe(read.put_nowait, after)
            return page(connection, wanted, after, upto)

        monkeypatch.setattr(audit, "page", noted)
        with stand.serving.pool.ledger.engine.connect() as connection:
            last = audit.last_number(connection)

        async def follow() -> None:
            async with stand.client() as connection:
                async for _ in Reports(connection).audit(user="nobody", limit=1, follow=True):
                    pass

        follower = asyncio.create_task(follow())
        try:
            async with asyncio.timeout(10):
                first, second = await read.get(), await read.get()
        finally:
            follower.cancel()
        assert first < last <= second

    async def test_pages_lose_nothing(self, stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
        everything = await lines(stand.client(), limit=-1)
        monkeypatch.setattr("gpupool.ledger.audit.PAGE", 2)
        assert await lines(stand.client(), limit=-1) == everything
        assert await lines(stand.client(), limit=5) == everything[-5:]

    async def test_the_command_prints_lines_for_people_and_for_programs(self, stand: Stand) -> None:
        done = await stand.command("pool", "audit", "--lease", stand.ended)
        assert [row.split()[2] for row in done.stdout.splitlines()] == [
            "grant",
            "attached",
            "release",
            "ended",
        ]
        done = await stand.command("pool", "audit", "--lease", stand.ended, "--json")
        assert [json.loads(row)["kind"] for row in done.stdout.splitlines()] == [
            "grant", "attached", "release", "ended",
        ]  # fmt: skip
        done = await stand.command("pool", "audit", "--user", "nobody")
        assert (done.exit_code, done.stdout) == (0, "")
        assert "no such line" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--from", "yesterday"), "'yesterday' is no moment"),
        (("--by", "colour"), "'colour' is nothing to group by"),
        (("--from", "now", "--to", "2020-01-01"), "before or when it begins"),
        (("--price", "much"), "'much' is no price"),
        (("--price", "-1"), "'-1' is no price"),
        (("--csv", "--json"), "either CSV or JSON"),
    ],
)
def test_wrong_arguments_are_named(words: tuple[str, ...], said: str) -> None:
    done = CliRunner().invoke(app, ["report", "usage", *words])
    assert (done.exit_code, said in " ".join(done.output.split())) == (2, True), done.output

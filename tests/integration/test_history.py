"""The history of a running pool, over its real port and through the real command."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio
from gpupool.cli.main import app
from gpupool.client.errors import PoolRefusedError
from gpupool.client.history import History, Member, Series
from gpupool.client.pool import PoolClient
from gpupool.pool.options import Serving
from gpupool.proto import pool_pb2 as pb
from typer.testing import CliRunner

from tests.support.pool_server import Caller, ScriptedNode, make_token, pool_server

pytestmark = pytest.mark.asyncio(loop_scope="module")

GIB = 1 << 30


@dataclass
class Stand:
    """A pool with one node of two devices, on which ann holds 0.2 and has used one second, and bob holds 0.5."""

    serving: Serving
    tokens: dict[str, Path]

    def client(self, user: str = "") -> PoolClient:
        if user:
            return PoolClient(f"127.0.0.1:{self.serving.port}", self.tokens[user])
        return PoolClient(f"unix:{self.serving.socket}")

    async def series(
        self, view: str, name: str = "", *, user: str = "", by: str = "", viewer: str = ""
    ) -> Series:
        async with self.client(user) as connection:
            return await History(connection).series(
                view, name, from_unix=time.time() - 600, by=by, viewer=viewer
            )


async def begin(serving: Serving, admin: Caller, node: ScriptedNode) -> None:
    await admin.grant("k1", 200, on_behalf_of="ann", label="a.ipynb")
    (session,) = node.workers
    await node.heartbeat(device_seconds=0.5, memory_used=[GIB], client_connected=True)
    await asyncio.sleep(0.1)
    await node.heartbeat(device_seconds=1.5, memory_used=[GIB], bytes_to_device=5000, client_connected=True)
    node.workers = {session: node.workers[session]}
    await admin.grant("k2", 500, on_behalf_of="bob", label="b.ipynb")
    await asyncio.sleep(0.2)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stand(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stand]:
    folder = tmp_path_factory.mktemp("tokens")
    async with (
        pool_server(listen="127.0.0.1:0", timers_scale=1.0) as serving,
        Caller(f"unix:{serving.socket}") as admin,
        ScriptedNode(admin) as node,
    ):
        files = {}
        for name in ("ann", "bob"):
            files[name] = folder / f"{name}.token"
            files[name].write_text(make_token(serving, name, "user"))
            files[name].chmod(0o600)
        await begin(serving, admin, node)
        yield Stand(serving, files)


def by_name(series: Series) -> dict[str, Member]:
    return {member.name: member for member in series.members}


class TestTheRunningMinute:
    async def test_says_at_once_what_is_held_and_used(self, stand: Stand) -> None:
        found = await stand.series("cluster", by="user")
        total = found.total
        assert total.covered_ms > 0
        assert total.held_milli_ms < total.capacity_milli_ms <= 2000 * total.covered_ms
        assert total.held_milli_ms > 0
        assert total.used_milli_ms == 1_500_000
        assert total.to_device_bytes == 5000
        assert total.memory_mib_ms > 0
        members = by_name(found)
        assert set(members) == {"ann", "bob"}
        assert members["ann"].amounts.used_milli_ms == 1_500_000
        assert members["ann"].amounts.idle_milli_ms == 0
        assert members["bob"].amounts.idle_milli_ms == members["bob"].amounts.held_milli_ms > 0

    async def test_agrees_with_the_report_to_the_millisecond(self, stand: Stand) -> None:
        from gpupool.client.reports import Reports

        async with stand.client() as connection:
            found = await History(connection).series("cluster", from_unix=time.time() - 60)
            report = await Reports(connection).usage(time.time() - 60, time.time())
        assert 0 <= report.total_milli_ms - found.total.held_milli_ms < 700 * 1000

    async def test_has_points_that_follow_each_other_and_says_where_nobody_looked(self, stand: Stand) -> None:
        found = await stand.series("cluster")
        times = [point.from_unix for point in found.points]
        assert times == [found.from_unix + n * found.step_seconds for n in range(len(times))]
        assert found.points[0].amounts.mean("held_milli_ms") is None
        assert (found.points[-1].amounts.covered_ms or found.points[-2].amounts.covered_ms) > 0

    async def test_is_of_a_node_a_device_a_project_or_a_client(self, stand: Stand) -> None:
        node = await stand.series("node", "node1", by="device")
        assert node.total.capacity_milli_ms > 0
        assert set(by_name(node)) == {"node1/0", "node1/1"}
        assert (await stand.series("node", "elsewhere")).total.capacity_milli_ms == 0
        for member in node.members:
            device = await stand.series("device", member.name, by="client")
            assert device.total.held_milli_ms >= member.amounts.held_milli_ms
        project = await stand.series("project", "default", by="user")
        assert project.total.capacity_milli_ms == 0
        assert set(by_name(project)) == {"ann", "bob"}
        clients = await stand.series("client", by="client")
        assert {(member.user, member.label) for member in clients.members} == {
            ("ann", "a.ipynb"),
            ("bob", "b.ipynb"),
        }
        ann = next(member for member in clients.members if member.user == "ann")
        one = await stand.series("client", ann.name, by="device")
        assert one.total.used_milli_ms == 1_500_000


class TestWhoSeesWhat:
    async def test_a_user_sees_totals_and_herself(self, stand: Stand) -> None:
        found = await stand.series("cluster", user="ann", by="user")
        everything = await stand.series("cluster")
        assert set(by_name(found)) == {"ann", "(others)"}
        assert found.total.used_milli_ms == everything.total.used_milli_ms
        clients = await stand.series("client", user="ann", by="client")
        assert [(member.user, member.label) for member in clients.members] == [("ann", "a.ipynb")]
        assert set(by_name(await stand.series("node", "node1", user="ann", by="client"))) == {
            clients.members[0].name,
            "(others)",
        }

    async def test_a_user_does_not_see_another(self, stand: Stand) -> None:
        with pytest.raises(PoolRefusedError, match="ann may not see what 'bob' used") as caught:
            await stand.series("user", "bob", user="ann")
        assert caught.value.reason == "forbidden"
        bobs = (await stand.series("client", by="client")).members
        name = next(member.name for member in bobs if member.user == "bob")
        assert (await stand.series("client", name, user="ann")).total.held_milli_ms == 0
        with pytest.raises(PoolRefusedError, match="may not see what 'bob' sees"):
            await stand.series("cluster", user="ann", viewer="bob")

    async def test_a_project_is_seen_by_its_members(self, stand: Stand) -> None:
        async with stand.client() as connection:
            project = pb.Project(
                path="secret", deserved_milli=0, limit_milli=-1, weight=1, min_run_seconds=-1, members=["bob"]
            )
            await connection.call("Projects", "SetProject", project)
        await stand.series("project", "secret", user="bob")
        with pytest.raises(PoolRefusedError, match="ann is no member of project 'secret'"):
            await stand.series("project", "secret", user="ann")

    async def test_an_administrator_may_look_as_another(self, stand: Stand) -> None:
        assert set(by_name(await stand.series("cluster", by="user", viewer="bob"))) == {"bob", "(others)"}


class TestNonsense:
    @pytest.mark.parametrize(
        ("asked", "said"),
        [
            ({"view": "colour"}, "'colour' is no view"),
            ({"view": "cluster", "name": "x"}, "the cluster has no name"),
            ({"view": "cluster", "by": "colour"}, "members by 'colour' are none"),
            ({"view": "cluster", "points": 9999}, "points 9999 is not within 0..2000"),
            ({"view": "cluster", "from_unix": -5.0}, "from_unix -5 is no time"),
            ({"view": "cluster", "from_unix": 9e10}, "ends .* before or when it begins"),
            ({"view": "cluster", "from_unix": 1.0, "to_unix": 5.0}, "goes back 90 days"),
        ],
    )
    async def test_is_named(self, stand: Stand, asked: dict[str, object], said: str) -> None:
        arguments = {"from_unix": time.time() - 60, **asked}
        async with stand.client() as connection:
            with pytest.raises(PoolRefusedError, match=said) as caught:
                await History(connection).series(**arguments)  # type: ignore[arg-type]
        assert caught.value.reason == "bad-request"


async def test_a_pool_that_starts_again_goes_on_with_what_was_written(tmp_path: Path) -> None:
    async with (
        pool_server(home=tmp_path / "home", timers_scale=0.5) as serving,
        Caller(f"unix:{serving.socket}") as admin,
        ScriptedNode(admin) as node,
    ):
        await begin(serving, admin, node)
        async with PoolClient(f"unix:{serving.socket}") as connection:
            before = await History(connection).series("cluster", from_unix=time.time() - 120)
    async with (
        pool_server(home=tmp_path / "home", timers_scale=0.5) as serving,
        PoolClient(f"unix:{serving.socket}") as connection,
    ):
        after = await History(connection).series("cluster", from_unix=time.time() - 120)
    assert after.total.used_milli_ms == before.total.used_milli_ms == 1_500_000
    assert after.total.held_milli_ms >= before.total.held_milli_ms
    assert after.total.covered_ms > before.total.covered_ms


async def test_the_command_prints_points_members_and_json(stand: Stand) -> None:
    async def run(*words: str) -> str:
        where = {"GPUPOOL_ENDPOINT": f"unix:{stand.serving.socket}"}
        done = await asyncio.to_thread(CliRunner().invoke, app, ["report", "history", *words], env=where)
        assert done.exit_code == 0, done.output
        return done.stdout

    assert "HELD" in await run()
    assert "b.ipynb" in await run("node", "node1", "--by", "client")
    found = json.loads(await run("user", "ann", "--json", "--from", "5m"))
    assert found["total"]["used_milli_ms"] == 1_500_000

"""What the dashboard asks the Jupyter server, over a real pool."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from gpupool.pool.options import Serving
from gpupool.proto import pool_pb2 as pb

from jupyter_gpupool.server.extension import GpuPoolExtension
from tests.support.jupyter import JupyterInProcess, jupyter_in_process
from tests.support.pool_server import Caller, ScriptedNode, pool_server

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pool() -> AsyncIterator[Serving]:
    """With one node on which ann holds 0.2 and has used a second, and bob holds 0.5."""
    async with (
        pool_server(timers_scale=1.0) as serving,
        Caller(f"unix:{serving.socket}") as admin,
        ScriptedNode(admin) as node,
    ):
        await admin.grant("k1", 200, on_behalf_of="ann", label="a.ipynb")
        await node.heartbeat(device_seconds=1.0, memory_used=[1 << 30], client_connected=True)
        await admin.grant("k2", 500, on_behalf_of="bob", label="b.ipynb")
        yield serving


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(pool: Serving, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[JupyterInProcess]:
    folder = tmp_path_factory.mktemp("jupyter")
    async with jupyter_in_process(folder, endpoint=f"unix:{pool.socket}") as running:
        yield running


@pytest.fixture
def jupyter(server: JupyterInProcess, monkeypatch: pytest.MonkeyPatch) -> JupyterInProcess:
    monkeypatch.setattr(GpuPoolExtension, "is_admin", False, raising=False)
    return server


@pytest.fixture
def admin(jupyter: JupyterInProcess, monkeypatch: pytest.MonkeyPatch) -> JupyterInProcess:
    """The same, and the pool says of the person behind it that she is an administrator."""
    monkeypatch.setattr(GpuPoolExtension, "is_admin", True, raising=False)
    return jupyter


class TestHistory:
    async def test_has_columns_for_a_chart_and_sums_for_a_table(self, jupyter: JupyterInProcess) -> None:
        status, found = await jupyter.json("GET", "gpupool/api/history?view=cluster&by=node")
        assert status == 200
        columns = found["points"]
        assert {len(column) for column in columns.values()} == {len(columns["t"])}
        assert columns["held_milli"][0] is None  # an hour ago nobody looked
        assert any(value for value in columns["held_milli"] if value)
        assert found["total"]["used_hours"] == pytest.approx(1 / 3600)
        assert [member["name"] for member in found["members"]] == ["node1"]
        assert found["step"] == 60

    async def test_is_of_the_time_that_is_asked_for(self, jupyter: JupyterInProcess) -> None:
        since = time.time() - 86_400
        _, found = await jupyter.json("GET", f"gpupool/api/history?from={since}&points=100")
        assert found["step"] == 1200
        assert len(found["points"]["t"]) <= 100
        _, counted_back = await jupyter.json("GET", "gpupool/api/history?from=-86400&points=100")
        assert (counted_back["step"], counted_back["from"]) == (1200, pytest.approx(found["from"], abs=1300))

    async def test_shows_a_user_no_other_user(self, jupyter: JupyterInProcess) -> None:
        _, found = await jupyter.json("GET", "gpupool/api/history?by=user")
        assert [member["name"] for member in found["members"]] == ["ann", "(others)"]
        assert found["admin"] is False
        status, refused = await jupyter.json("GET", "gpupool/api/history?view=user&name=bob")
        assert (status, refused["reason"]) == (403, "forbidden")
        assert "ann may not see what 'bob' used" in refused["message"]
        _, clients = await jupyter.json("GET", "gpupool/api/history?view=client&by=client")
        assert [member["label"] for member in clients["members"]] == ["a.ipynb"]

    async def test_shows_an_administrator_everybody(self, admin: JupyterInProcess) -> None:
        _, found = await admin.json("GET", "gpupool/api/history?by=user")
        assert sorted(member["name"] for member in found["members"]) == ["ann", "bob"]

    @pytest.mark.parametrize(
        ("query", "said"),
        [
            ("view=colour", "'colour' is no view"),
            ("points=many", "points must be a number within 0..2000, 'many' is not"),
            ("from=nan", "from must be a number"),
            ("points=9999", "points must be a number"),
        ],
    )
    async def test_names_what_makes_no_sense(self, jupyter: JupyterInProcess, query: str, said: str) -> None:
        status, refused = await jupyter.json("GET", f"gpupool/api/history?{query}")
        assert status == 400
        assert said in refused["message"]


class TestAdministration:
    async def test_everybody_sees_nodes_and_projects(self, jupyter: JupyterInProcess) -> None:
        status, found = await jupyter.json("GET", "gpupool/api/administration")
        assert (status, found["admin"]) == (200, False)
        assert [(node["name"], node["drained"], node["devices"]) for node in found["nodes"]] == [
            ("node1", False, 2)
        ]
        (project,) = found["projects"]
        assert (project["path"], project["allocated_milli"], project["weight"]) == ("default", 700, 1)

    async def test_only_administrators_change_anything(
        self, jupyter: JupyterInProcess, pool: Serving
    ) -> None:
        for path, body in (
            ("drain", {"node": "node1", "drained": True}),
            ("project", {"path": "default", "weight": 5}),
        ):
            status, refused = await jupyter.json("POST", f"gpupool/api/administration/{path}", body)
            assert (status, refused["reason"]) == (403, "forbidden")
            assert refused["message"] == "ann is no administrator of the GPU pool."
        assert not pool.pool.state.nodes["node1"].drained
        assert not pool.pool.state.projects

    async def test_drains_a_node_and_takes_it_back(self, admin: JupyterInProcess, pool: Serving) -> None:
        body = {"node": "node1", "drained": True, "reason": "new fans"}
        status, node = await admin.json("POST", "gpupool/api/administration/drain", body)
        assert (status, node["drained"], node["drain_reason"]) == (200, True, "new fans")
        assert pool.pool.state.nodes["node1"].drained
        body = {"node": "node1", "drained": False}
        assert (await admin.json("POST", "gpupool/api/administration/drain", body))[0] == 200
        assert not pool.pool.state.nodes["node1"].drained

    async def test_changes_what_is_named_of_a_project(self, admin: JupyterInProcess, pool: Serving) -> None:
        async with Caller(f"unix:{pool.socket}") as caller:
            from gpupool.proto import pool_pb2_grpc

            projects = pool_pb2_grpc.ProjectsStub(caller.channel)  # type: ignore[no-untyped-call]
            await projects.SetProject(
                pb.Project(
                    path="vision",
                    deserved_milli=500,
                    limit_milli=-1,
                    weight=2,
                    min_run_seconds=9,
                    members=["ann"],
                )
            )
        body = {"path": "vision", "limit": 1500, "weight": 3}
        status, project = await admin.json("POST", "gpupool/api/administration/project", body)
        assert status == 200
        assert (project["deserved_milli"], project["limit_milli"], project["weight"]) == (500, 1500, 3)
        record = pool.pool.state.projects["vision"]
        assert (record.limit, record.weight, record.min_run, record.members) == (1500, 3, 9.0, ("ann",))
        _, project = await admin.json(
            "POST", "gpupool/api/administration/project", {"path": "vision", "limit": None}
        )
        assert project["limit_milli"] is None

    @pytest.mark.parametrize(
        ("path", "body", "said"),
        [
            ("drain", {"drained": True}, "node must be a text"),
            ("drain", {"node": "node1", "drained": "yes"}, "drained must be true or false, 'yes' is not"),
            ("drain", {"node": "node1", "drained": True, "reason": "x" * 201}, "201 characters"),
            ("drain", {"node": "elsewhere", "drained": True}, "elsewhere"),
            ("project", {"path": "vision"}, "Nothing is to be changed"),
            ("project", {"path": "vision", "weight": 1.5}, "weight must be a whole number within"),
            ("project", {"path": "vision", "deserved": -1}, "deserved must be a whole number within"),
            ("project", {"path": "nowhere", "weight": 1}, "There is no project 'nowhere'"),
        ],
    )
    async def test_names_what_makes_no_sense(
        self, admin: JupyterInProcess, path: str, body: dict[str, object], said: str
    ) -> None:
        status, refused = await admin.json("POST", f"gpupool/api/administration/{path}", body)
        assert 400 <= status < 500
        assert said in refused["message"]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "history"),
        ("GET", "administration"),
        ("POST", "administration/drain"),
        ("POST", "administration/project"),
    ],
)
async def test_strangers_are_turned_away(jupyter: JupyterInProcess, method: str, path: str) -> None:
    answer = await jupyter.fetch(method, f"gpupool/api/{path}", {}, headers={})
    assert answer.code == 403

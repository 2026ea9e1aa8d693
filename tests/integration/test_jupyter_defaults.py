"""``GET api/defaults``: what Attach asks for when nothing is said, and the user's projects."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from gpupool.proto import pool_pb2

from tests.support.jupyter import JupyterInProcess, jupyter_in_process

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[JupyterInProcess]:
    folder = tmp_path_factory.mktemp("jupyter")
    async with jupyter_in_process(folder, idle_seconds=1200.0, warn_seconds=30.0, default_share="0.25") as it:
        yield it


@pytest_asyncio.fixture(loop_scope="module")
async def jupyter(server: JupyterInProcess) -> AsyncIterator[JupyterInProcess]:
    yield server
    server.pool.reset()


async def test_the_servers_defaults_and_limits(jupyter: JupyterInProcess) -> None:
    status, answer = await jupyter.json("GET", "gpupool/api/defaults")
    assert status == 200
    assert (answer["share"], answer["wait_seconds"], answer["user"]) == ("0.25", 5.0, "ann")
    assert (answer["idle_minutes"], answer["warn_seconds"]) == (20, 30)
    assert answer["admin"] is False
    assert isinstance(answer["version"], str)


async def test_projects_that_are_open_to_the_user_with_their_figures(jupyter: JupyterInProcess) -> None:
    jupyter.pool.projects = pool_pb2.ProjectList(
        projects=[
            pool_pb2.Project(
                path="research",
                deserved_milli=1000,
                limit_milli=1500,
                allocated_milli=900,
                min_run_seconds=-1,
            ),
            pool_pb2.Project(
                path="research/vision",
                deserved_milli=-1,
                limit_milli=-1,
                allocated_milli=400,
                real_deserved_milli=1000,
                open=True,
            ),
        ],
        default_path="research/vision",
    )
    _, answer = await jupyter.json("GET", "gpupool/api/defaults")
    assert answer["project"] == "research/vision"
    assert answer["projects"] == [
        {"path": "research/vision", "deserved": 1000, "limit": 1500, "held": 400, "free": 600}
    ]
    assert answer["error"] is None


async def test_without_the_pool_the_servers_own_defaults_are_still_told(jupyter: JupyterInProcess) -> None:
    jupyter.pool.down = True
    status, answer = await jupyter.json("GET", "gpupool/api/defaults")
    assert (status, answer["share"], answer["projects"]) == (200, "0.25", [])
    assert "does not answer" in answer["error"]


async def test_it_needs_credentials_and_is_no_activity(jupyter: JupyterInProcess) -> None:
    assert (await jupyter.fetch("GET", "gpupool/api/defaults", headers={})).code == 403
    before = jupyter.app.web_app.last_activity()
    assert (await jupyter.fetch("GET", "gpupool/api/defaults")).code == 200
    assert jupyter.app.web_app.last_activity() == before

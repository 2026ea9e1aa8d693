"""A server that cannot ask the pool says which setting is wrong: in its log, to pages and to kernels. A real pool on TCP."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from traitlets import TraitError

from jupyter_gpupool.server.extension import GpuPoolExtension
from tests.support.jupyter import JupyterInProcess, jupyter_in_process
from tests.support.patience import BUSY
from tests.support.pool_server import Caller, ScriptedNode, make_token, pool_server
from tests.support.stand_in import build_stand_in


@dataclass
class Site:
    """A pool with one node and ann's token; `line` is what the server logged about it."""

    address: str
    token_file: Path
    folder: Path
    log: pytest.LogCaptureFixture

    @asynccontextmanager
    async def jupyter(self, **settings: object) -> AsyncIterator[JupyterInProcess]:
        self.log.clear()
        chosen = {"user": "ann", "token_file": str(self.token_file), **settings}
        endpoint = str(chosen.pop("endpoint", self.address))
        folder = self.folder / "jupyter"
        folder.mkdir()
        async with jupyter_in_process(folder, endpoint=endpoint, **chosen) as running:
            log = running.extension.log
            log.setLevel(logging.INFO)
            log.addHandler(self.log.handler)
            assert running.extension._greeting is not None
            await running.extension._greeting
            yield running
            log.removeHandler(self.log.handler)

    @property
    def lines(self) -> list[tuple[str, str]]:
        return [
            (record.levelname, record.getMessage())
            for record in self.log.records
            if record.getMessage().startswith("GPU pool ")
        ]


@pytest.fixture
async def site(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Site]:
    (tmp_path / "native").mkdir()
    monkeypatch.setenv("GPUPOOL_NATIVE_DIR", str(build_stand_in(tmp_path / "native")))
    async with pool_server(listen="127.0.0.1:0", timers_scale=1.0) as serving:
        local = Caller(f"unix:{serving.socket}")
        token_file = tmp_path / "token"
        token_file.touch(mode=0o600)
        token_file.write_text(make_token(serving, "ann", "user"))
        async with ScriptedNode(local):
            yield Site(f"127.0.0.1:{serving.port}", token_file, tmp_path, caplog)
        await local.channel.close()


async def told(running: JupyterInProcess, setting: str, *values: str) -> None:
    """Pages and a kernel that is started all the same learn which setting it is; no route that a page polls fails."""
    status, pool = await running.json("GET", "gpupool/api/pool")
    assert (status, setting in pool["wrong_setting"]) == (200, True), pool
    for value in values:
        assert value in pool["wrong_setting"]
    kernel = await running.start_kernel()
    status, answer = await running.json("GET", "gpupool/api/kernels?samples_since=0")
    assert status == 200
    assert [view["state"] for view in answer["kernels"]] == ["none"]
    status, defaults = await running.json("GET", "gpupool/api/defaults")
    assert (status, defaults["share"]) == (200, "0.2")
    reply = await kernel.run("%%gpu 0.2\nprint('the body ' + 'ran')", 60)
    assert (reply.status, reply.ename) == ("error", "GpuError")
    assert setting in reply.evalue, reply.evalue
    assert "the body ran" not in reply.text


async def attaches_as_ann(running: JupyterInProcess) -> None:
    """Without a setting of the user: her share is hers, for the pool and for pages."""
    async with asyncio.timeout(30 * BUSY):
        # gRPC finds a pool that has come back within some seconds.
        while not (pool := (await running.json("GET", "gpupool/api/pool"))[1])["ok"]:
            await asyncio.sleep(0.2)
        assert (pool["user"], pool["wrong_setting"]) == ("ann", None)
        kernel_id = await running.app.kernel_manager.start_kernel()
        path = f"gpupool/api/kernels/{kernel_id}/attach"
        status, view = await running.json("POST", path, {"share": "0.2", "wait": "1m"})
        assert status == 202, view
        while view["state"] != "attached":
            assert not view["message"], view
            await asyncio.sleep(0.2)
            _, answer = await running.json("GET", "gpupool/api/kernels")
            (view,) = [kernel for kernel in answer["kernels"] if kernel["kernel_id"] == kernel_id]
    _, pool = await running.json("GET", "gpupool/api/pool")
    shares = [share for device in pool["devices"] for share in device["shares"]]
    assert [(share["user"], share["mine"]) for share in shares] == [("ann", True)]
    _, defaults = await running.json("GET", "gpupool/api/defaults")
    assert (defaults["user"], defaults["error"]) == ("ann", None)


async def test_the_log_says_which_pool_as_whom_and_how_many_gpus(site: Site) -> None:
    async with site.jupyter() as running:
        assert site.lines == [("INFO", f"GPU pool {site.address} as ann: 2 GPUs (software)")]
        _, pool = await running.json("GET", "gpupool/api/pool")
        assert (pool["ok"], pool["wrong_setting"]) == (True, None)


async def test_a_token_file_that_is_missing_until_it_is_there(site: Site) -> None:
    missing = site.folder / "nofile"
    async with site.jupyter(token_file=str(missing)) as running:
        ((level, line),) = site.lines
        assert level == "WARNING"
        for part in (str(missing), "c.GpuPoolExtension.token_file"):
            assert part in line
        await told(running, "c.GpuPoolExtension.token_file", str(missing))
        missing.touch(mode=0o600)
        missing.write_text(site.token_file.read_text())
        _, pool = await running.json("GET", "gpupool/api/pool")
        assert (pool["ok"], pool["wrong_setting"], len(pool["devices"])) == (True, None, 2)


async def test_a_user_that_the_token_is_not_for(site: Site) -> None:
    async with site.jupyter(user="anne") as running:
        ((level, line),) = site.lines
        assert level == "WARNING"
        for part in ("'anne'", "c.GpuPoolExtension.user", "ann (role user)"):
            assert part in line
        await told(running, "c.GpuPoolExtension.user", "'anne'")


async def test_the_user_of_the_token_needs_no_setting(site: Site) -> None:
    async with site.jupyter(user="") as running:
        assert site.lines == [("INFO", f"GPU pool {site.address} as ann: 2 GPUs (software)")]
        await attaches_as_ann(running)


async def test_the_user_of_the_token_is_known_once_a_pool_that_was_away_answers(tmp_path: Path) -> None:
    """The server starts without it all the same, and what is asked before says that no pool answers."""
    home = tmp_path / "pool"
    home.mkdir(mode=0o700)
    token_file = tmp_path / "token"
    token_file.touch(mode=0o600)
    async with pool_server(home=home, listen="127.0.0.1:0") as serving:
        token_file.write_text(make_token(serving, "ann", "user"))
        address = f"127.0.0.1:{serving.port}"
    (tmp_path / "jupyter").mkdir()
    async with jupyter_in_process(
        tmp_path / "jupyter", endpoint=address, user="", token_file=str(token_file)
    ) as running:
        _, pool = await running.json("GET", "gpupool/api/pool")
        assert (pool["ok"], pool["user"]) == (False, "")
        await told(running, "c.GpuPoolExtension.pool_endpoint", address)
        async with (
            pool_server(home=home, listen=address) as serving,
            Caller(f"unix:{serving.socket}") as local,
            ScriptedNode(local),
        ):
            await attaches_as_ann(running)


async def test_a_token_of_a_node_is_named(site: Site) -> None:
    async with pool_server(listen="127.0.0.1:0") as serving:
        site.token_file.write_text(make_token(serving, "node1", "node"))
        async with site.jupyter(user="", endpoint=f"127.0.0.1:{serving.port}") as running:
            ((level, line),) = site.lines
            assert level == "WARNING"
            for part in (str(site.token_file), "c.GpuPoolExtension.token_file"):
                assert part in line
            await told(running, "c.GpuPoolExtension.token_file", str(site.token_file))


async def test_a_token_that_the_pool_does_not_know(site: Site) -> None:
    site.token_file.write_text("gpupool_000000000000_" + 64 * "0")
    async with site.jupyter() as running:
        ((level, line),) = site.lines
        assert (level, "c.GpuPoolExtension.token_file" in line) == ("WARNING", True)
        await told(running, "c.GpuPoolExtension.token_file", str(site.token_file))


async def test_an_address_without_a_pool(site: Site) -> None:
    async with site.jupyter(endpoint="127.0.0.1:9") as running:
        ((level, line),) = site.lines
        assert (level, "127.0.0.1:9" in line) == ("WARNING", True)
        await told(running, "c.GpuPoolExtension.pool_endpoint", "127.0.0.1:9")


async def test_a_folder_for_session_files_that_others_may_read(site: Site) -> None:
    shared = site.folder / "shared"
    shared.mkdir(mode=0o755)
    async with site.jupyter(session_dir=str(shared)) as running:
        ((level, line),) = site.lines
        assert (level, "c.GpuPoolExtension.session_dir" in line) == ("WARNING", True)
        _, pool = await running.json("GET", "gpupool/api/pool")
        assert "c.GpuPoolExtension.session_dir" in pool["wrong_setting"]
        kernel_id = await running.app.kernel_manager.start_kernel()
        status, answer = await running.json("GET", "gpupool/api/kernels")
        assert (status, [view["kernel_id"] for view in answer["kernels"]]) == (200, [kernel_id])
        assert "c.GpuPoolExtension.session_dir" in answer["kernels"][0]["message"]
        await asyncio.sleep(0)


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
@pytest.mark.parametrize("name", ["idle_seconds", "warn_seconds", "default_wait_seconds", "return_seconds"])
def test_seconds_that_are_no_number_are_refused_at_the_start(name: str, value: float) -> None:
    with pytest.raises(TraitError, match=rf"{name}.* {value}"):
        GpuPoolExtension(**{name: value})

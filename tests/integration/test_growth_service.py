"""A pool server with a provider: who is told what, who may connect for it, and what is set while it runs."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from gpupool.client.growth import GrowthClient
from gpupool.client.pool import PoolClient
from gpupool.pool.access.listening import ServeError
from gpupool.pool.options import Serving
from gpupool.pool.reporting import state_metrics
from gpupool.proto import pool_pb2 as pb
from gpupool.proto import pool_pb2_grpc

from tests.support.access_table import connect_as
from tests.support.patience import until_late
from tests.support.pool_server import Caller, ScriptedNode, make_token, pool_server

#: An agent that never connects: the test is the node.
_SETTINGS = """[box]
kind = "local"
maximum = 2
idle = "1h"
command = ["/bin/sh", "-c", "exec sleep 600", "agent"]
"""


@contextlib.asynccontextmanager
async def growing(folder: Path, settings: str = _SETTINGS) -> AsyncIterator[tuple[Serving, Caller, Any]]:
    """The server, its admin, and the service."""
    file = folder / "providers.toml"
    file.write_text(settings)
    async with (
        pool_server(home=folder / "home", providers=file, listen="127.0.0.1:0", timers_scale=0.05) as serving,
        Caller(f"unix:{serving.socket}") as admin,
    ):
        service: Any = pool_pb2_grpc.GrowthStub(admin.channel)  # type: ignore[no-untyped-call, unused-ignore]
        yield serving, admin, service


async def jobs(service: Any, count: int) -> list[Any]:
    """The living jobs, when there are so many."""
    deadline = until_late(60)
    while True:
        (box,) = (await service.ListProviders(pb.ListRequest())).providers
        found = [job for job in box.jobs if job.phase != "over"]
        if len(found) == count:
            return found
        assert asyncio.get_running_loop().time() < deadline, found
        await asyncio.sleep(0.05)


async def until_told(holds: Callable[[], bool]) -> None:
    deadline = until_late(60)
    while not holds():
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.02)


async def check(admin: Caller, name: str) -> Any:
    """One check of the health report."""
    report = await admin.call("Health", pb.HealthRequest())
    return next(check for check in report.checks if check.name == name)


async def test_a_request_brings_a_node_and_says_so_and_its_token_is_good_for_it_alone(tmp_path: Path) -> None:
    async with growing(tmp_path) as (serving, admin, service):
        assert list((await admin.call("ListDevices", pb.ListRequest())).lenders) == ["box"]
        asked = admin.request("k1", 200, wait_seconds=60.0)
        while "provider." not in str((await asked.read()).queued):
            pass
        (job,) = await jobs(service, 1)
        token = make_token(serving, "box", "node")
        async with Caller(f"127.0.0.1:{serving.port}", token) as caller:
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await connect_as(caller, pb.NodeHello(node="box-another", instance="i"))
            assert refused.value.code() == grpc.StatusCode.PERMISSION_DENIED
            async with ScriptedNode(caller, name=job.node, devices=1):
                while (event := await asked.read()).WhichOneof("event") == "queued":
                    pass
                assert event.WhichOneof("event") == "granted", event
                await asyncio.sleep(0.5)
                (box,) = (await service.ListProviders(pb.ListRequest())).providers
                # A fifth of its only device is held since it came, but for a moment.
                assert 0 < box.lent_hours < box.borrowed_hours / 4
                assert 0 <= box.idle_hours < box.borrowed_hours
        asked.cancel()
        await service.Scale(pb.ScaleRequest(provider="box", minimum=0, maximum=2, idle_seconds=0.0))
        await jobs(service, 0)


async def test_a_node_that_was_given_back_is_nobodys_worry(tmp_path: Path) -> None:
    """What it served has left closed sessions, which the pool remembers for an hour (here: three minutes)."""
    async with growing(tmp_path) as (serving, admin, service):
        token = make_token(serving, "box", "node")
        asked = asyncio.ensure_future(admin.grant("k1", 200, wait_seconds=60.0))
        (job,) = await jobs(service, 1)
        async with Caller(f"127.0.0.1:{serving.port}", token) as caller:
            async with ScriptedNode(caller, name=job.node, devices=1):
                granted = await asked
                await admin.call("Release", pb.ReleaseLease(lease_id=granted.lease_id, close_session=True))
                await service.Scale(pb.ScaleRequest(provider="box", minimum=0, idle_seconds=0.0))
                await jobs(service, 0)
            await until_told(lambda: serving.pool.state.nodes[job.node].given_back)
            metrics = state_metrics.state_metrics(serving.pool.state, serving.pool.timers, {}, 0.0)
            labelled = {sample.labels.get("node") for family in metrics for sample in family.samples}
            assert job.node not in labelled
            nodes = await check(admin, "nodes")
            assert nodes.status == "ok" and "box lends nodes" in nodes.detail, nodes
            await until_told(lambda: job.node not in serving.pool.state.nodes)
        assert [session.state for session in serving.pool.state.sessions.values()] == ["closed"]
        await service.Scale(pb.ScaleRequest(provider="box", maximum=0))
        for name in ("nodes", "devices"):
            found = await check(admin, name)
            assert found.status == "ok" and "box may lend none" in found.detail, found


async def test_an_engine_that_never_answers_is_named_and_its_limits_are_set_all_the_same(
    tmp_path: Path,
) -> None:
    """An API server that takes connections and says nothing."""

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            await reader.read()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    config = tmp_path / "config"
    config.write_text(
        json.dumps(
            {
                "current-context": "c",
                "clusters": [{"name": "c", "cluster": {"server": url, "insecure-skip-tls-verify": True}}],
                "users": [{"name": "u", "user": {"token": "x"}}],
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "n"}}],
            }
        )
    )
    kube = f"kind = 'kubernetes'\nimage = 'x'\npool = '1.2.3.4:7460'\nkubeconfig = '{config}'\n"
    async with server, growing(tmp_path, f"[kube]\n{kube}[more]\n{kube}") as (serving, admin, _):
        async with PoolClient(f"unix:{serving.socket}") as client:
            found = await GrowthClient(client).providers()
            assert [one.name for one in found] == ["kube", "more"]
            assert all("answer" in one.problem for one in found), found
            assert (await GrowthClient(client).scale("kube", 0, 0, None)).maximum == 0
        deadline = until_late(60)
        while (found := await check(admin, "providers")).status != "warn":
            assert asyncio.get_running_loop().time() < deadline, found
            await asyncio.sleep(0.2)
        assert "kube: " in found.detail


async def test_who_asks_for_more_than_promised_nodes_turn_out_to_have_is_refused(tmp_path: Path) -> None:
    async with growing(tmp_path, f"{_SETTINGS}device_memory_mib = 16384\n") as (serving, admin, service):
        asked = admin.request("k1", 0, mib=12288, wait_seconds=600.0)
        (job,) = await jobs(service, 1)
        async with (
            Caller(f"127.0.0.1:{serving.port}", make_token(serving, "box", "node")) as caller,
            ScriptedNode(caller, name=job.node, devices=1),
        ):
            while (event := await asked.read()).WhichOneof("event") == "queued":
                pass
            assert event.WhichOneof("event") == "refused", event
            assert len(await jobs(service, 1)) == 1
        await service.Scale(pb.ScaleRequest(provider="box", maximum=0, idle_seconds=0.0))
        await jobs(service, 0)


async def test_what_is_set_outlives_the_server(tmp_path: Path) -> None:
    async with growing(tmp_path) as (_, _, service):
        await service.Scale(pb.ScaleRequest(provider="box", minimum=1, idle_seconds=7.0))
        (before,) = await jobs(service, 1)
    async with growing(tmp_path) as (_, _, service):
        (after,) = await jobs(service, 1)
        assert after.id == before.id
        (box,) = (await service.ListProviders(pb.ListRequest())).providers
        assert (box.minimum, box.maximum, box.idle_seconds) == (1, 2, 7.0)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await service.Scale(pb.ScaleRequest(provider="box", minimum=5))
        assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        await service.Scale(pb.ScaleRequest(provider="box", minimum=0, maximum=0, idle_seconds=0.0))
        await jobs(service, 0)


async def test_nodes_of_a_former_start_with_providers_are_let_in_and_emptied_without_them(
    tmp_path: Path,
) -> None:
    async with growing(tmp_path) as (serving, _, service):
        await service.Scale(pb.ScaleRequest(provider="box", minimum=1))
        (job,) = await jobs(service, 1)
        token = make_token(serving, "box", "node")
        async with (
            Caller(f"127.0.0.1:{serving.port}", token) as caller,
            ScriptedNode(caller, name=job.node, devices=1),
        ):
            pass
    async with (
        pool_server(home=tmp_path / "home", listen="127.0.0.1:0", timers_scale=0.05) as serving,
        Caller(f"127.0.0.1:{serving.port}", token) as caller,
        Caller(f"unix:{serving.socket}") as admin,
        ScriptedNode(caller, name=job.node, devices=1),
    ):
        asked: Any = pool_pb2_grpc.AdministrationStub(admin.channel)  # type: ignore[no-untyped-call, unused-ignore]
        deadline, let_in = until_late(60), False
        while True:
            (node,) = (await asked.ListNodes(pb.ListRequest())).nodes
            let_in |= node.connected
            if node.drained and let_in:
                break
            assert asyncio.get_running_loop().time() < deadline, node
            await asyncio.sleep(0.05)
        assert "do not name its provider box" in node.drain_reason
    async with growing(tmp_path) as (_, _, service):
        await service.Scale(pb.ScaleRequest(provider="box", minimum=0, maximum=0, idle_seconds=0.0))
        await jobs(service, 0)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("", "names no provider"),
        ("[", "is no TOML"),
        ("[Box]", "is no provider"),
        ("[box]\nkind = 'nomad'", "must be one of local, slurm"),
        ("[box]\nkind = 'local'\nmaximun = 3", "is not known"),
        ("[box]\nkind = 'local'\nmaximum = '3'", "a whole number"),
        ("[box]\nkind = 'local'\nminimum = 4\nmaximum = 3", "minimum <= maximum"),
        ("[box]\nkind = 'local'\nidle = 'soon'", "is no time"),
        ("[box]\nkind = 'local'\ndrain_before = '2s'", "at least 3 s"),
        ("[box]\nkind = 'local'\ntime_limit = '15m'", "longer than drain_before"),
        ("[box]\nkind = 'kubernetes'\nimage = 'x'", "pool is missing"),
        ("[box]\nkind = 'kubernetes'\npool = 'x:1'", "image is missing"),
        ("[box]\nkind = 'kubernetes'\npool = 'x:1'\nimage = 'x'\nnode_selector = ['a']", "a table of texts"),
        (
            "[box]\nkind = 'kubernetes'\npool = 'x:1'\nimage = 'x'\ntolerations = ['a:b']",
            "provider box: tolerations",
        ),
        (
            "[box]\nkind = 'kubernetes'\npool = 'x:1'\nimage = 'x'\nenvironment = {A = \"x\\ny\"}",
            "line break",
        ),
        ("[box]\nkind = 'slurm'\npool = \"a\\nb\"", "line break"),
        ("[box]\nkind = 'slurm'\npool = 'h:1'\noptions = ['--clusters=big']", "'--clusters=big'"),
    ],
)
async def test_a_file_that_is_wrong_says_where(tmp_path: Path, settings: str, said: str) -> None:
    with pytest.raises(ServeError, match=said):
        async with growing(tmp_path, settings):
            pass
    assert not list(tmp_path.rglob("*.sock"))

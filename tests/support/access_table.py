"""Every RPC of the contract: how it is called, and what comes of it for every kind of caller."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import grpc
import pytest
from gpupool.pool.options import Serving
from gpupool.proto import pool_pb2 as pb
from gpupool.proto import pool_pb2_grpc

from tests.support.pool_server import Caller, ScriptedNode, make_token, pool_server, profile

OK, DENIED, UNKNOWN, NO_HUB = "ok", "PERMISSION_DENIED", "UNAUTHENTICATED", "FAILED_PRECONDITION"


@dataclass
class Stage:
    serving: Serving
    callers: dict[str, Caller]
    lease_id: str
    session_id: str


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    """A lease of ann's, and callers: the local admin, a remote admin, ann, bob, two nodes, and nobody."""
    async with pool_server(listen="127.0.0.1:0", timers_scale=1.0) as serving:
        tcp = f"127.0.0.1:{serving.port}"
        callers = {
            "local": Caller(f"unix:{serving.socket}"),
            "admin": Caller(tcp, make_token(serving, "root", "admin")),
            "owner": Caller(tcp, make_token(serving, "ann", "user")),
            "other": Caller(tcp, make_token(serving, "bob", "user")),
            "node": Caller(tcp, make_token(serving, "node2", "node")),
            "none": Caller(tcp),
        }
        async with ScriptedNode(callers["local"]):
            grant = await callers["local"].grant(
                "k1", 200, on_behalf_of="ann", label="secret.ipynb", holder="h"
            )
            yield Stage(serving, callers, grant.lease_id, grant.session_id)
        for caller in callers.values():
            await caller.channel.close()


async def request(stage: Stage, caller: Caller) -> None:
    await caller.ask("new", 100)


async def request_for_ann(stage: Stage, caller: Caller) -> None:
    await caller.ask("new", 100, on_behalf_of="ann")


async def resume_for_ann(stage: Stage, caller: Caller) -> None:
    event = await caller.ask("new", 100, session_id=stage.session_id)
    if event.refused.reason == "unknown-session":
        raise PermissionError  # another's session is as good as none


async def connect_as(caller: Caller, hello: pb.NodeHello) -> None:
    """Raises what the pool answers to `hello`; a pool that is pleased with it answers the first heartbeat."""
    *several, last = (0.5, 5.0, 30.0)
    for patience in several:
        try:
            return await connect_once(caller, hello, patience)
        except grpc.aio.AioRpcError as error:
            # A refusal comes by itself. Writing into it replaces its status by INTERNAL, here at the client.
            if error.code() is not grpc.StatusCode.INTERNAL:
                raise
    await connect_once(caller, hello, last)


async def connect_once(caller: Caller, hello: pb.NodeHello, patience: float) -> None:
    """Waits `patience` seconds for a refusal before the heartbeat goes."""
    call = caller.nodes.Connect(metadata=caller.metadata)
    await call.write(pb.FromNode(hello=hello))
    answer = asyncio.ensure_future(call.read())
    await asyncio.wait({answer}, timeout=patience)
    try:
        if not answer.done():
            # A call that has just been refused cannot be written to; its answer says why.
            with contextlib.suppress(asyncio.InvalidStateError):
                await call.write(pb.FromNode(heartbeat=pb.Heartbeat(number=1)))
        assert (await answer).HasField("heartbeat")
    finally:
        answer.cancel()
        call.cancel()


async def connect(stage: Stage, caller: Caller) -> None:
    device = pb.NodeDevice(ordinal=0, profile=profile(0))
    await connect_as(caller, pb.NodeHello(node="node2", instance="i", devices=[device]))


async def connect_as_another_node(stage: Stage, caller: Caller) -> None:
    await connect_as(caller, pb.NodeHello(node="node1", instance="i"))


async def back_up(stage: Stage, caller: Caller) -> None:
    stub: Any = pool_pb2_grpc.MaintenanceStub
    chunks = [c async for c in stub(caller.channel).Backup(pb.BackupRequest(), metadata=caller.metadata)]
    assert chunks[-1].sha256


async def renew(stage: Stage, caller: Caller) -> None:
    (status,) = (await caller.call("Renew", pb.RenewLeases(lease_ids=[stage.lease_id]))).leases
    if status.state == "unknown":
        raise PermissionError


def unary(method: str, make: Any) -> Any:
    async def act(stage: Stage, caller: Caller) -> None:
        await caller.call(method, make(stage))

    return act


def of_service(service: str, method: str, make: Any) -> Any:
    """A unary call of another service than `Pool`."""

    async def act(_stage: Stage, caller: Caller) -> None:
        stub = getattr(pool_pb2_grpc, f"{service}Stub")(caller.channel)
        await getattr(stub, method)(make(), metadata=caller.metadata, timeout=10)

    return act


async def explain_anns_lease(stage: Stage, caller: Caller) -> None:
    stub: Any = pool_pb2_grpc.ExplanationsStub(caller.channel)
    request = pb.ExplainRequest(lease_id=stage.lease_id)
    await stub.Explain(request, metadata=caller.metadata, timeout=10)


def series(view: str = "cluster", **more: str) -> Any:
    def make() -> pb.SeriesRequest:
        return pb.SeriesRequest(view=view, from_unix=time.time() - 60, **more)

    return of_service("History", "Series", make)


def report(method: str, make: Any) -> Any:
    async def act(_stage: Stage, caller: Caller) -> None:
        stub: Any = pool_pb2_grpc.ReportsStub(caller.channel)
        answer = getattr(stub, method)(make(), metadata=caller.metadata, timeout=10)
        if method != "Audit":
            await answer
            return
        async for _line in answer:
            pass

    return act


FOR_ADMINS = (OK, OK, DENIED, DENIED, DENIED, UNKNOWN)


def administration(method: str, make: Any) -> Any:
    async def act(_stage: Stage, caller: Caller) -> None:
        stub: Any = pool_pb2_grpc.AdministrationStub(caller.channel)
        answer = getattr(stub, method)(make(), metadata=caller.metadata, timeout=10)
        if method == "NodeLogs":
            assert [line.text async for line in answer] == ["all \\x1b[2J well"]
        else:
            await answer

    return act


def node1(message: Any) -> Any:
    return lambda: message(node="node1")


#: RPC → how it is called, and what comes of it for: local, admin, owner, other, node, none.
TABLE: dict[str, list[tuple[str, Any, tuple[str, ...]]]] = {
    "Pool/Request": [
        ("for oneself", request, (OK, OK, OK, OK, DENIED, UNKNOWN)),
        ("for ann", request_for_ann, (OK, OK, OK, DENIED, DENIED, UNKNOWN)),
        ("ann's session", resume_for_ann, (OK, OK, OK, DENIED, DENIED, UNKNOWN)),
    ],
    "Pool/Renew": [("ann's lease", renew, (OK, OK, OK, DENIED, DENIED, UNKNOWN))],
    "Pool/Release": [
        (
            "ann's lease",
            unary("Release", lambda s: pb.ReleaseLease(lease_id=s.lease_id)),
            (OK, OK, OK, DENIED, DENIED, UNKNOWN),
        )
    ],
    "Pool/Resize": [
        (
            "ann's lease",
            unary("Resize", lambda s: pb.ResizeLease(lease_id=s.lease_id, milli=300)),
            (OK, OK, OK, DENIED, DENIED, UNKNOWN),
        )
    ],
    "Pool/CloseSession": [
        (
            "ann's session",
            unary("CloseSession", lambda s: pb.CloseSessionRequest(session_id=s.session_id)),
            (OK, OK, OK, DENIED, DENIED, UNKNOWN),
        )
    ],
    "Pool/GetUsage": [
        (
            "ann's session",
            unary("GetUsage", lambda s: pb.UsageRequest(session_id=s.session_id)),
            (OK, OK, OK, DENIED, DENIED, UNKNOWN),
        )
    ],
    **{
        f"Pool/{name}": [("all", unary(name, lambda _s: pb.ListRequest()), (OK, OK, OK, OK, DENIED, UNKNOWN))]
        for name in ("ListDevices", "ListLeases", "ListSessions", "ListQueue")
    },
    "Pool/Health": [
        ("all", unary("Health", lambda _s: pb.HealthRequest()), (OK, OK, OK, OK, OK, UNKNOWN)),
    ],
    **{
        f"Projects/{name}": [("all", of_service("Projects", name, make), outcomes)]
        for name, make, outcomes in (
            ("ListProjects", pb.ListRequest, (OK, OK, OK, OK, DENIED, UNKNOWN)),
            ("ListLimits", pb.ListRequest, (OK, OK, OK, OK, DENIED, UNKNOWN)),
            ("SetProject", lambda: pb.Project(path="a", weight=1), FOR_ADMINS),
            ("ChangeProject", lambda: pb.ProjectChange(path="a", weight=2), FOR_ADMINS),
            ("RemoveProject", lambda: pb.RemoveProjectRequest(path="a"), FOR_ADMINS),
            ("SetLimit", lambda: pb.Limit(user="ann", milli=1000), FOR_ADMINS),
            ("ChangeLimit", lambda: pb.LimitChange(user="ann", shares=2), FOR_ADMINS),
            ("RemoveLimit", lambda: pb.RemoveLimitRequest(user="ann"), FOR_ADMINS),
        )
    },
    "Reports/Report": [
        ("all", report("Report", lambda: pb.ReportRequest(to_unix=1.0)), (OK, OK, OK, OK, DENIED, UNKNOWN)),
        (
            "ann's",
            report("Report", lambda: pb.ReportRequest(to_unix=1.0, user="ann")),
            (OK, OK, OK, DENIED, DENIED, UNKNOWN),
        ),
    ],
    "History/Series": [
        ("all", series(), (OK, OK, OK, OK, DENIED, UNKNOWN)),
        ("ann's", series(view="user", name="ann"), (OK, OK, OK, DENIED, DENIED, UNKNOWN)),
        ("as ann", series(viewer="ann"), (OK, OK, OK, DENIED, DENIED, UNKNOWN)),
    ],
    "Reports/Stats": [("all", report("Stats", pb.StatsRequest), (OK, OK, OK, OK, DENIED, UNKNOWN))],
    "Reports/Audit": [
        ("all", report("Audit", pb.AuditRequest), (OK, OK, OK, OK, DENIED, UNKNOWN)),
        (
            "ann's",
            report("Audit", lambda: pb.AuditRequest(user="ann")),
            (OK, OK, OK, DENIED, DENIED, UNKNOWN),
        ),
    ],
    "Explanations/Explain": [
        (
            "a wish of one's own",
            of_service("Explanations", "Explain", lambda: pb.ExplainRequest(wish=pb.RequestLease(milli=100))),
            (OK, OK, OK, OK, DENIED, UNKNOWN),
        ),
        ("ann's lease", explain_anns_lease, (OK, OK, OK, DENIED, DENIED, UNKNOWN)),
    ],
    "Administration/ListNodes": [
        ("all", administration("ListNodes", pb.ListRequest), (OK, OK, OK, OK, DENIED, UNKNOWN))
    ],
    "Administration/OpenMeter": [
        ("node1", administration("OpenMeter", node1(pb.OpenMeterRequest)), (OK, OK, OK, OK, DENIED, UNKNOWN))
    ],
    "Administration/OpenPorts": [
        ("node1", administration("OpenPorts", node1(pb.OpenPortsRequest)), (OK, OK, OK, OK, DENIED, UNKNOWN))
    ],
    "Administration/Drain": [
        ("node1", administration("Drain", node1(pb.DrainRequest)), (OK, OK, DENIED, DENIED, DENIED, UNKNOWN))
    ],
    "Administration/NodeLogs": [
        (
            "node1",
            administration("NodeLogs", node1(pb.NodeLogsRequest)),
            (OK, OK, DENIED, DENIED, DENIED, UNKNOWN),
        )
    ],
    "Growth/ListProviders": [
        (
            "all",
            of_service("Growth", "ListProviders", pb.ListRequest),
            (OK, OK, DENIED, DENIED, DENIED, UNKNOWN),
        )
    ],
    # This pool has no provider: see test_growth_service.py for one that has.
    "Growth/Scale": [
        (
            "one that is not there",
            of_service("Growth", "Scale", lambda: pb.ScaleRequest(provider="slurm", minimum=1)),
            ("NOT_FOUND", "NOT_FOUND", DENIED, DENIED, DENIED, UNKNOWN),
        )
    ],
    "Nodes/Connect": [
        ("as node2", connect, (OK, OK, DENIED, DENIED, OK, UNKNOWN)),
        ("as node1", connect_as_another_node, (OK, OK, DENIED, DENIED, DENIED, UNKNOWN)),
    ],
    "Servers/Describe": [
        ("all", of_service("Servers", "Describe", pb.ListRequest), (OK, OK, OK, OK, OK, UNKNOWN))
    ],
    "Identities/WhoAmI": [
        ("all", of_service("Identities", "WhoAmI", pb.ListRequest), (OK, OK, OK, OK, OK, UNKNOWN))
    ],
    "Identities/ListTokens": [
        (
            "all",
            of_service("Identities", "ListTokens", pb.ListRequest),
            (OK, OK, DENIED, DENIED, DENIED, UNKNOWN),
        )
    ],
    "Identities/RevokeToken": [
        (
            "none",
            of_service("Identities", "RevokeToken", pb.RevokeTokenRequest),
            (OK, OK, DENIED, DENIED, DENIED, UNKNOWN),
        )
    ],
    # Without a JupyterHub there is nothing to exchange; with one, see test_pool_hub.py.
    "Identities/Exchange": [
        ("a token of the pool", of_service("Identities", "Exchange", pb.ExchangeRequest), (NO_HUB,) * 6)
    ],
    "Maintenance/Backup": [("all", back_up, (OK, OK, DENIED, DENIED, DENIED, UNKNOWN))],
}
WHO = ("local", "admin", "owner", "other", "node", "none")

"""Who may call what: every RPC of the contract against every kind of caller. An RPC without a row fails here."""

from __future__ import annotations

import asyncio

import grpc
import pytest
from gpupool.client import agreement, endpoint
from gpupool.client.errors import PoolRefusedError
from gpupool.client.pool import PoolClient
from gpupool.node.agent import Agent
from gpupool.node.agent_settings import AgentError, AgentSettings
from gpupool.node.health import DeviceHealth
from gpupool.node.health_watch import HealthWatch
from gpupool.pool.access import tokens
from gpupool.pool.access.auth import ALLOWED_ROLES
from gpupool.pool.api import administration_service
from gpupool.proto import pool_pb2 as pb
from gpupool.proto import pool_pb2_grpc

from tests.support.access_table import DENIED, OK, TABLE, WHO, stage
from tests.support.pool_server import Caller, ScriptedNode, make_token

__all__ = ["stage"]  # the fixture


def contract() -> set[str]:
    return {
        f"{service.name}/{method.name}"
        for service in pb.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }


def test_every_rpc_of_the_contract_has_a_row_here_and_in_the_server():
    assert contract() == set(TABLE)
    assert contract() <= {method.removeprefix("/gpupool.v1.") for method in ALLOWED_ROLES}


CASES = [
    pytest.param(rpc, how, act, who, expected, id=f"{rpc}: {how} by {who} is {expected}")
    for rpc, rows in TABLE.items()
    for how, act, outcomes in rows
    for who, expected in zip(WHO, outcomes, strict=True)
]


@pytest.mark.parametrize(("rpc", "how", "act", "who", "expected"), CASES)
async def test_access(stage, rpc, how, act, who, expected):
    try:
        await act(stage, stage.callers[who])
        outcome = OK
    except PermissionError:
        outcome = DENIED
    except grpc.aio.AioRpcError as error:
        outcome = error.code().name
    assert outcome == expected


async def test_a_users_lists_hide_what_is_other_users_business(stage):
    for who, label in (("owner", "secret.ipynb"), ("other", ""), ("admin", "secret.ipynb")):
        caller = stage.callers[who]
        (share,) = (await caller.devices())[0].shares
        assert (share.user, share.label) == ("ann", label)
        (lease,) = (await caller.call("ListLeases", pb.LeaseListRequest())).leases
        assert lease.label == label
        sessions = (await caller.call("ListSessions", pb.ListRequest())).sessions
        assert len(sessions) == (0 if who == "other" else 1)


async def test_a_user_has_ports_of_a_node_opened_so_often_only(stage):
    """They are taken from workers meanwhile."""
    asked = pb.OpenPortsRequest(node="node1")

    async def opened(who: str) -> None:
        stub = pool_pb2_grpc.AdministrationStub(stage.callers[who].channel)
        await stub.OpenPorts(asked, metadata=stage.callers[who].metadata, timeout=10)

    for _ in range(administration_service.PARTS_AT_ONCE):
        await opened("other")
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await opened("other")
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "has tried the ports of node node1 too often; try again in" in refused.value.details()
    await opened("owner")
    for _ in range(administration_service.PARTS_AT_ONCE + 1):
        await opened("admin")


async def test_the_same_key_of_another_user_does_not_lead_to_anns_lease(stage):
    grant = await stage.callers["other"].grant("k1", 100)
    assert grant.lease_id != stage.lease_id


async def test_a_caller_of_another_protocol_version_is_told_both(stage, monkeypatch):
    async with PoolClient(f"unix:{stage.serving.socket}") as pool:
        assert await pool.devices()
    monkeypatch.setattr(endpoint, "PROTOCOL_VERSION", 7)
    async with PoolClient(f"unix:{stage.serving.socket}") as pool:
        with pytest.raises(PoolRefusedError) as refused:
            await pool.devices()
    assert refused.value.reason == "other-version"
    assert f"version {agreement.PROTOCOL_VERSION} of the protocol" in str(refused.value)
    assert "the caller version 7" in str(refused.value)


async def test_an_agent_of_another_protocol_version_ends_with_the_reason_unless_it_has_served(
    stage, monkeypatch
):
    monkeypatch.setattr(endpoint, "PROTOCOL_VERSION", 7)
    settings = AgentSettings(node="node9", endpoint=f"unix:{stage.serving.socket}")
    agent = Agent(settings, None, HealthWatch(DeviceHealth()))

    async def serve() -> None:
        # A connection may end before the refusal has been read: it tries again, as always.
        for _ in range(20):
            assert not await agent._pool._serve_once(settings.endpoint)

    with pytest.raises(AgentError, match="the caller version 7"):
        await serve()
    agent._pool._served = True
    assert not await agent._pool._serve_once(settings.endpoint)


class TestTokens:
    @pytest.mark.parametrize(
        "change",
        [
            lambda t: t[:-1] + ("0" if t[-1] != "0" else "1"),
            lambda t: t[:-1],
            lambda t: t + "0",
            lambda t: t.upper(),
            lambda t: "gpupool_000000000000_" + t.rpartition("_")[2],
            lambda _t: "x" * 10_000,
        ],
        ids=["another secret", "shorter", "longer", "upper case", "another id", "very long"],
    )
    async def test_a_changed_token_is_nobody(self, stage, change):
        token = change(make_token(stage.serving, "ann", "user"))
        async with Caller(f"127.0.0.1:{stage.serving.port}", token) as caller:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await caller.devices()
        assert caught.value.code() in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.RESOURCE_EXHAUSTED)

    @pytest.mark.parametrize("header", ["Basic abc", "Bearer", "", "bearer  "])
    async def test_another_header_is_nobody(self, stage, header):
        caller = stage.callers["none"]
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await caller.pool.ListDevices(pb.ListRequest(), metadata=(("authorization", header),), timeout=5)
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
        assert dict(caught.value.trailing_metadata())["gpupool-reason"] == "forbidden"

    async def test_a_revoked_token_ends_at_once(self, stage):
        ledger = stage.serving.pool.ledger
        new = tokens.create(ledger, "ann", "user")
        async with Caller(f"127.0.0.1:{stage.serving.port}", new.secret) as caller:
            await caller.devices()
            assert tokens.revoke(ledger, new.info.id)
            assert not tokens.revoke(ledger, new.info.id)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await caller.devices()
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED

    async def test_a_revoked_nodes_stream_ends_at_its_next_heartbeat(self, stage):
        ledger = stage.serving.pool.ledger
        new = tokens.create(ledger, "node3", "node")
        async with Caller(f"127.0.0.1:{stage.serving.port}", new.secret) as caller:
            node = await ScriptedNode(caller, "node3").connect()
            await node.heartbeat()
            assert tokens.revoke(ledger, new.info.id)
            with pytest.raises((grpc.aio.AioRpcError, ConnectionError)):
                await node.heartbeat()
            assert await node.ended() is grpc.StatusCode.UNAUTHENTICATED
            assert stage.serving.pool.state.nodes["node3"].connection is None
            await node.disconnect()

    async def test_a_revoked_caller_in_the_queue_is_not_granted_a_share(self, stage):
        pool = stage.serving.pool
        new = tokens.create(pool.ledger, "eve", "user")
        async with Caller(f"127.0.0.1:{stage.serving.port}", new.secret) as caller:
            first = await stage.callers["local"].grant("first", 1000, count=0)
            second = await caller.ask("second", 900)
            assert second.refused.reason == "full"
            stream = caller.request("third", 900, wait_seconds=-1)
            assert (await stream.read()).WhichOneof("event") == "queued"
            assert tokens.revoke(pool.ledger, new.info.id)
            await stage.callers["local"].call("Release", pb.ReleaseLease(lease_id=first.lease_id))
            assert await stream.code() is grpc.StatusCode.UNAUTHENTICATED
        async with asyncio.timeout(10):
            while any(lease.user == "eve" and lease.holds for lease in pool.state.leases.values()):
                await asyncio.sleep(0.05)

    async def test_a_ledger_that_cannot_be_read_ends_no_stream(self, stage):
        new = tokens.create(stage.serving.pool.ledger, "node3", "node")
        async with (
            Caller(f"127.0.0.1:{stage.serving.port}", new.secret) as caller,
            ScriptedNode(caller, "node3") as node,
        ):
            broken = stage.serving.pool.ledger.engine
            with broken.begin() as connection:
                connection.exec_driver_sql("ALTER TABLE tokens RENAME TO away")
            await node.heartbeat()

    async def test_and_callers_who_were_known_before_renew_their_leases(self, stage):
        ledger = stage.serving.pool.ledger
        known, unknown = tokens.create(ledger, "ann", "user"), tokens.create(ledger, "ann", "user")
        address = f"127.0.0.1:{stage.serving.port}"
        async with Caller(address, known.secret) as caller, Caller(address, unknown.secret) as other:
            grant = await caller.grant("mine", 100)
            with ledger.engine.begin() as connection:
                connection.exec_driver_sql("ALTER TABLE tokens RENAME TO away")
            renewed = await caller.call("Renew", pb.RenewLeases(lease_ids=[grant.lease_id]))
            assert [lease.state for lease in renewed.leases] == ["attached"]
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await other.devices()
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        assert dict(caught.value.trailing_metadata())["gpupool-reason"] == "ledger"

    async def test_the_secret_is_stored_nowhere(self, stage):
        secret = make_token(stage.serving, "ann", "user").rpartition("_")[2]
        for path in stage.serving.socket.parent.iterdir():
            if path.is_file():
                assert secret.encode() not in path.read_bytes()

    @pytest.mark.parametrize(
        ("subject", "role"), [("", "user"), ("a b", "user"), ("x" * 129, "user"), ("ann", "king")]
    )
    async def test_names_and_roles_are_checked(self, stage, subject, role):
        with pytest.raises(ValueError):
            tokens.create(stage.serving.pool.ledger, subject, role)

    async def test_the_list_shows_all_and_no_secret(self, stage):
        listed = tokens.list_tokens(stage.serving.pool.ledger)
        assert [(t.subject, t.role) for t in listed] == [
            ("root", "admin"), ("ann", "user"), ("bob", "user"), ("node2", "node"),
        ]  # fmt: skip

"""`Explain` over real gRPC: of a request that waits, of a lease, and of a request that is not made; and who may look."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

import grpc
import pytest
from gpupool.pool.options import Serving
from gpupool.proto import pool_pb2 as pb
from gpupool.proto import pool_pb2_grpc
from gpupool.proto.sentences import from_message

from tests.support.pool_server import Caller, ScriptedNode, make_token, pool_server


@dataclass
class Stand:
    serving: Serving
    caller: Caller


@pytest.fixture
async def stand() -> AsyncIterator[Stand]:
    async with (
        pool_server(timers_scale=1.0, listen="127.0.0.1:0", quotas={"small": 300}) as serving,
        Caller(f"unix:{serving.socket}") as caller,
        ScriptedNode(caller),
    ):
        yield Stand(serving, caller)


async def explain(stand: Stand, token: str = "", **about: object) -> pb.ExplainAnswer:
    address = f"127.0.0.1:{stand.serving.port}" if token else f"unix:{stand.serving.socket}"
    metadata = [("authorization", f"Bearer {token}")] if token else []
    async with grpc.aio.insecure_channel(address) as channel:
        stub = pool_pb2_grpc.ExplanationsStub(channel)
        return await stub.Explain(pb.ExplainRequest(**about), metadata=metadata)


async def test_a_waiting_request_says_why_with_numbers_and_what_would_be_granted(stand):
    await stand.caller.grant("k1", 700)
    await stand.caller.grant("k2", 1000)
    stream = stand.caller.request("k3", 500, wait_seconds=-1)
    queued = (await stream.read()).queued
    (entry,) = (await stand.caller.call("ListQueue", pb.ListRequest())).entries
    answer = await explain(stand, request_id=entry.id)
    assert not answer.granted
    assert answer.explanation == queued.explanation == entry.explanation
    said = answer.explanation
    assert (said.reason, said.place, said.project) == ("full", 1, "default")
    assert said.said == queued.said
    assert (said.facts["asked_milli"], said.facts["free_milli"]) == ("500", "300")
    smaller = next(help for help in said.helps if help.action == "smaller")
    assert smaller.request.milli == 300
    released = next(help for help in said.helps if help.action == "release")
    assert "releasing 0.70 of your own" in str(from_message(released.said))
    stream.cancel()
    assert (await stand.caller.grant("k4", 300)).lease_id


async def test_a_refusal_carries_its_explanation(stand):
    await stand.caller.grant("k1", 1000, count=2)
    event = await stand.caller.request("k2", 500, wait_seconds=0).read()
    assert event.refused.reason == event.refused.details.reason
    assert event.refused.details.said.code == "clauses"
    assert event.refused.details.facts["free_milli"] == "0"


async def test_a_wish_is_answered_and_nothing_changes(stand):
    would = await explain(stand, wish=pb.RequestLease(milli=400, count=2, nodes="auto"))
    assert would.granted
    assert [(share.device_id, share.share.milli) for share in would.shares] == [
        ("node1/0", 400),
        ("node1/1", 400),
    ]
    refused = await explain(stand, wish=pb.RequestLease(mib=999_999))
    assert not refused.granted
    assert refused.explanation.reason == "bad-share"
    assert "999999 MiB is asked" in str(from_message(refused.explanation.said))
    assert [device.free_milli for device in await stand.caller.devices()] == [1000, 1000]
    assert not (await stand.caller.call("ListLeases", pb.LeaseListRequest())).leases
    assert not (await stand.caller.call("ListQueue", pb.ListRequest())).entries


async def test_a_lease_says_what_its_holder_may_expect(stand):
    grant = await stand.caller.grant("k1", 400)
    answer = await explain(stand, lease_id=grant.lease_id)
    assert answer.granted
    assert [share.device_id for share in answer.shares] == ["node1/0"]
    said = str(from_message(answer.explanation.said))
    assert "holds 0.40 (3174 MiB) of node1/0 in project default" in said
    assert "it is not taken back for others" in said


async def test_what_is_anothers_is_not_explained(stand):
    grant = await stand.caller.grant("k1", 400, on_behalf_of="ann")
    token = make_token(stand.serving, "bob", "user")
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await explain(stand, token, lease_id=grant.lease_id)
    assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await explain(stand, token, wish=pb.RequestLease(milli=100, on_behalf_of="ann"))
    assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
    assert (await explain(stand, token, wish=pb.RequestLease(milli=100))).granted


async def test_what_is_not_known_is_an_error_that_names_it(stand):
    for about in ({"request_id": "root\nnone"}, {"lease_id": "l-none"}):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await explain(stand, **about)
        assert refused.value.code() is grpc.StatusCode.NOT_FOUND
        assert "none" in (refused.value.details() or "")
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await explain(stand)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT

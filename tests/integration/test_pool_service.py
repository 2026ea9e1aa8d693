"""The pool server over real gRPC on a Unix socket, with a node that the test plays."""

from __future__ import annotations

import asyncio
import stat
import urllib.request
from collections.abc import AsyncIterator
from dataclasses import dataclass

import grpc
import pytest
from gpupool.pool.access.listening import ServeError
from gpupool.pool.api import pool_service as service
from gpupool.pool.api import refusals
from gpupool.pool.lifecycle import shell
from gpupool.pool.options import ServeOptions, Serving
from gpupool.pool.server import serve
from gpupool.proto import pool_pb2 as pb
from gpupool.proto.sentences import from_message

from tests.support.pool_server import Caller, ScriptedNode, make_token, pool_server, profile


@dataclass
class Stand:
    serving: Serving
    caller: Caller
    node: ScriptedNode


@pytest.fixture
async def stand() -> AsyncIterator[Stand]:
    async with (
        # Slow enough that nothing expires by itself; tests of timers make their own.
        pool_server(timers_scale=1.0, quotas={"small": 300}) as serving,
        Caller(f"unix:{serving.socket}") as caller,
        ScriptedNode(caller) as node,
    ):
        yield Stand(serving, caller, node)


async def free(stand: Stand, ordinal: int = 0) -> int:
    return (await stand.caller.devices())[ordinal].free_milli


def words(refused: pb.Refusal) -> str:
    return str(from_message(refused.details.said))


class TestRequest:
    async def test_leases_that_ended_are_listed_by_their_names_and_so_many_at_once(self, stand):
        grant = await stand.caller.grant("k1", 200)
        await stand.caller.call("Release", pb.ReleaseLease(lease_id=grant.lease_id))
        assert not (await stand.caller.call("ListLeases", pb.LeaseListRequest())).leases
        named = pb.LeaseListRequest(ids=[grant.lease_id])
        (ended,) = (await stand.caller.call("ListLeases", named)).leases
        assert (ended.id, ended.state) == (grant.lease_id, "ended")
        # Field 2 of before listed all that ended within the hour.
        all_of_them = pb.LeaseListRequest.FromString(b"\x10\x01")
        assert not (await stand.caller.call("ListLeases", all_of_them)).leases
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stand.caller.call("ListLeases", pb.LeaseListRequest(ids=["l0"] * 1001))
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "1001 leases in one call, more than 1000" in caught.value.details()

    async def test_a_grant_has_all_that_a_client_runtime_needs(self, stand):
        grant = await stand.caller.grant("k1", 200, label="quickstart.ipynb", holder="kernel-1")
        assert [(s.device_id, s.share.milli, s.share.mib) for s in grant.shares] == [("node1/0", 200, 1587)]
        assert grant.worker_address == "127.0.0.1:4000"
        assert len(bytes.fromhex(grant.worker_token)) == 32
        assert len(bytes.fromhex(grant.session_id)) == 16
        assert (grant.epoch, grant.software, grant.new_session) == (1, True, True)
        assert grant.profile == profile(0)

    async def test_several_devices_are_numbered_from_zero_in_one_profile(self, stand):
        grant = await stand.caller.grant("k1", 500, count=2)
        assert [s.device_id for s in grant.shares] == ["node1/0", "node1/1"]
        assert grant.profile == profile(0) + profile(1).partition("\n")[2]

    async def test_the_worker_is_started_with_the_same_token_and_share_and_a_key_that_no_client_has(
        self, stand
    ):
        grant = await stand.caller.grant("k1", 200)
        start = next(m.start for m in stand.node.received if m.HasField("start"))
        assert (start.session_id, start.epoch, start.token) == (grant.session_id, 1, grant.worker_token)
        assert len(bytes.fromhex(start.move_key)) == 32
        assert start.move_key not in str(grant)
        assert start.fence_seconds == 25.0

    async def test_memory_may_be_asked_instead(self, stand):
        grant = await stand.caller.grant("k1", mib=2560)
        assert (grant.shares[0].share.milli, grant.shares[0].share.mib) == (323, 2560)

    async def test_waiting_tells_place_and_reason_and_then_grants(self, stand):
        first = await stand.caller.grant("k1", 1000, count=2)
        stream = stand.caller.request("k2", 500, wait_seconds=-1)
        event = await stream.read()
        assert event.queued.place == 1
        assert "0.5 of a GPU is asked" in str(from_message(event.queued.said))
        assert event.queued.eta_seconds == -1
        (entry,) = (await stand.caller.call("ListQueue", pb.ListRequest())).entries
        assert (entry.place, entry.milli, entry.said) == (1, 500, event.queued.said)
        await stand.caller.call("Release", pb.ReleaseLease(lease_id=first.lease_id))
        assert (await stream.read()).WhichOneof("event") == "granted"

    async def test_cancelling_the_call_leaves_the_queue(self, stand):
        await stand.caller.grant("k1", 1000, count=2)
        stream = stand.caller.request("k2", 500, wait_seconds=-1)
        await stream.read()
        stream.cancel()
        async with asyncio.timeout(5):
            while (await stand.caller.call("ListQueue", pb.ListRequest())).entries:
                await asyncio.sleep(0.01)

    async def test_one_user_may_have_only_so_many_requests_waiting(self, stand, monkeypatch):
        monkeypatch.setattr(shell, "MAXIMUM_WAITING", 3)
        await stand.caller.grant("k0", 1000, count=2)
        waiting = [stand.caller.request(f"k{number}", 500, wait_seconds=-1) for number in range(1, 4)]
        for stream in waiting:
            await stream.read()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stand.caller.request("k4", 500, wait_seconds=-1).read()
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert dict(caught.value.trailing_metadata())["gpupool-reason"] == "too-many-requests"
        again = stand.caller.request("k3", 500, wait_seconds=-1)
        assert (await again.read()).queued.place == 3, "that is none more"
        another = stand.caller.request("k4", 500, wait_seconds=-1, on_behalf_of="bob")
        assert (await another.read()).queued.place == 4
        waiting[0].cancel()
        async with asyncio.timeout(5):
            while len((await stand.caller.call("ListQueue", pb.ListRequest())).entries) > 3:
                await asyncio.sleep(0.01)
        assert (await stand.caller.request("k4", 500, wait_seconds=-1).read()).queued.place == 4

    async def test_a_loop_of_refused_requests_does_not_fill_the_ledger(self, stand, monkeypatch):
        monkeypatch.setattr(refusals, "AT_ONCE", 2)
        monkeypatch.setattr(refusals, "SECONDS_FOR_ONE", 3600.0)
        monkeypatch.setattr(refusals, "_MOST_WAITING", 1)
        lease = await stand.caller.grant("k0", 300)
        await stand.caller.grant("k1", 300)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stand.caller.call("Resize", pb.ResizeLease(lease_id=lease.lease_id, milli=1000))
        assert dict(caught.value.trailing_metadata())["gpupool-reason"] == "full"
        assert (await stand.caller.ask("k2", 900, count=2)).HasField("refused")
        waiting = stand.caller.request("k3", 900, count=2)
        slow = asyncio.ensure_future(waiting.read())
        async with asyncio.timeout(5):
            while True:  # until it is that one that waits
                try:
                    await stand.caller.ask("k4", 900, count=2)
                except grpc.aio.AioRpcError as refused:
                    assert dict(refused.trailing_metadata())["gpupool-reason"] == "too-many-requests"
                    break
        assert not slow.done()
        waiting.cancel()
        assert (await stand.caller.ask("k5", 100, on_behalf_of="bob")).HasField("granted")

    async def test_one_request_may_have_only_so_many_callers(self, stand, monkeypatch):
        monkeypatch.setattr(shell, "MAXIMUM_CALLERS", 2)
        await stand.caller.grant("k0", 1000, count=2)
        callers = [stand.caller.request("k1", 500, wait_seconds=-1) for _ in range(2)]
        for stream in callers:
            assert (await stream.read()).queued.place == 1
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stand.caller.request("k1", 500, wait_seconds=-1).read()
        assert dict(caught.value.trailing_metadata())["gpupool-reason"] == "too-many-requests"
        (entry,) = (await stand.caller.call("ListQueue", pb.ListRequest())).entries
        assert entry.place == 1

    async def test_the_same_key_joins_the_same_request_and_gets_the_same_lease(self, stand):
        stand.node.mute.add("start")
        first = asyncio.create_task(stand.caller.grant("k1", 200))
        second = asyncio.create_task(stand.caller.grant("k1", 200))
        start = (await stand.node.wait_for(lambda m: m.HasField("start"))).start
        await asyncio.sleep(0.1)
        await stand.node.send(
            started=pb.WorkerStarted(session_id=start.session_id, epoch=1, address="127.0.0.1:4000")
        )
        assert (await first).lease_id == (await second).lease_id
        assert await free(stand) == 800

    async def test_an_answer_that_was_lost_is_given_again(self, stand):
        first = await stand.caller.grant("k1", 200)
        again = await stand.caller.grant("k1", 200)
        assert first == again

    async def test_a_caller_that_breaks_off_while_the_worker_starts_keeps_no_share(self):
        async with (
            pool_server() as serving,
            Caller(f"unix:{serving.socket}") as caller,
            ScriptedNode(caller) as node,
        ):
            node.mute.add("start")
            stream = caller.request("k1", 200)
            await node.wait_for(lambda m: m.HasField("start"))
            stream.cancel()
            await node.wait_for(lambda m: m.HasField("stop"))
            async with asyncio.timeout(5):
                while (await caller.devices())[0].free_milli != 1000:
                    await asyncio.sleep(0.02)

    async def test_hanging_up_right_after_the_answer_does_not_shorten_the_lease(self):
        async with (
            pool_server(
                timers_scale=0.2
            ) as serving,  # a lost answer costs the lease after 1 s, a lost holder after 5 s
            Caller(f"unix:{serving.socket}") as caller,
            ScriptedNode(caller) as node,
        ):
            for number in range(10):
                stream = caller.request(f"k{number}", 50)
                assert (await stream.read()).WhichOneof("event") == "granted"
                stream.cancel()
            await asyncio.sleep(1.3)
            assert len((await node.heartbeat()).heartbeat.leases) == 10

    async def test_a_full_pool_refuses_with_numbers(self, stand):
        await stand.caller.grant("k1", 1000, count=2, on_behalf_of="ann")
        refused = (await stand.caller.ask("k2", 500)).refused
        assert refused.reason == "full"
        assert "ann holds 1.00" in words(refused)

    async def test_a_quota_refuses_with_numbers(self, stand):
        refused = (await stand.caller.ask("k1", 500, on_behalf_of="small")).refused
        assert refused.reason == "quota"
        assert "the quota of small is 0.30" in words(refused)

    async def test_a_worker_that_does_not_start_is_said_in_its_words(self, stand):
        stand.node.refuse["start"] = "libcuda.so.1 has no device"
        refused = (await stand.caller.ask("k1", 200)).refused
        assert refused.reason == "worker-failed"
        assert "libcuda.so.1 has no device" in words(refused)
        assert await free(stand) == 1000

    async def test_no_node_is_said(self):
        async with pool_server() as serving, Caller(f"unix:{serving.socket}") as caller:
            refused = (await caller.ask("k1", 200)).refused
            assert refused.reason == "no-node"
            assert "`gpupool node start`" in words(refused)


# The fields of a bad request, and what the refusal must name: the field and the value.
BAD = {
    "milli 0 and mib 0": ({}, ("neither milli nor mib",)),
    "milli -1": ({"milli": -1}, ("milli -1 is not within 1..1000",)),
    "milli 1001": ({"milli": 1001}, ("milli 1001",)),
    "mib -5": ({"mib": -5}, ("mib -5",)),
    "mib huge": ({"mib": 2**62}, (f"mib {2**62}",)),
    "both": ({"milli": 200, "mib": 100}, ("both milli 200 and mib 100",)),
    "count -1": ({"milli": 200, "count": -1}, ("count", " -1 ")),
    "count 9": ({"milli": 200, "count": 9}, ("count", " 9 ")),
    "no key": ({"milli": 200, "idempotency_key": ""}, ("idempotency_key",)),
    "a key of two lines": ({"milli": 200, "idempotency_key": "a\nb"}, ("idempotency_key",)),
    "duration -1": ({"milli": 200, "duration_seconds": -1.0}, ("duration_seconds", " -1.0 ")),
    "duration NaN": ({"milli": 200, "duration_seconds": float("nan")}, ("duration_seconds", " nan ")),
    "wait NaN": ({"milli": 200, "wait_seconds": float("nan")}, ("wait_seconds", " nan ")),
    "a label of 1000 characters": ({"milli": 200, "label": "x" * 1000}, ("label has 1000 characters",)),
    "a user with a line break": ({"milli": 200, "on_behalf_of": "a\nb"}, ("is not a user name",)),
}


class TestBadInput:
    @pytest.mark.parametrize("case", BAD)
    async def test_is_refused_and_named(self, stand, case):
        fields, named = BAD[case]
        message = pb.RequestLease(**({"idempotency_key": "k1"} | fields))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            async for _ in stand.caller.pool.Request(message, timeout=5):
                pass
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert not [part for part in named if part not in caught.value.details()], caught.value.details()
        assert not (await stand.caller.call("ListLeases", pb.LeaseListRequest())).leases

    async def test_count_0_means_1(self, stand):
        assert len((await stand.caller.grant("k1", 200, count=0)).shares) == 1

    @pytest.mark.parametrize(("milli", "count"), [(200, 3), (0, 1)])
    async def test_what_can_never_fit_is_refused_though_one_would_wait(self, stand, milli, count):
        mib = 0 if milli else 9000
        refused = (await stand.caller.ask("k1", milli, mib=mib, count=count, wait_seconds=-1)).refused
        assert refused.reason == "bad-share"

    async def test_an_unknown_session_is_refused(self, stand):
        refused = (await stand.caller.ask("k1", 200, session_id="ab" * 16)).refused
        assert refused.reason == "unknown-session"

    async def test_fields_of_a_later_version_are_ignored(self, stand):
        known = pb.RequestLease(idempotency_key="k1", milli=200).SerializeToString()
        later = known + b"\xc2\x3e\x05hello" + b"\xc8\x3e\x07"  # fields 1000 and 1001
        method = stand.caller.channel.unary_stream(
            "/gpupool.v1.Pool/Request", response_deserializer=pb.RequestEvent.FromString
        )
        assert [event.WhichOneof("event") async for event in method(later, timeout=5)] == ["granted"]

    async def test_bytes_that_are_no_message_end_the_call_and_nothing_else(self, stand):
        method = stand.caller.channel.unary_stream("/gpupool.v1.Pool/Request")
        with pytest.raises(grpc.aio.AioRpcError):
            async for _ in method(b"\xff\xff\xff\xff", timeout=5):
                pass
        await stand.caller.grant("k1", 200)

    async def test_a_reason_that_is_none_is_refused(self, stand):
        grant = await stand.caller.grant("k1", 200)
        with pytest.raises(grpc.aio.AioRpcError, match="'boredom' is not a reason"):
            await stand.caller.call("Release", pb.ReleaseLease(lease_id=grant.lease_id, reason="boredom"))
        close = pb.CloseSessionRequest(session_id=grant.session_id, reason="consolidate")
        with pytest.raises(grpc.aio.AioRpcError, match="'consolidate' is not a reason"):
            await stand.caller.call("CloseSession", close)


class TestLeases:
    async def test_release_answers_when_the_share_is_free_and_is_idempotent(self, stand):
        grant = await stand.caller.grant("k1", 200)
        message = pb.ReleaseLease(lease_id=grant.lease_id, reason="release")
        assert (await stand.caller.call("Release", message)).was_held
        assert await free(stand) == 1000
        assert not (await stand.caller.call("Release", message)).was_held
        assert not (await stand.caller.call("Release", pb.ReleaseLease(lease_id="never"))).was_held

    async def test_a_parked_session_resumes(self, stand):
        first = await stand.caller.grant("k1", 200)
        await stand.caller.call("Release", pb.ReleaseLease(lease_id=first.lease_id))
        again = await stand.caller.grant("k2", 300, session_id=first.session_id)
        assert (again.session_id, again.epoch, again.new_session) == (first.session_id, 2, False)
        assert (again.worker_token, again.worker_address) == (first.worker_token, first.worker_address)

    async def test_a_resume_that_the_worker_refuses_says_what_it_keeps(self, stand):
        first = await stand.caller.grant("k1", 500)
        await stand.caller.call("Release", pb.ReleaseLease(lease_id=first.lease_id))
        stand.node.in_use_mib = 3000
        refused = (await stand.caller.ask("k2", 100, session_id=first.session_id)).refused
        assert refused.reason == "bad-share"
        assert "3000 MiB" in words(refused)

    async def test_renew_tells_each_lease_and_its_usage(self, stand):
        grant = await stand.caller.grant("k1", 200)
        await stand.node.heartbeat(kernels=7, device_seconds=1.5, memory_used=[100])
        answer = await stand.caller.call("Renew", pb.RenewLeases(lease_ids=[grant.lease_id, "never"]))
        assert [(x.lease_id, x.state) for x in answer.leases] == [
            (grant.lease_id, "attached"),
            ("never", "unknown"),
        ]
        assert (answer.leases[0].usage.kernels, list(answer.leases[0].usage.memory_used)) == (7, [100])
        await stand.caller.call("Release", pb.ReleaseLease(lease_id=grant.lease_id, reason="idle"))
        (ended,) = (await stand.caller.call("Renew", pb.RenewLeases(lease_ids=[grant.lease_id]))).leases
        assert (ended.state, ended.reason) == ("ended", "idle")

    async def test_resize(self, stand):
        grant = await stand.caller.grant("k1", 200)
        bigger = await stand.caller.call("Resize", pb.ResizeLease(lease_id=grant.lease_id, milli=600))
        assert (bigger.shares[0].share.milli, bigger.epoch) == (600, 1)
        assert await free(stand) == 400

    async def test_two_resizes_of_one_lease_each_get_their_own_answer(self, stand):
        grant = await stand.caller.grant("k1", 200)
        stand.node.mute.add("lease")
        growing = asyncio.create_task(
            stand.caller.call("Resize", pb.ResizeLease(lease_id=grant.lease_id, milli=800))
        )
        order = await stand.node.wait_for(
            lambda m: m.HasField("lease") and m.lease.shares[0].share.milli == 800
        )
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stand.caller.call("Resize", pb.ResizeLease(lease_id=grant.lease_id, milli=300))
        assert dict(caught.value.trailing_metadata())["gpupool-reason"] == "busy"
        stand.node.mute.clear()
        await stand.node.obey(order)
        assert (await growing).shares[0].share.milli == 800

    @pytest.mark.parametrize(
        ("milli", "in_use_mib", "code", "words"),
        [
            (1200, 0, grpc.StatusCode.INVALID_ARGUMENT, "milli 1200"),
            (800, 0, grpc.StatusCode.RESOURCE_EXHAUSTED, "0.60"),
            (100, 1500, grpc.StatusCode.FAILED_PRECONDITION, "1500 MiB"),
        ],
    )
    async def test_a_resize_that_does_not_fit_is_refused_with_numbers(
        self, stand, milli, in_use_mib, code, words
    ):
        grant = await stand.caller.grant("k1", 400)
        await stand.caller.grant("k2", 400)
        stand.node.in_use_mib = in_use_mib
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stand.caller.call("Resize", pb.ResizeLease(lease_id=grant.lease_id, milli=milli))
        assert caught.value.code() is code
        assert words in caught.value.details()

    async def test_a_resize_that_waited_for_parked_memory_and_then_for_the_worker_says_so(
        self, stand, monkeypatch
    ):
        """Not that the device is full: that it was, for a moment, is what the caller waited for."""
        monkeypatch.setattr(service, "RESIZE_SECONDS", 1.0)
        await stand.node.disconnect()
        await stand.node.connect(park_memory_mib=8192)
        parked = await stand.caller.grant("k1", 400)
        await stand.node.heartbeat(memory_used=[3000 << 20])
        await stand.caller.call("Release", pb.ReleaseLease(lease_id=parked.lease_id))
        grant = await stand.caller.grant("k2", 600)
        assert grant.shares[0].device_id == parked.shares[0].device_id
        stand.node.mute |= {"park", "lease"}
        growing = asyncio.create_task(
            stand.caller.call("Resize", pb.ResizeLease(lease_id=grant.lease_id, milli=1000))
        )
        order = await stand.node.wait_for(lambda m: m.HasField("park"))
        assert not [m for m in stand.node.received if m.HasField("lease")]
        await stand.node.send(
            memory_parked=pb.MemoryParked(
                session_id=parked.session_id,
                epoch=order.park.epoch,
                ok=True,
                bytes=3000 << 20,
                request=order.request,
                place="host",
            )
        )
        await stand.node.wait_for(lambda m: m.HasField("lease"))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await growing
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert "the worker has not confirmed within 1 s" in caught.value.details()

    async def test_close_session_ends_lease_and_worker(self, stand):
        grant = await stand.caller.grant("k1", 200)
        close = pb.CloseSessionRequest(session_id=grant.session_id, reason="admin")
        assert (await stand.caller.call("CloseSession", close)).was_held
        assert not (await stand.caller.call("CloseSession", close)).was_held
        await stand.node.wait_for(lambda m: m.HasField("stop"))
        (session,) = (await stand.caller.call("ListSessions", pb.ListRequest())).sessions
        assert (session.state, session.reason) == ("closed", "admin")

    async def test_lists_show_who_holds_what(self, stand):
        grant = await stand.caller.grant("k1", 200, label="a.ipynb", holder="kernel-1", on_behalf_of="ann")
        device = (await stand.caller.devices())[0]
        assert (device.id, device.total_mib, device.usable_mib, device.free_milli, device.free_mib) == (
            "node1/0", 8192, 7936, 800, 6349,
        )  # fmt: skip
        (share,) = device.shares
        assert (share.user, share.label, share.holder, share.state) == (
            "ann",
            "a.ipynb",
            "kernel-1",
            "attached",
        )
        (lease,) = (await stand.caller.call("ListLeases", pb.LeaseListRequest())).leases
        assert (lease.id, lease.session_id, lease.state) == (grant.lease_id, grant.session_id, "attached")
        assert lease.granted_unix > 1.6e9


class TestTimers:
    """All timers are 1/20: fence 1.25 s, reuse 1.5 s, holder 1.25 s."""

    async def test_a_holder_that_goes_away_loses_the_lease(self):
        async with (
            pool_server(timers_scale=0.05) as serving,
            Caller(f"unix:{serving.socket}") as caller,
            ScriptedNode(caller) as node,
        ):
            grant = await caller.grant("k1", 200)
            async with asyncio.timeout(5):
                while (await node.heartbeat()).heartbeat.leases:
                    await asyncio.sleep(0.1)
            (status,) = (await caller.call("Renew", pb.RenewLeases(lease_ids=[grant.lease_id]))).leases
            assert (status.state, status.reason) == ("ended", "lost")

    async def test_a_node_that_goes_silent_is_lost_and_dropped(self):
        async with (
            pool_server(timers_scale=0.05) as serving,
            Caller(f"unix:{serving.socket}") as caller,
            ScriptedNode(caller) as node,
        ):
            grant = await caller.grant("k1", 200, reservation=True)
            await node.ended()
            named = pb.LeaseListRequest(ids=[grant.lease_id, "l0"])
            (lease,) = (await caller.call("ListLeases", named)).leases
            assert (lease.id, lease.reason) == (grant.lease_id, "lost")
            assert not (await caller.devices())[0].healthy


class TestNodes:
    @pytest.mark.parametrize(
        ("hello", "words"),
        [
            ({"node": "a/b"}, "is no node name"),
            ({"node": "x" * 64}, "is no node name"),
            ({"advertise_host": "http://gpu1"}, "'http://gpu1' is no host that kernels can dial"),
            ({"advertise_host": "gpu-m\u00fcller"}, "no host that kernels can dial"),
            ({"devices": [pb.NodeDevice(ordinal=0, profile="nonsense")]}, "describes 0 devices"),
            ({"devices": [pb.NodeDevice(ordinal=0, profile=profile(0))] * 2}, "not distinct"),
            ({"devices": [pb.NodeDevice(ordinal=-1, profile=profile(0))]}, "not distinct"),
        ],
    )
    async def test_a_hello_that_makes_no_sense_is_refused(self, stand, hello, words):
        call = stand.caller.nodes.Connect()
        fields = {"node": "n", "instance": "i"} | hello
        await call.write(pb.FromNode(hello=pb.NodeHello(**fields)))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call.read()
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert words in caught.value.details()

    async def test_anything_before_the_hello_is_refused(self, stand):
        call = stand.caller.nodes.Connect()
        await call.write(pb.FromNode(heartbeat=pb.Heartbeat(number=1)))
        with pytest.raises(grpc.aio.AioRpcError, match="must be its hello"):
            await call.read()

    async def test_an_empty_message_ends_the_stream(self, stand):
        await stand.node.send()
        assert await stand.node.ended() is grpc.StatusCode.OK

    async def test_a_second_stream_of_a_node_ends_the_first(self, stand):
        async with ScriptedNode(stand.caller):
            assert await stand.node.ended() is grpc.StatusCode.OK
            await stand.caller.grant("k1", 200)

    async def test_usage_out_of_bounds_does_no_harm(self, stand):
        grant = await stand.caller.grant("k1", 200)
        await stand.node.heartbeat(
            device_seconds=float("nan"), kernels=-5, memory_used=[-1] * 1000, state="x" * 1000
        )
        usage = await stand.caller.call("GetUsage", pb.UsageRequest(session_id=grant.session_id))
        assert (usage.device_seconds, usage.kernels, len(usage.memory_used), len(usage.state)) == (
            0,
            0,
            64,
            32,
        )


class TestServer:
    async def test_a_restart_keeps_leases_and_keys(self, tmp_path):
        async with (
            pool_server(home=tmp_path, timers_scale=1.0) as serving,
            Caller(f"unix:{serving.socket}") as caller,
        ):
            node = await ScriptedNode(caller).connect()
            first = await caller.grant("k1", 700)
            workers = dict(node.workers)
            await node.disconnect()
        async with (
            pool_server(home=tmp_path, timers_scale=1.0) as serving,
            Caller(f"unix:{serving.socket}") as caller,
        ):
            node = ScriptedNode(caller)
            node.workers = workers
            await node.connect()
            assert [x.lease_id for x in (await caller.devices())[0].shares] == [first.lease_id]
            assert (await caller.grant("k1", 700)).lease_id == first.lease_id
            await node.disconnect()

    async def test_a_second_server_on_the_same_home_is_refused(self, tmp_path):
        async with pool_server(home=tmp_path):
            with pytest.raises(ServeError, match="another pool server uses"):
                await serve(ServeOptions(home=tmp_path))

    async def test_a_socket_path_that_is_too_long_says_what_to_do(self, tmp_path):
        with pytest.raises(ServeError, match="set GPUPOOL_HOME to a shorter directory"):
            await serve(ServeOptions(home=tmp_path, socket=tmp_path / ("x" * 100) / "pool.sock"))

    async def test_a_file_in_the_place_of_the_socket_is_not_removed(self, tmp_path):
        (tmp_path / "pool.sock").write_text("mine")
        with pytest.raises(ServeError, match="is not a socket"):
            await serve(ServeOptions(home=tmp_path))
        assert (tmp_path / "pool.sock").read_text() == "mine"

    @pytest.mark.parametrize("listen", ["nonsense", ":1", "127.0.0.1:70000", "127.0.0.1:x"])
    async def test_a_bad_address_is_named(self, tmp_path, listen):
        with pytest.raises(ServeError, match="is not host:port"):
            await serve(ServeOptions(home=tmp_path, listen=listen))

    async def test_secrets_are_readable_by_the_owner_only(self, stand):
        home = stand.serving.socket.parent
        assert stat.S_IMODE(home.stat().st_mode) == 0o700
        for path in home.iterdir():
            mode = stat.S_IMODE(path.stat().st_mode)
            assert not mode & 0o077, f"{path.name} is {mode:o}"

    async def test_waiting_callers_are_told_that_the_pool_stops(self, tmp_path):
        async with pool_server(home=tmp_path) as serving:
            caller = Caller(f"unix:{serving.socket}")
            stream = caller.request("k1", 200, wait_seconds=-1)
            assert (await stream.read()).WhichOneof("event") == "queued"
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stream.read()
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        await caller.channel.close()

    async def test_a_ledger_that_cannot_be_written_refuses_new_leases_and_keeps_old_ones(
        self, stand, monkeypatch
    ):
        from gpupool.ledger.ledger import Ledger, LedgerError

        grant = await stand.caller.grant("k1", 200)

        def full(*_args: object) -> bool:
            raise LedgerError("the ledger cannot be written: disk I/O error")

        with monkeypatch.context() as patch:
            patch.setattr(Ledger, "store", full)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stand.caller.grant("k2", 200)
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
            health = await stand.caller.call("Health", pb.HealthRequest())
            assert not health.ok
            assert health.checks[0].status == "fail"
            assert health.checks[0].hint
        assert [x.lease_id for x in (await stand.caller.devices())[0].shares] == [grant.lease_id]
        await stand.caller.grant("k3", 200)
        assert (await stand.caller.call("Health", pb.HealthRequest())).ok

    async def test_health_says_what_to_do_without_nodes(self):
        async with pool_server() as serving, Caller(f"unix:{serving.socket}") as caller:
            health = await caller.call("Health", pb.HealthRequest())
            nodes = next(check for check in health.checks if check.name == "nodes")
            assert (health.ok, nodes.status, nodes.hint) == (
                False,
                "fail",
                "start one with `gpupool node start`",
            )

    async def test_the_standard_health_protocol_is_served(self, stand):
        from grpc_health.v1 import health_pb2, health_pb2_grpc

        stub = health_pb2_grpc.HealthStub(stand.caller.channel)
        answer = await stub.Check(health_pb2.HealthCheckRequest(), timeout=5)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.Watch(health_pb2.HealthCheckRequest(), timeout=5).read()
        assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED, "not in the table, so refused"

    async def test_metrics(self, tmp_path):
        async with (
            pool_server(home=tmp_path, timers_scale=1.0, metrics_listen="127.0.0.1:0") as serving,
            Caller(f"unix:{serving.socket}") as caller,
            ScriptedNode(caller),
        ):
            await caller.grant("k1", 300)
            url = f"http://127.0.0.1:{serving.metrics_port}/metrics"
            text = (await asyncio.to_thread(lambda: urllib.request.urlopen(url, timeout=5).read())).decode()
        assert 'gpupool_device_free_milli{device="node1/0",node="node1"} 700.0' in text
        assert 'gpupool_leases{state="attached"} 1.0' in text

    async def test_a_thousand_requests_at_once_are_all_answered(self):
        """gRPC's own limits would shed this load as CANCELLED, without a word."""
        async with (
            # On a busy machine the answers take longer than a node may be silent, and than a lease lives that nobody renews.
            pool_server(timers_scale=10.0) as serving,
            Caller(f"unix:{serving.socket}") as caller,
            ScriptedNode(caller),
        ):
            answers = await asyncio.gather(*(caller.ask(f"k{i}", 10) for i in range(1000)))
        kinds = [answer.WhichOneof("event") for answer in answers]
        assert (kinds.count("granted"), kinds.count("refused")) == (200, 800)

    async def test_secrets_are_not_logged(self, capfd, tmp_path):
        async with pool_server(home=tmp_path, listen="127.0.0.1:0", timers_scale=1.0) as serving:
            token = make_token(serving, "ann", "user")
            async with (
                Caller(f"unix:{serving.socket}") as admin,
                ScriptedNode(admin),
                Caller(f"127.0.0.1:{serving.port}", token) as ann,
            ):
                grant = await ann.grant("k1", 200)
        logged = "".join(capfd.readouterr())
        assert grant.lease_id in logged
        assert grant.worker_token not in logged
        assert token.rpartition("_")[2] not in logged

"""One process, shares on several nodes: a real pool, two node agents and their workers; each kind of them is killed once.

What a program does with both workers is shown elsewhere. Here each worker is spoken to alone, by a client whose
session file names just that one.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from gpupool.client.holder import LeaseHolder
from gpupool.client.pool import PoolClient
from gpupool.client.session_file import SessionFile, SessionRecord
from gpupool.client.types import Grant, LeaseRequest, QueuePlace
from gpupool.node.profile import parse_profile
from gpupool.request.gpu_request import GpuRequest
from gpupool.shares import Share

from jupyter_gpupool.server.session.session import KernelSession
from tests.support.pattern_client import Holder, PatternClient, holding
from tests.support.pool_node import REUSE_SECONDS, SCALE, native_worker_is_built
from tests.support.two_nodes import PoolAndTwoNodes

pytestmark = [
    pytest.mark.serial,
    pytest.mark.skipif(not native_worker_is_built(), reason="needs the native build (`make build`)"),
    pytest.mark.timeout(120),
]


def on_both(milli: int = 500, session: str = "") -> LeaseRequest:
    return LeaseRequest(Share(milli=milli), count=2, session_id=session, label="two nodes")


@pytest.fixture(scope="module")
def started() -> Iterator[PoolAndTwoNodes]:
    with PoolAndTwoNodes(scale=SCALE, nodes={"a": 1, "b": 1}) as stack:
        yield stack


@pytest.fixture
def stack(started: PoolAndTwoNodes) -> PoolAndTwoNodes:
    """Nodes a and b of one device each, of which nothing is taken."""
    started.wait(lambda: started.all_free() and not started.worker_pids(), 30, "two empty nodes")
    return started


async def granted(holder: Holder, milli: int = 500, session: str = "") -> Grant:
    grant = await holder.pool.request(on_both(milli, session), wait_seconds=20)
    holder.leases.hold(grant.lease_id)
    return grant


async def programs(holder: Holder, grant: Grant) -> list[PatternClient]:
    """For each worker a program of its own, with memory on its device."""
    found = []
    for number, worker in enumerate(grant.workers):
        client = holder.client()
        client.grant = alone(grant, number)
        client.tell()
        await client.start()
        await client.tell_program(f"fill {8 + number} {number}")
        await client.tell_program("add")
        found.append(client)
        assert worker.devices == 1
    return found


def alone(grant: Grant, number: int) -> Grant:
    """What one of its workers would be if it were the only one."""
    worker = grant.workers[number]
    return replace(
        grant,
        session_id=worker.session_id,
        epoch=worker.epoch,
        worker_address=worker.address,
        worker_token=worker.token,
        shares=(grant.shares[number],),
        workers=(),
    )


def test_a_command_finds_both_workers_in_its_session_file(stack: PoolAndTwoNodes) -> None:
    show = 'cat "$GPUPOOL_SESSION_FILE"; echo; cat "$(sed -n "s/^profile //p" "$GPUPOOL_SESSION_FILE")"'
    done = stack.gpupool("run", "-p", "0.5", "-n", "2", "--", "sh", "-c", show)
    assert done.returncode == 0, done.stderr
    text, _, profile = done.stdout.partition("\n\n")
    record = SessionRecord.decode(text.encode())
    assert (record.state, record.devices, len(record.workers)) == ("attached", (1, 1), 1)
    assert [part.split(":")[:2] for part in record.share.split(",")] == [["0", "500"], ["1", "500"]]
    assert record.workers[0].address.partition(" ")[0] != record.address.partition(" ")[0]
    assert record.workers[0].session != record.session
    assert len(parse_profile(profile).devices) == 2
    stack.wait_free()


async def test_a_kernel_finds_both_workers_in_its_session_file_and_goes_on_with_both(
    stack: PoolAndTwoNodes, tmp_path: Path
) -> None:
    async with PoolClient(stack.endpoint) as pool:
        path = tmp_path / "session"
        kernel = KernelSession(
            "k1",
            pool,
            path,
            leases=LeaseHolder(pool, on_ended=lambda _: None),
            on_change=lambda _: None,
        )
        await kernel.attach(GpuRequest(Share(milli=500), 2), by="magic", scope="cell")
        first = SessionFile(path).read()
        assert (first.state, first.devices, len(first.workers)) == ("attached", (1, 1), 1)
        await kernel.leave_scope("cell")
        assert (SessionFile(path).read().state, SessionFile(path).read().workers) == ("parked", ())
        assert {session.state for session in await pool.sessions() if session.device_ids} >= {"parked"}
        await kernel.attach(GpuRequest(Share(milli=500), 2), by="magic", scope="cell")
        again = SessionFile(path).read()
        assert [(again.session, again.epoch), (again.workers[0].session, again.workers[0].epoch)] == [
            (first.session, 2),
            (first.workers[0].session, 2),
        ]
        await kernel.close()
        assert not [session for session in await pool.sessions() if session.state != "closed"]


def test_who_wants_one_node_is_refused_at_once(stack: PoolAndTwoNodes) -> None:
    done = stack.gpupool("run", "-p", "0.5", "-n", "2", "--nodes", "one", "--", "true")
    assert done.returncode != 0
    assert "the largest node has 1 device(s)" in done.stderr
    assert "--nodes any" in done.stderr


async def test_both_workers_serve_and_the_next_one_waits_for_both(
    stack: PoolAndTwoNodes, tmp_path: Path
) -> None:
    async with holding(stack.endpoint, tmp_path, renew_seconds=5 * SCALE) as holder:
        first = await granted(holder, 700)
        assert [share.device_id for share in first.shares] == ["a/0", "b/0"]
        both = await programs(holder, first)
        assert [await one.tell_program("check") for one in both] == [str(8 << 20), str(9 << 20)]

        places: list[QueuePlace] = []
        waiting = asyncio.ensure_future(holder.pool.request(on_both(), on_queued=places.append))
        while not places:
            await asyncio.sleep(0.02)
        assert "0.5 of a GPU on each of 2 devices on up to 2 nodes is asked" in places[0].reason
        assert "0.30 (" in places[0].reason
        held = [lease for lease in await holder.pool.leases() if lease.state == "attached"]
        assert [[share.device_id for share in lease.shares] for lease in held] == [["a/0", "b/0"]]
        (session,) = [s for s in await holder.pool.sessions() if s.id == first.session_id]
        assert (session.nodes, session.device_ids) == (("a", "b"), ("a/0", "b/0"))
        assert len(session.usage.memory_used) == 2

        await holder.pool.release(first.lease_id)
        second = await waiting
        assert [worker.devices for worker in second.workers] == [1, 1]
        await holder.pool.release(second.lease_id, close_session=True)

        again = await granted(holder, session=first.session_id)
        assert [(w.session_id, w.epoch) for w in again.workers] == [(w.session_id, 2) for w in first.workers]
        for number, one in enumerate(both):
            one.grant = alone(again, number)
            one.tell()
            assert await one.tell_program("check") == str((8 + number) << 20), "no byte is lost"
        await holder.pool.resize(again.lease_id, Share(milli=800))
        assert [device.free_milli for device in await holder.pool.devices()] == [200, 200]


async def test_one_worker_dies_and_the_others_share_comes_back(
    stack: PoolAndTwoNodes, tmp_path: Path
) -> None:
    async with holding(stack.endpoint, tmp_path, renew_seconds=5 * SCALE) as holder:
        grant = await granted(holder)
        os.kill(stack.worker_pid("b", grant.workers[1].session_id), signal.SIGKILL)
        while not holder.ended:
            await asyncio.sleep(0.05)
        assert (holder.ended[0].lease_id, holder.ended[0].reason) == (grant.lease_id, "lost")
        stack.wait(lambda: stack.all_free() and not stack.worker_pids(), 10, "everything to be free")
        (session,) = [s for s in await holder.pool.sessions() if s.id == grant.session_id]
        assert (session.state, session.reason) == ("closed", "lost")


async def test_a_node_dies_and_the_others_share_comes_back(stack: PoolAndTwoNodes, tmp_path: Path) -> None:
    async with holding(stack.endpoint, tmp_path, renew_seconds=5 * SCALE) as holder:
        grant = await granted(holder)
        pid = stack.worker_pid("b", grant.workers[1].session_id)
        stack.kill("b")
        os.kill(pid, signal.SIGKILL)
        async with asyncio.timeout(REUSE_SECONDS + 10):
            while not holder.ended:
                await asyncio.sleep(0.05)
        assert (holder.ended[0].lease_id, holder.ended[0].reason) == (grant.lease_id, "lost")
        stack.wait(
            lambda: [d["free_milli"] for d in stack.devices() if d["id"] == "a/0"] == [1000], 10, "node a"
        )
        (session,) = [s for s in await holder.pool.sessions() if s.id == grant.session_id]
        assert session.state == "lost"
        stack.start_agent("b")
        stack.wait_lending("b")
        (session,) = [s for s in await holder.pool.sessions() if s.id == grant.session_id]
        assert session.state == "closed", "its worker did not come back with the node"
        stack.wait(lambda: not stack.worker_pids(), 10, "the other worker to end")


def test_the_file_of_a_lease_on_one_node_is_as_it_was(tmp_path: Path) -> None:
    file = SessionFile(tmp_path / "session")
    worker = Grant("l1", "ab" * 16, 3, (), "127.0.0.1:7000", "cd" * 32, True, "", True)
    file.write_attached(worker)
    keys = [line.partition(" ")[0] for line in file.path.read_text().splitlines()]
    assert keys == ["version", "state", "generation", "session", "epoch", "address", "token", "software"]

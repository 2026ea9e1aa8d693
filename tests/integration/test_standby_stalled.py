"""A leader whose connections to the database stall: they are not broken, but no answer ever comes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from gpupool.ledger import postgresql
from gpupool.ledger.ledger import Ledger
from gpupool.ledger.servers import ServerIdentity
from gpupool.model.clock import Clock
from gpupool.pool.leading.lead_times import LeadTimes
from gpupool.pool.leading.standby import Standby
from gpupool.proto import pool_pb2 as pb
from gpupool.proto import pool_pb2_grpc
from sqlalchemy.exc import SQLAlchemyError

from tests.support import postgres
from tests.support.patience import BUSY, until_late
from tests.support.pool_server import Caller, ScriptedNode, pool_server

#: What says that a stream is over, to whoever writes and to whoever waits.
ENDED = (ConnectionError, grpc.aio.AioRpcError, grpc.aio.UsageError, asyncio.InvalidStateError)


@contextlib.contextmanager
def stalled(postgres_server: postgres.Cluster, url: str) -> Iterator[None]:
    """Stops the processes that serve this database's connections; new connections get others."""
    name = url.partition("?")[0].rpartition("/")[2]
    serving = postgres_server.sql(f"SELECT pid FROM pg_stat_activity WHERE datname = '{name}'")
    pids = [int(str(row[0])) for row in serving]
    assert pids
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


async def test_it_answers_no_node_and_stands_by(
    postgres_server: postgres.Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgresql, "_STALLED_SECONDS", 4.0)
    url = postgres_server.database()
    async with (
        pool_server(home=tmp_path, ledger=url, standby=True) as serving,
        Caller(f"unix:{serving.socket}") as admin,
        ScriptedNode(admin) as node,
    ):
        with stalled(postgres_server, url):
            with pytest.raises(ENDED):
                await asyncio.wait_for(beat_on(node), 30 * BUSY)
            deadline = until_late(60)
            while await leads(f"unix:{serving.socket}"):
                assert asyncio.get_running_loop().time() < deadline
                await asyncio.sleep(0.1)


async def beat_on(node: ScriptedNode) -> None:
    while True:
        await node.heartbeat()
        await asyncio.sleep(0.1)


async def leads(endpoint: str) -> bool:
    """Whether the server says that it leads, or says nothing."""
    async with grpc.aio.insecure_channel(endpoint) as channel:
        stub: Any = pool_pb2_grpc.ServersStub(channel)  # type: ignore[no-untyped-call, unused-ignore]
        try:
            return bool((await stub.Describe(pb.ListRequest(), timeout=5 * BUSY)).leads)
        except grpc.aio.AioRpcError:
            return True


async def test_a_standby_looks_again_over_another_connection(postgres_server: postgres.Cluster) -> None:
    url = postgres_server.database()
    standby = Standby(url, ServerIdentity("b"), LeadTimes())
    with Ledger(url, Clock.start(), leader=ServerIdentity("a")):
        waits = asyncio.create_task(standby.wait())
        try:
            await another_look(standby)
            with stalled(postgres_server, url):
                for _ in range(3):  # the first may have been under way
                    await another_look(standby)
            assert not waits.done()
        finally:
            waits.cancel()
            await asyncio.wait({waits})
            await asyncio.to_thread(standby.close)


async def another_look(standby: Standby) -> None:
    seen, deadline = standby.servers, until_late(60)
    while standby.servers is seen:
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.05)


async def test_a_step_that_hangs_is_not_stored_but_ends(
    postgres_server: postgres.Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgresql, "_STALLED_SECONDS", 4.0)
    url = postgres_server.database()

    def write(ledger: Ledger) -> None:
        with ledger.database.writing(10**6) as connection:
            connection.exec_driver_sql("SELECT 1")

    with Ledger(url, Clock.start(), leader=ServerIdentity("a")) as ledger:
        write(ledger)
        with stalled(postgres_server, url), pytest.raises(SQLAlchemyError):
            await asyncio.wait_for(asyncio.to_thread(write, ledger), 20 * BUSY)
        write(ledger)

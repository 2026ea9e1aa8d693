"""Connections to the pool server that nobody uses are closed: each is one of its files."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import AsyncIterator
from pathlib import Path

import grpc.aio
import pytest
from gpupool.pool.place import GRPC_OPTIONS
from gpupool.pool.reporting import healthcheck
from gpupool.proto import pool_pb2 as pb

from tests.support.patience import BUSY
from tests.support.pool_server import Caller, pool_server

#: What a client says first: the preface of HTTP/2 and its settings, all as by default.
GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
BRISK = {"grpc.server_handshake_timeout_ms": 200, "grpc.max_connection_idle_ms": 200}


@pytest.fixture
async def port() -> AsyncIterator[int]:
    """Of a server with the pool's options, in a hurry."""
    assert BRISK.keys() <= dict(GRPC_OPTIONS).keys()
    server = grpc.aio.server(options=[*(dict(GRPC_OPTIONS) | BRISK).items()])
    found = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield found
    await server.stop(0)


@pytest.mark.parametrize("said", [b"", GREETING[:10], GREETING], ids=["nothing", "half", "no call"])
async def test_who_calls_nothing_is_hung_up_on(port: int, said: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(said)
    async with asyncio.timeout(30 * BUSY):
        while await reader.read(1024):
            pass
    writer.close()


async def test_health_says_how_many_files_the_server_has_open(monkeypatch: pytest.MonkeyPatch) -> None:
    async with pool_server() as serving, Caller(f"unix:{serving.socket}") as caller:

        async def line() -> pb.HealthCheck:
            report = await caller.call("Health", pb.HealthRequest())
            (found,) = (check for check in report.checks if check.name == "open files")
            return found

        assert (await line()).status == "ok"
        assert "descriptors of the pool server are in use" in (await line()).detail
        monkeypatch.setattr(resource, "getrlimit", lambda _: (10, 10))
        assert (await line()).status == "warn"
        assert "of 10 descriptors" in (await line()).detail
        monkeypatch.setattr(healthcheck, "_OWN_FILES", Path("/proc/self/nothing"))
        assert (await line()).status == "ok"

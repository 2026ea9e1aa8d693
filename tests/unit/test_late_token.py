"""A request for which the pool is late with the token of its caller, and not with the share."""

from __future__ import annotations

import asyncio
import contextlib

import grpc
import grpc.aio
import pytest
from gpupool.client import pool as pool_module
from gpupool.client import servers as servers_module
from gpupool.client.credentials import Metadata
from gpupool.client.errors import PoolUnavailableError, QueueTimeoutError
from gpupool.client.pool import PoolClient
from gpupool.client.types import LeaseRequest
from gpupool.shares import Share


def too_late() -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(
        grpc.StatusCode.DEADLINE_EXCEEDED, grpc.aio.Metadata(), grpc.aio.Metadata(), "Deadline Exceeded"
    )


class Token:
    """Of a user of a JupyterHub, which is slow where ``late``."""

    def __init__(self, *, late: bool) -> None:
        self._late = late

    async def metadata(self) -> Metadata:
        if self._late:
            raise too_late()
        return ()

    def refused(self, shown: Metadata) -> bool:
        return False

    def kept_good(self) -> contextlib.AbstractAsyncContextManager[None]:
        return contextlib.nullcontext()


class Answers:
    """Of a request that the pool does not end in time."""

    def __aiter__(self) -> Answers:
        return self

    async def __anext__(self) -> None:
        raise too_late()


@pytest.mark.parametrize(("late", "said"), [(True, PoolUnavailableError), (False, QueueTimeoutError)])
async def test_only_a_request_that_was_made_has_waited_in_the_queue(
    monkeypatch: pytest.MonkeyPatch, late: bool, said: type[Exception]
) -> None:
    async with PoolClient("10.0.0.5:7460") as client:
        monkeypatch.setattr(client, "_credentials", Token(late=late))
        monkeypatch.setattr(client, "_call_request", lambda *_: Answers())
        with pytest.raises(said):
            await client.request(LeaseRequest(Share(200)), wait_seconds=60.0)


#: After this long a call for a token is given up, seconds.
TOKEN_SECONDS = 10.0


class Clock:
    """Of a test that waits for nothing."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


class SilentServers:
    """None of them answers whoever asks for a token, but those in ``answering``."""

    def __init__(self, client: PoolClient, clock: Clock, *answering: str) -> None:
        self.asked: list[str] = []
        self._client = client
        self._clock = clock
        self._answering = answering

    async def metadata(self) -> Metadata:
        server = self._client._opened().asked
        self.asked.append(server)
        assert len(self.asked) < 10, "nobody ends this wait"
        if server not in self._answering:
            self._clock.now += TOKEN_SECONDS
            raise too_late()
        return ()

    def refused(self, shown: Metadata) -> bool:
        return False

    def kept_good(self) -> contextlib.AbstractAsyncContextManager[None]:
        return contextlib.nullcontext()


A, B = "10.0.0.5:7460", "10.0.0.6:7460"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()

    async def sleep(seconds: float) -> None:
        clock.now += seconds

    monkeypatch.setattr(pool_module, "time", clock)
    monkeypatch.setattr(servers_module, "time", clock)
    monkeypatch.setattr(asyncio, "sleep", sleep)
    return clock


@pytest.mark.parametrize(
    ("wait_seconds", "asked"), [(0.0, [A, B]), (15.0, [A, B]), (25.0, [A, B, A]), (None, [A, B, A])]
)
async def test_several_servers_that_give_no_token_are_not_waited_for_without_end(
    monkeypatch: pytest.MonkeyPatch, clock: Clock, wait_seconds: float | None, asked: list[str]
) -> None:
    async with PoolClient(f"{A},{B}") as client:
        servers = SilentServers(client, clock)
        monkeypatch.setattr(client, "_credentials", servers)
        with pytest.raises(PoolUnavailableError):
            await client.request(LeaseRequest(Share(200)), wait_seconds=wait_seconds)
        assert servers.asked == asked


async def test_a_request_that_does_not_wait_is_made_at_the_server_that_answers(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    async with PoolClient(f"{A},{B}") as client:
        servers = SilentServers(client, clock, B)
        monkeypatch.setattr(client, "_credentials", servers)
        monkeypatch.setattr(client, "_call_request", lambda *_: Answers())
        with pytest.raises(QueueTimeoutError):
            await client.request(LeaseRequest(Share(200)), wait_seconds=0.0)
        assert servers.asked == [A, B]

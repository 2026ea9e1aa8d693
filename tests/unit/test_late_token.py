"""A request for which the pool is late with the token of its caller, and not with the share."""

from __future__ import annotations

import contextlib

import grpc
import grpc.aio
import pytest
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

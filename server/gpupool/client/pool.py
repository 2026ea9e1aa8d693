"""The pool as an asynchronous Python object: typed calls over gRPC ``gpupool.v1``.

Every call has a deadline. Calls that may be repeated are repeated, with backoff, when the
connection breaks, at the next server of the pool where it has several: reads because they change nothing, ``request``
because its idempotency key always leads to the same lease, the others because they are idempotent at the pool.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import random
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NoReturn, Protocol, Self

import grpc
import grpc.aio

from gpupool.client import convert
from gpupool.client.credentials import (
    Credentials,
    HubCredentials,
    Metadata,
    TokenCredentials,
    hub_token,
    wants_hub_identity,
)
from gpupool.client.endpoint import connection_advice, open_channel, read_token, resolve_endpoint
from gpupool.client.errors import GpupoolError, PoolRefusedError, PoolUnavailableError, QueueTimeoutError
from gpupool.client.servers import (
    NOT_LEADER,
    Patience,
    PoolServers,
    Servers,
    pool_servers,
    reason_of,
)
from gpupool.client.services import CALL_SECONDS
from gpupool.client.types import (
    Caller,
    Device,
    Grant,
    HealthReport,
    Lease,
    LeaseRequest,
    LeaseStatus,
    Queue,
    QueuePlace,
    SessionInfo,
    Usage,
)
from gpupool.proto import pool_pb2, pool_pb2_grpc
from gpupool.shares import Share

#: How long ordinary calls are repeated while the pool cannot be reached, seconds.
RETRY_SECONDS: Final = 2.0
#: How long a server may take to say who leads, seconds.
DESCRIBE_SECONDS: Final = 3.0
#: How long a request that already waits rides out a pool restart, seconds.
REQUEUE_SECONDS: Final = 30.0
#: What somebody who waits meanwhile reads.
NO_ANSWER: Final = "The GPU pool does not answer. The request continues as soon as it does."
#: What a worker's start may take beyond the wait in the queue, seconds: memory may have to be moved away
#: first, and the session's own brought from another node.
START_SECONDS: Final = 480.0

#: Reasons of a server that will not serve this call, whatever it is: the pool itself has not answered.
_NOT_SERVED: Final = frozenset({NOT_LEADER, "stopping"})
_REASON_OF_STATUS: Final = {
    grpc.StatusCode.PERMISSION_DENIED: "forbidden",
    grpc.StatusCode.UNAUTHENTICATED: "forbidden",
    grpc.StatusCode.RESOURCE_EXHAUSTED: "full",
    grpc.StatusCode.NOT_FOUND: "unknown-lease",
    grpc.StatusCode.FAILED_PRECONDITION: "in-use",
    grpc.StatusCode.INVALID_ARGUMENT: "bad-share",
}


class PoolClient:
    """A connection to one pool. Use it as an async context manager, in one event loop.

    Opening it connects to nothing; the first call does. All methods raise
    :class:`PoolUnavailableError` when the pool cannot be reached within the stated time and
    :class:`PoolRefusedError` when it answers no.

    ``hub_identity``: the caller is the user of this process's JupyterHub; None: where ``GPUPOOL_HUB_IDENTITY`` says so
    and no token file is given. ``ca_file``: see :mod:`gpupool.client.endpoint`.
    """

    def __init__(
        self,
        endpoint: str | None = None,
        token_file: Path | None = None,
        *,
        hub_identity: bool | None = None,
        ca_file: Path | None = None,
    ) -> None:
        self.endpoint = resolve_endpoint(endpoint)
        self._token_file = token_file
        self._hub_identity = hub_identity
        self._ca_file = ca_file
        self._credentials: Credentials = TokenCredentials(None)
        self._servers: Servers | None = None
        #: Whether the pool has answered a call: one that never did is more likely named wrongly than about to come back.
        self._answered = False

    async def __aenter__(self) -> Self:
        of_hub = wants_hub_identity() and self._token_file is None
        if of_hub if self._hub_identity is None else self._hub_identity:
            self._credentials = HubCredentials(hub_token(self.endpoint), self._exchange)
        else:
            self._credentials = TokenCredentials(functools.partial(read_token, self._token_file))
        self._servers = Servers(self.endpoint, self._ca_file)
        self._servers.channel()  # what is wrong with it is said here
        return self

    async def _exchange(self, shown: Metadata) -> Any:
        exchange = self._service("Identities").Exchange
        return await exchange(pool_pb2.ExchangeRequest(), timeout=CALL_SECONDS, metadata=shown)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connection; leases stay as they are. May be called twice."""
        if self._servers is not None:
            await self._servers.close()

    async def request(
        self,
        request: LeaseRequest,
        *,
        on_queued: Callable[[QueuePlace], None] | None = None,
        wait_seconds: float | None = None,
    ) -> Grant:
        """Asks for shares and waits in the queue when they are not free.

        ``wait_seconds`` 0 refuses at once, None waits without limit. ``on_queued`` is called
        with each change of place. Cancelling the task leaves the queue.
        If a pool that has answered before does not answer now, a request that may wait goes on for half a minute, and
        ``on_queued`` hears of it as place 0.

        Raises:
            QueueTimeoutError: ``wait_seconds`` passed.
            PoolRefusedError: the pool will not grant this; the reason says why.
            PoolUnavailableError: the pool cannot be reached.
        """
        limit = None if wait_seconds is None or wait_seconds < 0 else time.monotonic() + wait_seconds
        servers = self._opened()
        patience = Patience(servers, RETRY_SECONDS, limit)
        queued = refused = silent = False
        while True:
            began = time.monotonic()
            remaining = None if limit is None else max(0.0, limit - began)
            asked = servers.asked
            metadata: Metadata = ()
            called = False
            try:
                metadata = await self._credentials.metadata()
                called = True
                async with self._credentials.kept_good():
                    async for event in self._call_request(request, remaining, metadata):
                        self._answered = True
                        refused = silent = False
                        patience.answered()
                        kind = event.WhichOneof("event")
                        if kind == "queued":
                            queued = True
                            if on_queued is not None:
                                on_queued(convert.queue_place(event.queued))
                        elif kind == "granted":
                            return convert.grant(event.granted)
                        elif kind == "refused":
                            self._raise_refusal(event.refused)
                raise PoolUnavailableError(self.endpoint, "it closed the request without an answer")
            except grpc.aio.AioRpcError as error:
                late = error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
                # Where the token was waited for, it is not the queue that took too long.
                if late and called and remaining is not None:
                    raise QueueTimeoutError(f"No GPU share became free within {wait_seconds:g} s.") from error
                if not refused and self._may_show_another(error, metadata):
                    refused = True
                    continue
                # The wait for a token has a deadline of its own: however long it was, no server has heard of the request.
                lasted = time.monotonic() - began if called else 0.0
                at_least = self._patience_of_request(wait_seconds, queued=queued)
                if not patience.failed(error, asked, at_least=at_least, lasted=lasted):
                    self._raise(error)
                if at_least > 0.0 and on_queued is not None and not silent:
                    silent = True
                    on_queued(QueuePlace(0, NO_ANSWER, None))
                await asyncio.sleep(0.25)

    def _patience_of_request(self, wait_seconds: float | None, *, queued: bool) -> float:
        """For how long a pool that does not answer is asked again, seconds."""
        if queued:
            return REQUEUE_SECONDS
        if not self._answered:
            return 0.0
        return (
            REQUEUE_SECONDS
            if wait_seconds is None or wait_seconds < 0
            else min(REQUEUE_SECONDS, wait_seconds)
        )

    def _call_request(self, request: LeaseRequest, remaining: float | None, metadata: Metadata) -> Any:
        message = convert.lease_request(request, -1.0 if remaining is None else remaining)
        deadline = None if remaining is None else remaining + START_SECONDS
        return self._service("Pool").Request(message, timeout=deadline, metadata=metadata)

    async def release(self, lease_id: str, reason: str = "release", close_session: bool = False) -> None:
        """Ends a lease; idempotent. The session parks, or closes when ``close_session``."""
        message = pool_pb2.ReleaseLease(lease_id=lease_id, reason=reason, close_session=close_session)
        await self._unary("Release", message)

    async def renew(self, lease_ids: Sequence[str]) -> dict[str, LeaseStatus]:
        """Extends leases. To be called every 5 s; a lease not renewed for 25 s is taken back."""
        answer = await self._unary("Renew", pool_pb2.RenewLeases(lease_ids=list(lease_ids)))
        return {item.lease_id: convert.lease_status(item) for item in answer.leases}

    async def resize(self, lease_id: str, share: Share) -> Grant:
        """Changes the size of a live lease on its device; refused with numbers if it does not fit."""
        message = pool_pb2.ResizeLease(lease_id=lease_id, milli=share.milli or 0, mib=share.mib or 0)
        return convert.grant(await self._unary("Resize", message))

    async def close_session(self, session_id: str, reason: str) -> None:
        """Ends a session and everything it holds; idempotent."""
        await self._unary("CloseSession", pool_pb2.CloseSessionRequest(session_id=session_id, reason=reason))

    async def devices(self) -> list[Device]:
        answer = await self._unary("ListDevices", pool_pb2.ListRequest())
        return [convert.device(item) for item in answer.devices]

    async def lenders(self) -> list[str]:
        """Providers that bring nodes when somebody needs them."""
        return list((await self._unary("ListDevices", pool_pb2.ListRequest())).lenders)

    async def leases(self, ids: Sequence[str] = ()) -> list[Lease]:
        """Leases that hold something, or those of ``ids``: the pool knows them for an hour after their end."""
        answer = await self._unary("ListLeases", pool_pb2.LeaseListRequest(ids=ids))
        return [convert.lease(item) for item in answer.leases]

    async def sessions(self) -> list[SessionInfo]:
        answer = await self._unary("ListSessions", pool_pb2.ListRequest())
        return [convert.session(item) for item in answer.sessions]

    async def queue(self) -> Queue:
        answer = await self._unary("ListQueue", pool_pb2.ListRequest())
        return Queue(map(convert.queue_entry, answer.entries), answer.left_out)

    async def usage(self, session_id: str) -> Usage:
        return convert.usage(await self._unary("GetUsage", pool_pb2.UsageRequest(session_id=session_id)))

    async def whoami(self) -> Caller:
        """Whom the pool takes this caller for."""
        answer = await self.call("Identities", "WhoAmI", pool_pb2.ListRequest())
        return Caller(answer.name, answer.role, tuple(answer.groups))

    async def servers(self, endpoint: str) -> PoolServers:
        """What one of the servers says of them all: which leads, and which stand by. It is asked once."""
        channel = open_channel(endpoint, self._ca_file)
        try:
            stub: Any = pool_pb2_grpc.ServersStub
            metadata = await self._credentials.metadata()
            answer = await stub(channel).Describe(
                pool_pb2.ListRequest(), timeout=DESCRIBE_SECONDS, metadata=metadata
            )
        except grpc.aio.AioRpcError as error:
            self._raise(error, endpoint)
        finally:
            await channel.close(None)
        return pool_servers(answer)

    async def health(self) -> HealthReport:
        return convert.health_report(await self._unary("Health", pool_pb2.HealthRequest()))

    async def call(self, service: str, name: str, message: Any, seconds: float = CALL_SECONDS) -> Any:
        """One call of another service of ``gpupool.v1``, for the classes that know its messages.

        ``seconds``: its deadline.
        """
        return await self._repeated(service, name, message, seconds)

    async def stream(self, service: str, name: str, message: Any) -> AsyncIterator[Any]:
        """The messages of a call that answers with several; it ends with the last, or when it is closed."""
        servers = self._opened()
        patience = Patience(servers, 0.0)
        begun = False
        while True:
            asked = servers.asked
            try:
                metadata = await self._credentials.metadata()
                async with self._credentials.kept_good():
                    async for item in getattr(self._service(service), name)(message, metadata=metadata):
                        begun = True
                        yield item
                return
            except grpc.aio.AioRpcError as error:
                # What has been handed on cannot be taken back.
                if begun or not patience.failed(error, asked) or not servers.several:
                    self._raise(error)
            await asyncio.sleep(0.25)

    def _service(self, service: str) -> Any:
        stub: Any = getattr(pool_pb2_grpc, f"{service}Stub")
        return stub(self._opened().channel())

    def _opened(self) -> Servers:
        if self._servers is None:
            raise RuntimeError("a PoolClient is used within `async with`")
        return self._servers

    async def _unary(self, name: str, message: Any) -> Any:
        return await self._repeated("Pool", name, message)

    async def _repeated(self, service: str, name: str, message: Any, seconds: float = CALL_SECONDS) -> Any:
        servers = self._opened()
        patience = Patience(servers, RETRY_SECONDS)
        refused = False
        # Retry libraries would bring a web framework along into kernels; this is the whole of it.
        for pause in itertools.chain((0.05, 0.1, 0.2), itertools.repeat(0.4)):
            asked = servers.asked
            metadata: Metadata = ()
            try:
                with servers.asking():
                    metadata = await self._credentials.metadata()
                    call = getattr(self._service(service), name)
                    answer = await call(message, timeout=seconds, metadata=metadata)
                self._answered = True
                return answer
            except grpc.aio.AioRpcError as error:
                if not refused and self._may_show_another(error, metadata):
                    refused = True
                    continue
                if not patience.failed(error, asked):
                    self._raise(error)
            await asyncio.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311
        raise AssertionError("a retry loop ends by an answer or an error")

    def _may_show_another(self, error: grpc.aio.AioRpcError, shown: Metadata) -> bool:
        """Whether the pool forgot a short-lived token, at its restart say, and another may be had."""
        return error.code() is grpc.StatusCode.UNAUTHENTICATED and self._credentials.refused(shown)

    def _raise_refusal(self, refusal: Any) -> NoReturn:
        details = convert.explanation(refusal.details)
        if refusal.reason == "timeout":
            raise QueueTimeoutError(details.sentence, details)
        raise PoolRefusedError(refusal.reason, details.sentence, details)

    def _raise(self, error: grpc.aio.AioRpcError, endpoint: str | None = None) -> NoReturn:
        """One sentence out of a gRPC status."""
        details = (error.details() or "").strip()
        reason = reason_of(error) or _REASON_OF_STATUS.get(error.code())
        if reason is not None and reason not in _NOT_SERVED:
            raise PoolRefusedError(reason, details or reason) from error
        advice = connection_advice(endpoint or self.endpoint, details)
        short = (
            "the TLS handshake failed" if "handshake" in details.lower() else _short(error.code(), details)
        )
        raise PoolUnavailableError(endpoint or self.endpoint, short, advice) from error


def _short(code: grpc.StatusCode, details: str) -> str:
    """The useful part of gRPC's connection errors."""
    for known in ("No such file or directory", "Connection refused", "Permission denied", "Socket closed"):
        if known in details:
            return known.lower()
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return "no answer in time"
    return details.splitlines()[0][:200] if details else code.name.lower().replace("_", " ")


class _Queues(Protocol):
    async def queue(self) -> Queue: ...


async def queue_of(pool: _Queues) -> Queue | None:
    """Who waits; None: the pool does not say, which takes nothing from what it says of its devices."""
    try:
        return await pool.queue()
    except GpupoolError:
        return None

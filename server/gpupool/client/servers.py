"""The servers of one pool, and which of them is asked: one leads, and after its end another.

Nothing is remembered beyond the process, and no server's word counts for who leads: one that does not lead refuses a
call, and the next one is asked.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio

from gpupool.client.endpoint import open_channel, parse_endpoints

#: The reason with which a server refuses that does not lead.
NOT_LEADER: Final = "not-leader"
#: A standby that answers takes over within this time, or another one does, seconds.
TAKEOVER_SECONDS: Final = 20.0
#: No attempt to reach a server takes longer to fail, seconds.
HEARD_SECONDS: Final = 8.0
#: Who gives a call up that was not answered for so long is served by the next server, seconds.
SILENT_SECONDS: Final = 2.0
#: Where several are named one may be about to take over, though none has said so, seconds.
SEVERAL_SECONDS: Final = 8.0
#: Failures that say nothing about the call itself: it may be repeated, at another server too.
BROKEN: Final = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        # A server above its limit of pending calls answers CANCELLED.
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.INTERNAL,
    }
)


@dataclass(frozen=True, slots=True)
class PoolServer:
    """One server of a pool.

    Attributes:
        name: of its machine.
        address: where it says that callers reach it.
        epoch: under which it leads; each leader has a higher one than those before. 0: it stands by.
        since_unix: when it began to do so.
        silent_seconds: since it was seen last.
    """

    id: str
    name: str
    address: str
    version: str
    epoch: int
    since_unix: float
    silent_seconds: float


@dataclass(frozen=True, slots=True)
class PoolServers:
    """What one server says of all.

    Attributes:
        servers: the leader first; empty: there can be but one.
        answered_by: the id of the one that answered.
        leads: whether that one leads.
        problem: why it could not take over now; empty: nothing is in its way.
    """

    servers: tuple[PoolServer, ...]
    answered_by: str
    leads: bool
    problem: str


class ServerRing:
    """The servers of a pool, one of which is asked.

    Args:
        endpoint: as :func:`gpupool.client.endpoint.parse_endpoints` reads it.

    Raises:
        EndpointError: the endpoint is none.
    """

    def __init__(self, endpoint: str) -> None:
        self.endpoints = parse_endpoints(endpoint)
        self._asked = 0

    @property
    def asked(self) -> str:
        """The one that is asked now."""
        return self.endpoints[self._asked]

    @property
    def several(self) -> bool:
        return len(self.endpoints) > 1

    def turn_from(self, endpoint: str) -> None:
        """Asks the next one from now on, unless a call beside this one has turned away from `endpoint` already."""
        if endpoint == self.asked:
            self._asked = (self._asked + 1) % len(self.endpoints)


class Servers(ServerRing):
    """With channels to them, opened when they are needed. ``ca_file``: of a TLS pool."""

    def __init__(self, endpoint: str, ca_file: Path | None = None) -> None:
        super().__init__(endpoint)
        self._ca_file = ca_file
        self._channels: dict[str, grpc.aio.Channel] = {}

    def channel(self) -> grpc.aio.Channel:
        """To the one that is asked now.

        Raises:
            GpupoolError: the file of authorities cannot be used.
        """
        found = self._channels.get(self.asked)
        if found is None:
            found = self._channels[self.asked] = open_channel(self.asked, self._ca_file)
        return found

    @contextlib.contextmanager
    def asking(self) -> Iterator[str]:
        """The server that is asked now, for one call.

        A process that is stopped keeps its connections and answers nothing. Those who lose patience with it, before the
        call's own deadline, would ask it again and again.
        """
        endpoint, began = self.asked, time.monotonic()
        try:
            yield endpoint
        except asyncio.CancelledError:
            if time.monotonic() - began >= SILENT_SECONDS:
                self.turn_from(endpoint)
            raise

    async def close(self) -> None:
        """Closes all connections. May be called twice."""
        channels, self._channels = list(self._channels.values()), {}
        for channel in channels:
            await channel.close(None)


class Patience:
    """How long one call is repeated, from its first failure on; it does not end before each server has failed.

    Servers that are stopped take longer to fail than all patience lasts, and the last one may be the one that leads. The
    token of a call counts as the call: who gives none has not answered either.

    Args:
        servers: where.
        seconds: while no server answers.
        until: beyond this moment, on the monotonic clock, a silent server is not waited for twice; None: there is none.
    """

    def __init__(self, servers: ServerRing, seconds: float, until: float | None = None) -> None:
        self._servers = servers
        self._seconds = seconds
        self._until = until
        self._since: float | None = None
        self._standby = False
        self._failed: set[str] = set()

    def answered(self) -> None:
        """All is well again."""
        self._since, self._standby = None, False
        self._failed.clear()

    def failed(
        self, error: grpc.aio.AioRpcError, endpoint: str, *, at_least: float = 0.0, lasted: float = 0.0
    ) -> bool:
        """Whether a call that failed at `endpoint` is to be repeated; if so, at the next server.

        Args:
            error: the failure.
            endpoint: where.
            at_least: the patience of this call, seconds.
            lasted: how long a call without a deadline had been under way, seconds. One that lasted was heard, though it
                was not answered yet; what failed before it is over.
        """
        # A server that is stopped, or cut off, answers nothing; where there is no other, nobody else could.
        silent = error.code() is grpc.StatusCode.DEADLINE_EXCEEDED and self._servers.several
        if error.code() not in BROKEN and not silent:
            return False
        now = time.monotonic()
        if self._since is None or lasted > HEARD_SECONDS:
            self._since = now
            self._failed.clear()
        self._standby = self._standby or reason_of(error) == NOT_LEADER or silent
        self._failed.add(endpoint)
        self._servers.turn_from(endpoint)
        if not self._failed.issuperset(self._servers.endpoints):
            return True
        if silent and self._until is not None and now >= self._until:
            return False
        takeover = TAKEOVER_SECONDS if self._standby else SEVERAL_SECONDS if self._servers.several else 0.0
        most = max(self._seconds, at_least, takeover)
        return now - self._since <= most


def reason_of(error: grpc.aio.AioRpcError) -> str | None:
    """The id with which the pool refused; None: it gave none, or it was not the pool."""
    named: Any = dict(error.trailing_metadata() or ()).get("gpupool-reason")
    return named if isinstance(named, str) else None


def pool_servers(message: Any) -> PoolServers:
    """What a server has answered to who leads."""
    servers = tuple(
        PoolServer(x.id, x.name, x.address, x.version, x.epoch, x.since_unix, x.silent_seconds)
        for x in message.servers
    )
    return PoolServers(servers, message.answered_by, message.leads, message.problem)

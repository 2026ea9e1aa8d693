"""A pool server's addresses: the same ones while it leads and while it stands by."""

from __future__ import annotations

import asyncio
import socket as sockets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import grpc.aio

from gpupool.client.agreement import own_version
from gpupool.ledger.servers import ServerIdentity
from gpupool.pool.access.listening import ServeError, bind_socket, bind_tcp, host_and_port
from gpupool.pool.access.own_certificate import own_certificate
from gpupool.pool.access.tls_files import TlsFiles
from gpupool.pool.leading.lead_times import LeadTimes
from gpupool.pool.options import SOCKET_NAME, ServeOptions, Serving

GRPC_OPTIONS = [
    # Without these gRPC sheds load above 1,000 pending calls, as CANCELLED, which clients cannot tell from a bug.
    ("grpc.server.max_pending_requests", 100_000),
    ("grpc.server.max_pending_requests_hard_limit", 200_000),
    # And calls that it could not begin to serve within 30 s, the same way: a crowd would be told that it had hung up.
    ("grpc.server_max_unrequested_time_in_server", 600),
    ("grpc.max_concurrent_streams", 100_000),
    ("grpc.max_receive_message_length", 16 * 1024 * 1024),
    # Two servers on one port would be two pools.
    ("grpc.so_reuseport", 0),
    # Find dead peers (half-open TCP) within 20 s, and allow clients to look as often.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    # Each connection is a file of the server's: who says nothing, or calls nothing, gives it back. Clients connect again by
    # themselves when they have something to say. A crowd that comes at once needs some time for its handshakes.
    ("grpc.server_handshake_timeout_ms", 60_000),
    ("grpc.max_connection_idle_ms", 120_000),
]


@dataclass(slots=True)
class Place:
    """A server through all its times as leader and as standby. `listen`: with the port that it got, once it has one."""

    options: ServeOptions
    directory: Path
    stop: asyncio.Event
    ready: Callable[[Serving], None] | None
    times: LeadTimes = field(default_factory=LeadTimes)
    #: Ends the standby that still listens there: callers are refused, rather than not answered, until all is ready.
    leave: Callable[[], Awaitable[None]] | None = None

    def identity(self) -> ServerIdentity:
        """A new one each time: a server that was deposed is another one when it leads again."""
        return ServerIdentity(sockets.gethostname(), self.reached_at or f"unix:{self.socket}", own_version())

    @property
    def reached_at(self) -> str:
        """What other machines dial; empty: this server listens on this one alone."""
        listen = self.options.listen
        if listen is None:
            return ""
        encrypted = self.options.tls is not None or self.options.tls_self_signed
        return f"{'tls:' if encrypted else ''}{_named(listen)}:{listen.rpartition(':')[2]}"

    @property
    def own_authority(self) -> Path | None:
        """The file with which callers trust a certificate of our own; None: we made none."""
        tls = self._tls() if self.options.tls_self_signed else None
        return None if tls is None else tls.certificate

    def _tls(self) -> TlsFiles | None:
        """Raises ServeError: a certificate cannot be made."""
        if not self.options.tls_self_signed or self.options.listen is None:
            return self.options.tls
        host = _named(self.options.listen).strip("[]")
        try:
            return own_certificate(self.directory.absolute() / "tls", host)
        except (OSError, ValueError) as error:
            raise ServeError(f"no certificate can be made for {host[:200]!r}: {error}") from error

    @property
    def socket(self) -> Path:
        return (self.options.socket or self.directory / SOCKET_NAME).absolute()

    async def vacate(self) -> None:
        """Nobody listens there any more. May be called twice."""
        leave, self.leave = self.leave, None
        if leave is not None:
            await leave()

    async def bind(self, server: grpc.aio.Server) -> int:
        """Lets a server listen at both addresses, in the place of the standby that did; the TCP port, 0 without."""
        await self.vacate()
        bind_socket(server, self.socket)
        listen = self.options.listen
        if listen is None:
            return 0
        port = bind_tcp(server, listen, self._tls())
        self.options = replace(self.options, listen=f"{listen.rpartition(':')[0]}:{port}")
        return port


def _named(listen: str) -> str:
    """The host of `host:port` as others dial it. Raises AddressError: it is something else."""
    host, _ = host_and_port(listen)
    anywhere = host.strip("[]") in ("0.0.0.0", "::")  # noqa: S104 (compared, not bound)
    return sockets.gethostname() if anywhere else host

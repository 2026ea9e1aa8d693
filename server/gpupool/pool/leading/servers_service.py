"""The `Servers` service: which servers this pool has, and which one leads."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gpupool.ledger.servers import ServerRow
from gpupool.pool.leading.leadership import Leadership
from gpupool.proto.gpupool.v1 import pool_pb2 as pb
from gpupool.proto.gpupool.v1 import pool_pb2_grpc


class ServersService(pool_pb2_grpc.ServersServicer):
    """Of the server that leads. `leadership`: None: the ledger is a file, and there is one server."""

    def __init__(self, leadership: Leadership | None) -> None:
        self._leadership = leadership

    async def Describe(self, request: pb.ListRequest, context: Any) -> pb.ServerList:
        if self._leadership is None:
            return pb.ServerList(leads=True)
        return listed(self._leadership.servers, self._leadership.me.id, leads=True)


def listed(
    servers: Iterable[ServerRow], answered_by: str, *, leads: bool, problem: str = ""
) -> pb.ServerList:
    """The answer of either kind of server."""
    rows = [
        pb.PoolServer(
            id=row.id, name=row.name, address=row.address, version=row.version, epoch=row.epoch,
            since_unix=row.since_unix, silent_seconds=row.silent_seconds,
        )
        for row in servers
    ]  # fmt: skip
    return pb.ServerList(servers=rows, answered_by=answered_by, leads=leads, problem=problem)

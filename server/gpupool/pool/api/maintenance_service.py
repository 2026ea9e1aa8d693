"""The `Maintenance` service: a backup while the pool runs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import grpc
import structlog

from gpupool.ledger import backup
from gpupool.pool.access.auth import current_identity, refuse
from gpupool.pool.lifecycle.shell import PoolShell
from gpupool.proto.gpupool.v1 import pool_pb2 as pb
from gpupool.proto.gpupool.v1 import pool_pb2_grpc

logger = structlog.get_logger(__name__)


class MaintenanceService(pool_pb2_grpc.MaintenanceServicer):
    """For administrators. Copying and reading are done in threads: the pool goes on meanwhile."""

    def __init__(self, pool: PoolShell) -> None:
        self._pool = pool
        self._one_at_a_time = asyncio.Lock()

    async def Backup(self, request: pb.BackupRequest, context: Any) -> AsyncIterator[pb.BackupChunk]:
        path = self._pool.ledger.database.path
        if path is None:
            text = (
                f"the ledger is in {self._pool.ledger.name}; make backups of it with pg_dump, "
                "and after a restore run `gpupool pool restore --ledger URL`"
            )
            await refuse(context, grpc.StatusCode.UNIMPLEMENTED, "not-a-file", text)
        if self._one_at_a_time.locked():
            text = "another backup is being made; try again when it is done"
            await refuse(context, grpc.StatusCode.RESOURCE_EXHAUSTED, "busy", text)
        async with self._one_at_a_time:
            copying = backup.copy_of(path)
            try:
                copy = await asyncio.to_thread(copying.__enter__)
            except (backup.BackupError, OSError) as error:
                await refuse(context, grpc.StatusCode.INTERNAL, "backup", str(error))
            try:
                info = await asyncio.to_thread(backup.check, copy)
                pieces = backup.pieces(copy)
                while piece := await asyncio.to_thread(next, pieces, b""):
                    yield pb.BackupChunk(data=piece)
                yield pb.BackupChunk(sha256=info.sha256)
                logger.info("backup made", by=current_identity().name, bytes=info.size, sha256=info.sha256)
            except backup.BackupError as error:
                await refuse(context, grpc.StatusCode.INTERNAL, "backup", str(error))
            finally:
                with contextlib.suppress(OSError):
                    await asyncio.to_thread(copying.__exit__, None, None, None)

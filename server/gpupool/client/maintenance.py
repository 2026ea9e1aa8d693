"""What administrators do with the pool as a whole."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc
import grpc.aio

from gpupool.client.endpoint import metadata, read_token, resolve_endpoint
from gpupool.client.errors import GpupoolError, PoolRefusedError, PoolUnavailableError
from gpupool.client.servers import NOT_LEADER, Servers, reason_of
from gpupool.proto import pool_pb2, pool_pb2_grpc


class MaintenanceClient:
    """A connection for maintenance. Use it as an async context manager."""

    def __init__(self, endpoint: str | None = None, token_file: Path | None = None) -> None:
        self.endpoint = resolve_endpoint(endpoint)
        self._token_file = token_file
        self._metadata: tuple[tuple[str, str], ...] = ()
        self._servers: Servers | None = None

    async def __aenter__(self) -> Self:
        self._metadata = metadata(read_token(self._token_file))
        self._servers = Servers(self.endpoint)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._servers is not None:
            await self._servers.close()

    async def backup(self, write: Callable[[bytes], object]) -> str:
        """Hands a copy of the ledger to `write`, piece by piece, and returns its SHA-256, which was compared.

        Raises:
            PoolRefusedError: the caller is no administrator, or the ledger is no file.
            PoolUnavailableError: the pool cannot be reached, or broke off.
            GpupoolError: what arrived is not what was sent.
        """
        assert self._servers is not None
        digest, promised = hashlib.sha256(), ""
        for left in reversed(range(len(self._servers.endpoints))):
            try:
                stub: Any = pool_pb2_grpc.MaintenanceStub
                call = stub(self._servers.channel()).Backup
                async for chunk in call(pool_pb2.BackupRequest(), metadata=self._metadata):
                    digest.update(chunk.data)
                    write(chunk.data)
                    promised = chunk.sha256 or promised
                break
            except grpc.aio.AioRpcError as error:
                details = (error.details() or "").strip()
                reason = reason_of(error)
                if reason == NOT_LEADER and left:
                    self._servers.turn_from(self._servers.asked)
                    continue
                if reason is not None and reason != NOT_LEADER:
                    raise PoolRefusedError(reason, details) from error
                raise PoolUnavailableError(
                    self.endpoint, details.splitlines()[0][:200] if details else ""
                ) from error
        if promised != digest.hexdigest():
            raise GpupoolError("The backup broke off, or was changed on its way; nothing was kept.")
        return promised

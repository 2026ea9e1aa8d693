"""What administrators do with the pool as a whole."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc
import grpc.aio

from gpupool.client.endpoint import metadata, open_channel, read_token, resolve_endpoint
from gpupool.client.errors import GpupoolError, PoolRefusedError, PoolUnavailableError
from gpupool.proto import pool_pb2, pool_pb2_grpc


class MaintenanceClient:
    """A connection for maintenance. Use it as an async context manager."""

    def __init__(self, endpoint: str | None = None, token_file: Path | None = None) -> None:
        self.endpoint = resolve_endpoint(endpoint)
        self._token_file = token_file
        self._metadata: tuple[tuple[str, str], ...] = ()
        self._channel: grpc.aio.Channel | None = None
        self._stub: Any = None

    async def __aenter__(self) -> Self:
        self._metadata = metadata(read_token(self._token_file))
        self._channel = open_channel(self.endpoint)
        stub: Any = pool_pb2_grpc.MaintenanceStub
        self._stub = stub(self._channel)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close(None)

    async def backup(self, write: Callable[[bytes], object]) -> str:
        """Hands a copy of the ledger to `write`, piece by piece, and returns its SHA-256, which was compared.

        Raises:
            PoolRefusedError: the caller is no administrator, or the ledger is no file.
            PoolUnavailableError: the pool cannot be reached, or broke off.
            GpupoolError: what arrived is not what was sent.
        """
        digest, promised = hashlib.sha256(), ""
        try:
            async for chunk in self._stub.Backup(pool_pb2.BackupRequest(), metadata=self._metadata):
                digest.update(chunk.data)
                write(chunk.data)
                promised = chunk.sha256 or promised
        except grpc.aio.AioRpcError as error:
            details = (error.details() or "").strip()
            named = dict(error.trailing_metadata() or ()).get("gpupool-reason")
            if isinstance(named, str):
                raise PoolRefusedError(named, details) from error
            raise PoolUnavailableError(
                self.endpoint, details.splitlines()[0][:200] if details else ""
            ) from error
        if promised != digest.hexdigest():
            raise GpupoolError("The backup broke off, or was changed on its way; nothing was kept.")
        return promised

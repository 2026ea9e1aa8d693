"""What administrators do with the pool as a whole."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from gpupool.client.errors import GpupoolError
from gpupool.client.pool import PoolClient
from gpupool.proto import pool_pb2


async def backup(pool: PoolClient, write: Callable[[bytes], object]) -> str:
    """Hands a copy of the ledger to `write`, piece by piece, and returns its SHA-256, which was compared.

    Raises:
        PoolRefusedError: the caller is no administrator, or the ledger is no file.
        PoolUnavailableError: the pool cannot be reached, or broke off.
        GpupoolError: what arrived is not what was sent.
    """
    digest, promised = hashlib.sha256(), ""
    async for chunk in pool.stream("Maintenance", "Backup", pool_pb2.BackupRequest()):
        digest.update(chunk.data)
        write(chunk.data)
        promised = chunk.sha256 or promised
    if promised != digest.hexdigest():
        raise GpupoolError("The backup broke off, or was changed on its way; nothing was kept.")
    return promised

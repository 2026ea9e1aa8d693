"""What the extension needs of a pool; :class:`gpupool.client.pool.PoolClient` provides it."""

from __future__ import annotations

from typing import Any, Protocol

from gpupool.client.session import port as session
from gpupool.client.types import Caller, Device, Queue, Usage


class Pool(session.Pool, Protocol):
    """A connection to a pool. All methods may raise ``PoolUnavailableError`` and ``PoolRefusedError``."""

    @property
    def endpoint(self) -> str: ...

    async def devices(self) -> list[Device]: ...

    async def lenders(self) -> list[str]: ...

    async def queue(self) -> Queue: ...

    async def usage(self, session_id: str) -> Usage: ...

    async def call(self, service: str, name: str, message: Any, seconds: float = ...) -> Any:
        """One call of another service, for the client library's classes that know its messages."""

    async def whoami(self) -> Caller: ...

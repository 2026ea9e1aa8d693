"""What the extension needs of a pool; :class:`gpupool.client.pool.PoolClient` provides it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from gpupool.client.types import (
    Ask,
    Caller,
    Device,
    Grant,
    Lease,
    LeaseStatus,
    QueueEntry,
    QueuePlace,
    SessionInfo,
    Usage,
)
from gpupool.shares import Share

#: States of a session at the pool in which its memory can be reached again.
SESSION_LIVES: Final = frozenset({"starting", "queued", "attached", "warned", "parked"})


class Pool(Protocol):
    """A connection to a pool. All methods may raise ``PoolUnavailable`` and ``PoolRefused``."""

    @property
    def endpoint(self) -> str: ...

    async def request(
        self,
        ask: Ask,
        *,
        on_queued: Callable[[QueuePlace], None] | None = None,
        wait_seconds: float | None = None,
    ) -> Grant: ...

    async def release(self, lease_id: str, reason: str = ..., close_session: bool = ...) -> None: ...

    async def renew(self, lease_ids: Sequence[str]) -> dict[str, LeaseStatus]: ...

    async def resize(self, lease_id: str, share: Share) -> Grant: ...

    async def close_session(self, session_id: str, reason: str) -> None: ...

    async def devices(self) -> list[Device]: ...

    async def leases(self) -> list[Lease]: ...

    async def sessions(self) -> list[SessionInfo]: ...

    async def queue(self) -> list[QueueEntry]: ...

    async def usage(self, session_id: str) -> Usage: ...

    async def call(self, service: str, name: str, message: Any, seconds: float = ...) -> Any:
        """One call of another service, for the client library's classes that know its messages."""

    async def whoami(self) -> Caller: ...

"""What a session needs of a pool; :class:`gpupool.client.pool.PoolClient` provides it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from gpupool.client.types import Grant, Lease, LeaseRequest, LeaseStatus, QueuePlace, SessionInfo
from gpupool.shares import Share

#: States of a session at the pool in which its memory can be reached again.
SESSION_LIVES: Final = frozenset({"starting", "queued", "attached", "warned", "parked"})


class Pool(Protocol):
    """A connection to a pool. All methods may raise ``PoolUnavailableError`` and ``PoolRefusedError``."""

    async def request(
        self,
        request: LeaseRequest,
        *,
        on_queued: Callable[[QueuePlace], None] | None = None,
        wait_seconds: float | None = None,
    ) -> Grant: ...

    async def release(self, lease_id: str, reason: str = ..., close_session: bool = ...) -> None: ...

    async def renew(self, lease_ids: Sequence[str]) -> dict[str, LeaseStatus]: ...

    async def resize(self, lease_id: str, share: Share) -> Grant: ...

    async def close_session(self, session_id: str, reason: str) -> None: ...

    async def leases(self) -> list[Lease]: ...

    async def sessions(self) -> list[SessionInfo]: ...

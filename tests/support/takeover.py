"""Many programs' worth of attaches through one client library, while pool servers come and go."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

from gpupool.client.errors import GpupoolError, PoolRefusedError, PoolUnavailableError
from gpupool.client.pool import PoolClient
from gpupool.client.types import LeaseRequest
from gpupool.shares import Share

#: Attaches that one connection has under way.
_PER_CLIENT = 50
MILLI = 200
_GIVING_BACK_SECONDS = 300.0
#: The pool gave a share, and its worker, or its node, did not live to serve it.
_ENDED = frozenset({"lease-ended", "worker-failed", "lost"})


@dataclass(frozen=True, slots=True)
class Figures:
    """Seconds from the death of the leader: until a request was granted again, and until all had what they asked for."""

    granted_before: int
    first_answer_seconds: float
    all_seconds: float


@dataclass
class Askers:
    """Each asks for a share, waits, has it for a moment and gives it back.

    Attributes:
        granted: by key: lease, session, epoch.
        lost: what went wrong for good, by key.
        again: requests that were answered, but not with a share that lasts (its worker could not start, say), and were
            made anew.
        stop: set, nobody begins anew.
    """

    endpoint: str
    count: int
    held_seconds: float = 0.05
    granted: dict[str, tuple[str, str, int]] = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)
    granted_at: list[float] = field(default_factory=list)
    again: list[str] = field(default_factory=list)
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    @staticmethod
    def now() -> float:
        return time.monotonic()

    async def run(self) -> None:
        keys = [f"ask-{number:05d}" for number in range(self.count)]
        groups = [keys[first : first + _PER_CLIENT] for first in range(0, self.count, _PER_CLIENT)]
        await asyncio.gather(*(self._client(group) for group in groups))

    async def run_on(self) -> None:
        """`count` of them ask again and again, until `stop`."""
        async with PoolClient(self.endpoint) as pool:
            await asyncio.gather(*(self._again_and_again(pool, number) for number in range(self.count)))

    async def until(self, granted: int) -> None:
        """Waits until so many have been granted."""
        async with self._changed:
            await self._changed.wait_for(lambda: len(self.granted) >= granted)

    def figures(self, killed_at: float) -> Figures:
        after = sorted(moment - killed_at for moment in self.granted_at if moment > killed_at)
        before = len(self.granted_at) - len(after)
        return Figures(before, after[0] if after else 0.0, after[-1] if after else 0.0)

    async def _client(self, keys: list[str]) -> None:
        async with PoolClient(self.endpoint) as pool:
            await asyncio.gather(*(self._one(pool, key) for key in keys))

    async def _again_and_again(self, pool: PoolClient, number: int) -> None:
        turn = 0
        while not self.stop.is_set():
            await self._one(pool, f"{number}-{turn}")
            turn += 1

    async def _one(self, pool: PoolClient, key: str) -> None:
        try:
            grant = await pool.request(LeaseRequest(share=Share(milli=MILLI), idempotency_key=key))
            self.granted_at.append(self.now())
            async with self._changed:
                self.granted[key] = (grant.lease_id, grant.session_id, grant.epoch)
                self._changed.notify_all()
            await asyncio.sleep(self.held_seconds)
            await self._give_back(pool, grant.lease_id)
        except PoolRefusedError as error:
            if error.reason not in _ENDED:
                self.lost.append(f"{key}: {error.reason}: {error}")
                return
            self.again.append(f"{key}: {error.reason}")
            await self._one(pool, f"{key}+")
        except GpupoolError as error:
            self.lost.append(f"{key}: {error}")

    @staticmethod
    async def _give_back(pool: PoolClient, lease_id: str) -> None:
        """Again and again while the pool is away, as a holder does."""
        end = time.monotonic() + _GIVING_BACK_SECONDS
        while True:
            try:
                await pool.release(lease_id, "exit", close_session=True)
                return
            except PoolUnavailableError:
                if time.monotonic() > end:
                    raise
            await asyncio.sleep(1)

"""The client library for code that has no event loop: a pool client and a holder of leases, as the Jupyter side and
`gpupool run` have them, in a loop on a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Self, TypeVar

from gpupool.client.holder import LeaseHolder
from gpupool.client.pool import PoolClient
from gpupool.client.types import LeaseStatus

T = TypeVar("T")


class PoolPortal:
    """`with PoolPortal(endpoint, seconds) as portal: portal(portal.pool.devices())`."""

    def __init__(self, endpoint: str, renew_seconds: float, *, token_file: Path | None = None) -> None:
        self._endpoint = endpoint
        self._token_file = token_file
        self._renew_seconds = renew_seconds
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="pool portal", daemon=True)
        self._told = threading.Lock()
        self._ends: dict[str, LeaseStatus] = {}

    def __enter__(self) -> Self:
        self._thread.start()
        self(self._open())
        return self

    def __exit__(self, *_: object) -> None:
        self(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def __call__(self, work: Coroutine[Any, Any, T], seconds: float = 90.0) -> T:
        """Runs it in the loop and waits; a time-out is a hang that the caller did not expect."""
        return asyncio.run_coroutine_threadsafe(asyncio.wait_for(work, seconds), self._loop).result()

    def hold(self, lease: str) -> None:
        self._loop.call_soon_threadsafe(self.holder.hold, lease)

    def drop(self, lease: str) -> None:
        self._loop.call_soon_threadsafe(self.holder.drop, lease)

    def ends(self) -> dict[str, LeaseStatus]:
        """Leases that the pool ended, since they were last asked for."""
        with self._told:
            ends, self._ends = self._ends, {}
        return ends

    def _ended(self, status: LeaseStatus) -> None:
        with self._told:
            self._ends[status.lease_id] = status

    async def _open(self) -> None:
        self.pool = PoolClient(self._endpoint, self._token_file)
        await self.pool.__aenter__()
        self.holder = LeaseHolder(self.pool, on_ended=self._ended, interval_seconds=self._renew_seconds)
        await self.holder.__aenter__()

    async def _close(self) -> None:
        await self.holder.close()
        await self.pool.close()

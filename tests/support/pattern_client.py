"""A session as its holder has it: a lease that is renewed, a session file, and a program that knows every byte."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from gpupool.client.holder import LeaseHolder
from gpupool.client.native import native_directory
from gpupool.client.pool import PoolClient
from gpupool.client.session_file import SessionFile
from gpupool.client.types import Grant, LeaseRequest, LeaseStatus, QueuePlace, SessionInfo
from gpupool.shares import Share

from tests.support.forked_program import Program

PROGRAM = Path(__file__).with_name("pattern_program.py")


class PatternClient:
    """One session: what a notebook kernel and its server are to the pool."""

    def __init__(self, holder: Holder, folder: Path) -> None:
        self.holder = holder
        self.file = SessionFile(folder / "session")
        self.log = folder / "client.log"
        self.program = PROGRAM
        self.grant: Grant | None = None
        self.queued: list[QueuePlace] = []
        self._process: Program | None = None

    @property
    def session_id(self) -> str:
        assert self.grant is not None
        return self.grant.session_id

    @property
    def lease_id(self) -> str:
        assert self.grant is not None
        return self.grant.lease_id

    @property
    def devices(self) -> list[str]:
        assert self.grant is not None
        return [share.device_id for share in self.grant.shares]

    async def attach(self, milli: int, wait: float | None = 60.0, **more: Any) -> Grant:
        """A first share, or one to go on with."""
        session = self.grant.session_id if self.grant is not None else ""
        request = LeaseRequest(
            Share(milli=milli), session_id=session, label=self.file.path.parent.name, **more
        )
        self.queued.clear()
        self.grant = await self.holder.pool.request(request, on_queued=self.queued.append, wait_seconds=wait)
        self.holder.leases.hold(self.grant.lease_id)
        self.tell()
        return self.grant

    def tell(self) -> None:
        assert self.grant is not None
        self.file.write_attached(self.grant, log=str(self.log))

    async def detach(self, reason: str = "release", *, close: bool = False) -> None:
        self.holder.leases.drop(self.lease_id)
        self.file.write(
            "parked", session=self.session_id, message="given back", software=True, log=str(self.log)
        )
        await self.holder.pool.release(self.lease_id, reason, close)

    async def resize(self, milli: int) -> Grant:
        self.grant = await self.holder.pool.resize(self.lease_id, Share(milli=milli))
        self.tell()
        return self.grant

    async def info(self) -> SessionInfo:
        return next(s for s in await self.holder.pool.sessions() if s.id == self.session_id)

    # ---- the program

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def start(self) -> None:
        variables = dict(
            os.environ,
            GPUPOOL_SESSION_FILE=str(self.file.path),
            LD_LIBRARY_PATH=str(native_directory() / "client"),
        )
        self._process = await asyncio.to_thread(Program, [str(self.program)], variables)
        await self._answer(60)

    async def tell_program(self, command: str, seconds: float = 120.0) -> str:
        """What the program answers; raises AssertionError with its error."""
        assert self._process is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()
        return await self._answer(seconds)

    async def _answer(self, seconds: float) -> str:
        assert self._process is not None
        async with asyncio.timeout(seconds):
            line = (await asyncio.to_thread(self._process.stdout.readline)).strip()
        code, _, text = line.partition(" ")
        log = self.log.read_text()[-2000:] if self.log.exists() else ""
        assert code == "0", f"{line}\n{log}"
        return text

    async def end(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            await asyncio.to_thread(self._process.wait)


class Holder:
    """Holds the leases of some clients, in the test's event loop."""

    def __init__(self, pool: PoolClient, folder: Path, renew_seconds: float) -> None:
        self.pool = pool
        self.ended: list[LeaseStatus] = []
        self.leases = LeaseHolder(pool, on_ended=self.ended.append, interval_seconds=renew_seconds)
        self.clients: list[PatternClient] = []
        self._folder = folder
        self._numbers = itertools.count(1)

    def client(self) -> PatternClient:
        folder = self._folder / f"client{next(self._numbers)}"
        folder.mkdir()
        self.clients.append(PatternClient(self, folder))
        return self.clients[-1]

    async def attached(self, milli: int, **more: Any) -> PatternClient:
        """A client with a share and a program that runs."""
        client = self.client()
        await client.attach(milli, **more)
        await client.start()
        return client


@asynccontextmanager
async def holding(endpoint: str, folder: Path, renew_seconds: float = 1.0) -> AsyncIterator[Holder]:
    async with PoolClient(endpoint) as pool:
        holder = Holder(pool, folder, renew_seconds)
        async with holder.leases:
            try:
                yield holder
            finally:
                for client in holder.clients:
                    await client.end()
                    if client.grant is not None:
                        await pool.close_session(client.session_id, "exit")

"""Writes the pool's history down, a minute at a time, beside the event loop: no decision waits for it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import structlog
from sqlalchemy import Connection, select
from sqlalchemy.exc import SQLAlchemyError

from gpupool.ledger import samples, schema
from gpupool.ledger.periods import milliseconds
from gpupool.ledger.snapshot import snapshot
from gpupool.model.history_amounts import MINUTE_MS
from gpupool.pool.lifecycle.shell import PoolShell
from gpupool.pool.reporting.history import put_together
from gpupool.pool.reporting.use_meter import Bucket, UseMeter

logger = structlog.get_logger(__name__)

#: Reports of a minute are waited for so many heartbeats after its end.
_LATE_HEARTBEATS: Final = 2
#: A ledger that cannot be written loses the minutes before the last so many.
_MOST_BEHIND: Final = 120
#: Periods that are made coarser after each minute, at most: what a long rest of the pool left is worked off bit by bit.
_THINNED: Final = 30


@dataclass(frozen=True, slots=True)
class Unwritten:
    """A time within one minute that is not in the ledger yet."""

    from_ms: int
    to_ms: int
    used: Bucket
    labels: dict[str, str]

    def rows(self, connection: Connection) -> Bucket:
        """Its rows, with what the ledger knows of it."""
        known = samples.held(connection, self.from_ms, self.to_ms, self.to_ms)
        return put_together(known, self.used, self.labels, self.to_ms - self.from_ms)


@dataclass(frozen=True, slots=True)
class Present:
    """What is not written yet. `version`: of what is written."""

    version: int
    times: tuple[Unwritten, ...]


class HistorySampler:
    """Follows the pool. To be made and called in its event loop, apart from :meth:`reading`."""

    def __init__(self, pool: PoolShell) -> None:
        self._pool = pool
        self._meter = UseMeter(pool.state, self.now_ms())
        self._from_ms = self.now_ms()
        self._one = threading.Lock()
        self._version = 0
        self._writing: Unwritten | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="history")
        self._failing = False

    def now_ms(self) -> int:
        """The pool's time, wall-clock milliseconds."""
        return milliseconds(self._pool.clock.to_unix(self._pool.clock.now()))

    async def run(self) -> None:
        """Goes on until cancelled; then writes down what is left."""
        heartbeat = self._pool.timers.heartbeat
        late_ms = round(_LATE_HEARTBEATS * heartbeat * 1000)
        try:
            while True:
                await asyncio.sleep(heartbeat)
                try:
                    self.look()
                    while await self.write(self.now_ms() - late_ms):
                        pass
                except Exception:
                    logger.exception("the history could not go on")
        finally:
            self.look()
            for time in self._unwritten(self.now_ms()):
                if not self._store(time):
                    break
            self._thread.shutdown()

    def look(self) -> None:
        """Counts what was reported since the last look."""
        self._meter.look(self._pool.state, self.now_ms())

    async def write(self, before_ms: int) -> bool:
        """Writes down the first minute that ended before a moment; returns whether there was one, and it is stored."""
        end = (self._from_ms // MINUTE_MS + 1) * MINUTE_MS
        if end > before_ms:
            return False
        if before_ms - end > _MOST_BEHIND * MINUTE_MS:
            end = (before_ms // MINUTE_MS - _MOST_BEHIND) * MINUTE_MS
            self._meter.until(end)
            self._from_ms = end
            return True
        loop = asyncio.get_running_loop()
        time = Unwritten(self._from_ms, end, self._meter.until(end), self._labels())
        self._writing, self._from_ms = time, end
        writing = loop.run_in_executor(self._thread, self._store, time)
        try:
            stored = await asyncio.shield(writing)
        except asyncio.CancelledError:
            stored = await writing  # the last words of `run` come after it
            self._end(time, stored)
            raise
        self._end(time, stored)
        return stored

    def present(self) -> Present:
        """What is not in the ledger yet, the running minute included."""
        self.look()
        # The version first: if a minute comes into the ledger in between, `reading` sees it.
        version, writing = self._version, self._writing
        times = () if writing is None else (writing,)
        return Present(version, times + tuple(self._unwritten(self.now_ms())))

    def reading(self, present: Present, connection: Connection) -> bool:
        """Fixes what a connection sees; False: what is written has changed since `present`. In any thread."""
        with self._one:
            connection.execute(select(schema.meta.c.value).limit(1)).all()
            return self._version == present.version

    # ---- helpers

    def _unwritten(self, now_ms: int) -> Iterator[Unwritten]:
        since, labels = self._from_ms, self._labels()
        while since < now_ms:
            until = min(now_ms, (since // MINUTE_MS + 1) * MINUTE_MS)
            yield Unwritten(since, until, self._meter.between(since, until), labels)
            since = until

    def _labels(self) -> dict[str, str]:
        return {session.id: session.label for session in self._pool.state.sessions.values()}

    def _end(self, time: Unwritten, stored: bool) -> None:
        self._writing = None
        if not stored:
            self._meter.give_back(time.from_ms, time.used)
            self._from_ms = time.from_ms

    def _store(self, time: Unwritten) -> bool:
        """In the sampler's thread."""
        engine = self._pool.ledger.engine
        try:
            with snapshot(engine) as connection:
                rows = time.rows(connection)
            with self._one:
                with samples.writing(engine) as connection:
                    self._pool.ledger.database.fence(connection)
                    samples.add(connection, MINUTE_MS, time.from_ms // MINUTE_MS * MINUTE_MS, rows)
                self._writing = None
                self._version += 1
        except SQLAlchemyError as error:
            self._note(error)
            return False
        try:
            self._thin(time.to_ms)
        except SQLAlchemyError as error:
            # The minute is stored: it must not come again. The next minute's turn thins what this one left.
            self._note(error)
        else:
            self._failing = False
        return True

    def _thin(self, now_ms: int) -> None:
        engine = self._pool.ledger.engine
        for _ in range(_THINNED):
            with self._one:
                with samples.writing(engine) as connection:
                    self._pool.ledger.database.fence(connection)
                    more = samples.thin(connection, now_ms)
                self._version += more
            if not more:
                break

    def _note(self, error: SQLAlchemyError) -> None:
        if not self._failing:
            cause = str(getattr(error, "orig", None) or error).partition("\n")[0]
            logger.warning("the history cannot be written", problem=cause)
        self._failing = True

"""A leader makes sure that it still leads: the database is asked every second, and before a call after a longer silence.

A process that was stopped, or whose machine slept, knows nothing of the time that passed. Its clock does: the first call
that is heard afterwards waits for the database's word.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import grpc
import structlog
from sqlalchemy.exc import SQLAlchemyError

from gpupool.ledger import servers
from gpupool.ledger.database import Database, Lead
from gpupool.ledger.servers import ServerIdentity, ServerRow
from gpupool.pool.access.auth import refuse
from gpupool.pool.leading.lead_times import LeadTimes, now

logger = structlog.get_logger(__name__)

NOT_LEADER: Final = "not-leader"
#: The answer to a question that was under way already may be too old; the next one's is not.
_ASKED: Final = 2


class Leadership:
    """Of one server, from the moment at which it opened the ledger.

    Attributes:
        lost: set when this server leads no more; it must stop then, and never starts again as it is.
        why: a clause that says why.
        serving: steps are written on the event loop from now on.
        servers: all servers of the database, as last seen.
        is_alone: whether nobody can take over: there was never a standby. What was seen last says nothing of one that has
            come since, so whoever is a standby itself in other times is never alone.
    """

    def __init__(self, database: Database, me: ServerIdentity, times: LeadTimes, *, alone: bool) -> None:
        self._database = database
        self._me = me
        self._times = times
        self._confirmed_at = now()
        self._question: asyncio.Task[None] | None = None
        #: What the database has not answered yet, and when it was asked.
        self._asked: tuple[float, asyncio.Future[Lead]] | None = None
        self._failing = False
        # Of its own: what else the server waits for in threads must not delay this answer.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="leadership")
        self.lost = asyncio.Event()
        self.why = ""
        self.serving = False
        self.servers: tuple[ServerRow, ...] = ()
        self.is_alone = alone

    @property
    def me(self) -> ServerIdentity:
        return self._me

    @property
    def epoch(self) -> int:
        return self._database.epoch

    async def run(self) -> None:
        """Asks again and again, until cancelled or the lead is lost."""
        while not self.lost.is_set():
            await self._confirm()
            await asyncio.sleep(self._times.beat)

    async def leads(self) -> bool:
        """Whether this server may say anything; asks first when it was confirmed long ago."""
        for _ in range(_ASKED):
            if self._is_sure() or (self._failing and self.is_alone):
                return True
            await self._confirm()
        return self._is_sure() or (self.is_alone and not self.lost.is_set())

    async def settled(self) -> bool:
        """Waits until this server is sure to lead, or leads no more (False). A slow moment of the database ends nothing."""
        while not await self.leads():
            if self.lost.is_set():
                return False
            await asyncio.sleep(self._times.beat)
        return True

    async def admit(self, context: Any) -> None:
        """Refuses a call unless this server is sure to lead."""
        if not await self.leads():
            why = self.why or "the database does not say that it does"
            text = f"this pool server does not lead now: {why}; ask another one"
            await refuse(context, grpc.StatusCode.UNAVAILABLE, NOT_LEADER, text)

    def _is_sure(self) -> bool:
        return not self.lost.is_set() and now() - self._confirmed_at < self._times.sure

    async def _confirm(self) -> None:
        """All who want to know at a time wait for one question."""
        if self._question is None or self._question.done():
            self._question = asyncio.create_task(self._ask_once(), name="who leads")
        await asyncio.shield(self._question)

    async def _ask_once(self) -> None:
        try:
            asked_at, lead = await self._answer()
            if lead is Lead.FREE and self.serving:
                # On the event loop, as every step: the connection is not for two threads.
                self._database.take_back()
        except (SQLAlchemyError, TimeoutError) as error:
            self._not_confirmed(str(error).partition("\n")[0])
            return
        if lead is Lead.LOST:
            self._lose("another one has taken over")
        elif lead is Lead.HELD:
            self._confirmed_at, self._failing = asked_at, False

    async def _answer(self) -> tuple[float, Lead]:
        """When the database was asked, and what it says. An answer that takes longer than `sure` makes nobody sure.

        Raises:
            SQLAlchemyError: it does not answer.
            TimeoutError: its answer is not there yet; the next who wants to know waits for the same one.
        """
        if self._asked is None:
            loop = asyncio.get_running_loop()
            self._asked = now(), loop.run_in_executor(self._thread, self._ask)
            self._asked[1].add_done_callback(_seen)
        asked_at, answer = self._asked
        await asyncio.wait({answer}, timeout=max(self._times.sure, self._times.beat))
        if answer.done():
            self._asked = None
            return asked_at, answer.result()
        silent = now() - asked_at
        if silent > self._times.give_up:
            # A connection that has stalled would stay so; the next question goes over another one.
            self._database.break_off()
        raise TimeoutError(f"it has not answered for {silent:.1f} s")

    def _ask(self) -> Lead:
        lead = self._database.leads()
        if lead is Lead.HELD:
            with self._database.engine.begin() as connection:
                # Only people, and a standby that watches, read it: no reason to wait for the disk.
                connection.exec_driver_sql("SET LOCAL synchronous_commit = off")
                servers.beat(connection, self._me, self._database.epoch)
                self.servers = tuple(servers.rows(connection))
            self.is_alone = self.is_alone and not any(map(self._is_standby, self.servers))
        return lead

    def _is_standby(self, row: ServerRow) -> bool:
        return row.epoch == 0 and row.id != self._me.id and row.silent_seconds < self._times.there

    def _not_confirmed(self, problem: str) -> None:
        if not self._failing:
            logger.warning("the database does not say who leads", problem=problem)
        self._failing = True
        # Alone nobody can have taken over. Nothing new is decided without the database; what was decided goes on.
        if not self.is_alone and now() - self._confirmed_at > self._times.give_up:
            self._lose("the database does not answer, and a standby may have taken over")

    def _lose(self, why: str) -> None:
        if not self.lost.is_set():
            logger.error("this server leads no more", why=why, epoch=self.epoch)
            self.why = why
            self.lost.set()


def _seen(answer: asyncio.Future[Lead]) -> None:
    """What comes when nobody asks any more is no mistake of anybody's."""
    if not answer.cancelled():
        answer.exception()

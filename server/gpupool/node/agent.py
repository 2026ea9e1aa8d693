"""The node agent from its start to its end: it adopts workers that live, serves the pool, and ends workers in order."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any, Final

import structlog

from gpupool.engines.local import LocalEngine
from gpupool.engines.records import (
    OTHER_PROTOCOL_STATUS,
    WORKER_PROTOCOL,
    EngineError,
    StartedWorker,
)
from gpupool.node.agent_settings import AgentError, AgentSettings
from gpupool.node.answers import Answers
from gpupool.node.control import ControlError
from gpupool.node.health_watch import HealthWatch
from gpupool.node.instructions import Instructions
from gpupool.node.pool_link import PoolLink
from gpupool.node.worker_link import WorkerLink

logger = structlog.get_logger(__name__)

#: A signal that follows the first one so soon is no second one.
_SAME_WORD_SECONDS: Final = 2.0


class Agent:
    """Runs until :meth:`stop`; workers outlive broken connections and, if asked, the agent."""

    def __init__(
        self,
        settings: AgentSettings,
        engine: LocalEngine,
        health: HealthWatch,
        answers: Answers | None = None,
    ) -> None:
        self._settings = settings
        self._engine = engine
        self._instructions = Instructions(
            node=settings.node,
            engine=engine,
            send=self._send,
            answer_seconds=settings.answer_seconds,
            stop_grace_seconds=settings.stop_grace_seconds,
            images=settings.images,
        )
        self._pool = PoolLink(settings, engine, health, answers, self._instructions, self._keep)
        self._obeying: set[asyncio.Task[None]] = set()
        self._stopping = asyncio.Event()
        self._at_once = asyncio.Event()
        #: When it was told to end first, by the loop's clock.
        self._told_at = 0.0
        #: Set when a worker has ended.
        self._one_less = asyncio.Event()

    @property
    def ready(self) -> asyncio.Event:
        """Set while the pool answers; tests and the service manager wait for it."""
        return self._pool.ready

    def stop(self) -> None:
        """Makes :meth:`run` end; may be called from a signal handler of the loop. Twice: without waiting for sessions.

        Batch systems signal every process of a job, and its script passes the signal on: what comes right after the first
        is the same word.
        """
        now = asyncio.get_running_loop().time()
        if not self._stopping.is_set():
            self._stopping.set()
            self._told_at = now
        elif now - self._told_at > _SAME_WORD_SECONDS:
            self._at_once.set()

    async def run(self) -> None:
        """Adopts living workers, then serves the pool until :meth:`stop`.

        Raises:
            AgentError: the devices cannot be listed, or the pool forbids this node.
        """
        try:
            self._pool.devices = await self._engine.inventory()
        except EngineError as error:
            raise AgentError(str(error)) from error
        logger.info("devices", node=self._settings.node, count=len(self._pool.devices))
        owned = await self._engine.list_owned()
        # At once: those that answer have 25 s until they fence themselves, whatever the others do.
        await asyncio.gather(*(self._adopt(worker) for worker in owned))
        watcher = asyncio.create_task(self._watch(), name="engine watch")
        serving = asyncio.create_task(self._pool.serve(), name="pool connection")
        stopping = asyncio.create_task(self._stopping.wait(), name="stop")
        leaving = asyncio.create_task(self._pool_is_gone(), name="pool is gone")
        tasks: set[asyncio.Task[Any]] = {watcher, serving, stopping, leaving}
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in (watcher, serving):
                if task.done():
                    task.result()
            if self._settings.drain_wait and not self._settings.leave_workers and not leaving.done():
                await self._let_move(watcher, serving)
            if not self._settings.leave_workers:
                await self._stop_all()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for link in list(self._instructions.links.values()):
                await link.close()
            await self._engine.close()

    async def _pool_is_gone(self) -> None:
        await self._pool.silence(self._settings.leave_after)
        logger.info("ending; the pool has not answered", seconds=self._settings.leave_after)

    async def _let_move(self, *needed: asyncio.Task[Any]) -> None:
        """Goes on as before until no session is here, but not for ever."""
        logger.info("ending; sessions may move away first", sessions=len(self._instructions.links),
                    seconds=self._settings.drain_wait)  # fmt: skip
        self._pool.leave_in(self._settings.drain_wait)
        empty = asyncio.create_task(self._emptied(), name="sessions move away")
        hurry = asyncio.create_task(self._at_once.wait(), name="end at once")
        try:
            await asyncio.wait(
                {empty, hurry, *needed},
                timeout=self._settings.drain_wait,
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            empty.cancel()
            hurry.cancel()
            await asyncio.gather(empty, hurry, return_exceptions=True)

    async def _emptied(self) -> None:
        while self._instructions.links:
            self._one_less.clear()
            await self._one_less.wait()

    async def _stop_all(self) -> None:
        """Ends every worker while the connection is up, so that the pool hears of it."""
        self._instructions.ending = True
        if self._obeying:
            # A worker that is being started would be missed.
            await asyncio.wait(self._obeying, timeout=self._settings.stop_grace_seconds)
        sessions = list(self._instructions.links)
        await asyncio.gather(*(self._instructions.stop_worker(session) for session in sessions))
        # The watch task turns each end into news; let it run before looking.
        await asyncio.sleep(0)
        if sessions and self.ready.is_set():
            # One more answered heartbeat: the pool has heard the ends and frees the shares now.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._settings.heartbeat_seconds):
                    await self._pool.all_told.wait()

    async def _adopt(self, worker: StartedWorker) -> None:
        link = WorkerLink(worker, self._settings.answer_seconds)
        if worker.protocol != WORKER_PROTOCOL:
            await self._refuse(worker, link)
            return
        self._instructions.links[worker.session] = link
        try:
            await link.refresh()
        except ControlError as error:
            # It runs but cannot be spoken to: it would fence itself; end it now instead.
            logger.warning("an adopted worker does not answer", session=worker.session, error=str(error))
            # Not waited for: a process in a call of a driver that hangs ends when that returns.
            self._keep(self._engine.stop(worker.session, 0.0), "end of a worker that does not answer")
            return
        await self._instructions.adopted(link)
        logger.info("adopted a worker", session=worker.session, epoch=link.epoch, state=link.stats.state)

    async def _refuse(self, worker: StartedWorker, link: WorkerLink) -> None:
        """A worker that may misunderstand what this agent says is never spoken to."""
        logger.warning(
            "a worker of another version is not adopted: it is ended",
            session=worker.session,
            worker_protocol=worker.protocol or "none",
            agent_protocol=WORKER_PROTOCOL,
        )
        self._instructions.refused[worker.session] = link
        its = f"protocol {worker.protocol}" if worker.protocol else "a protocol without a number"
        why = f"a worker of another version of gpupool: it speaks {its}, its node's agent {WORKER_PROTOCOL}"
        # Not waited for: a process in a call of a driver that hangs ends when that returns.
        self._keep(self._engine.refuse(worker.session, OTHER_PROTOCOL_STATUS, why), "end of a refused worker")

    async def _watch(self) -> None:
        async for event in self._engine.watch():
            logger.info("a worker ended", session=event.session, reason=event.reason)
            link = self._instructions.links.pop(event.session, None)
            self._one_less.set()
            if link is not None:
                await link.rest_of_figures()
                await link.close()
            outlasting = self._instructions.outlasting.pop(event.session, None)
            if outlasting is not None:
                # Not an end of the session: the pool hears that it lies on disk, or that it did not start.
                await self._engine.forget(event.session)
                outlasting.set_result(event)
                continue
            self._pool.all_told.clear()
            self._instructions.tell_end(event, link)

    def _keep(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._obeying.add(task)
        task.add_done_callback(self._obeying.discard)

    def _send(self, message: Any) -> None:
        self._pool.send(message)

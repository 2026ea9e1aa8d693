"""The loop that asks, decides and acts: what the engine has, what the pool needs, and what follows from both.

How it acts, see `job_orders`; how many jobs there should be, `elasticity`.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

import structlog

from gpupool.providers.contract import JobReport, Provider, ProviderDownError
from gpupool.providers.elasticity import Plan, Scale, Standing, Trouble, plan, stays
from gpupool.providers.found_jobs import find_jobs
from gpupool.providers.job_orders import JobOrders
from gpupool.providers.jobs import Job, JobBook
from gpupool.providers.kinds import SettingsError
from gpupool.providers.known_jobs import KnownJobs
from gpupool.providers.pool import NodeStands, PoolSide
from gpupool.providers.provided import Pace, Provided, words
from gpupool.providers.settings import changed
from gpupool.sentences import Sentence

logger = structlog.get_logger(__name__)

_T = TypeVar("_T")

#: Seconds that a look which is under way has to end when the pool ends.
_FINISH: Final = 3.0


class Grower:
    """Keeps as many jobs as are needed.

    Args:
        book: where jobs are kept.
        pool: what needs them.
        providers: by name, with what each may do.
        unusable: names of providers that are named too, but cannot be used: their jobs stay as they are.
        pace: how often.
        name: makes a new job's name.
    """

    def __init__(
        self,
        book: JobBook,
        pool: PoolSide,
        providers: Mapping[str, tuple[Provider, Scale]],
        pace: Pace | None = None,
        name: Callable[[], str] = lambda: secrets.token_hex(6),
        unusable: Collection[str] = (),
    ) -> None:
        self._book = book
        self._pool = pool
        self._pace = pace or Pace()
        limits = book.limits()
        self._provided = [
            _provided(name, *provider, limits.get(name, {})) for name, provider in providers.items()
        ]
        self._unusable = frozenset(unusable)
        self._jobs = KnownJobs(book, pool.now)
        self._look_soon = asyncio.Event()
        self._orders = JobOrders(pool, self._jobs, self._pace, name, self._look_soon.set)
        self._said: dict[str, Sentence] = {}
        #: Held by a look, and by the end.
        self._turn = asyncio.Lock()
        self._looking: asyncio.Task[None] | None = None
        #: Within one look at all providers: by node, the room that those before have left.
        self._left: dict[str, tuple[int, ...]] = {}
        #: By provider, nodes that are none of its jobs, in which leases of its jobs are to go on.
        self._counted_on: dict[str, frozenset[str]] = {}
        #: By provider, the requests that its jobs on their way are for: no other one borrows a node for them.
        self._served: dict[str, frozenset[str]] = {}
        self._promise()

    async def run(self) -> None:
        """Goes on until cancelled; then providers are closed, and their jobs go on."""
        try:
            while True:
                self._look_soon.clear()
                await self._step_beside()
                try:
                    async with asyncio.timeout(self._pace.look):
                        await self._look_soon.wait()
                except TimeoutError:
                    pass
        finally:
            for provided in self._provided:
                await provided.provider.close()

    async def _step_beside(self) -> None:
        """A step that the end can cancel: an engine may not answer."""
        looking = self._looking = asyncio.ensure_future(self.step())
        try:
            await asyncio.wait({looking})
        except asyncio.CancelledError:
            looking.cancel()
            await asyncio.wait({looking})
            raise
        finally:
            self._looking = None
        if not looking.cancelled() and (error := looking.exception()) is not None:
            logger.error("the look at providers failed", exc_info=error)

    async def give_back(self) -> None:
        """Ends all jobs, and asks for none from now on: the pool ends, and nobody will need them.

        What an engine does not hear in time, the next pool tells it: the ledger has it before any engine is asked.
        """
        self._jobs.end_all("the pool ends")
        if (looking := self._looking) is not None:
            await asyncio.wait({looking}, timeout=_FINISH)
            looking.cancel()
        async with self._turn:
            await asyncio.gather(*map(self._orders.give_all_back, self._provided))

    async def step(self) -> None:
        """One look at every provider. If one does not answer, the others go on."""
        async with self._turn:
            if not self._jobs.ending:
                await self._look_at_all()

    async def _look_at_all(self) -> None:
        """Engines are asked and told side by side: one that hangs keeps the others no longer than for one answer."""
        answered = await _side_by_side([self._ask(provided) for provided in self._provided])
        said: dict[str, Sentence] = {}
        self._left = {}
        decisions = []
        now = self._pool.now()
        for provided, answers in zip(self._provided, answered, strict=True):
            if answers:
                decided = self._decide(provided, now)
                decisions.append((provided, decided))
            else:
                decided = self._go_on(provided, now)
            for name, sentence in decided.said.items():
                said.setdefault(name, sentence)
        self._leave_unnamed()
        if said != self._said:
            self._pool.say(said)
            self._said = said
        await _side_by_side([self._orders.carry_out(*decision, now) for decision in decisions])

    def _leave_unnamed(self) -> None:
        """Empties the nodes of providers that the settings no longer name: nobody sees their time limits any more."""
        names = self._unusable.union(self.names())
        for job in [job for job in self._jobs.all() if job.provider not in names]:
            node, seen = self._pool.node(job.node), self._jobs.seen(job)
            if node is None:
                if self._pool.now() - seen.since >= self._pace.settle:
                    self._jobs.forget(job)
            elif node.lost:
                self._pool.forget(job.node)
            elif not node.drained or (node.busy and not seen.evicting):
                self._pool.drain(
                    job.node, f"the settings do not name its provider {job.provider}", evict=True
                )
                seen.evicting = True

    # ---- what others see

    def names(self) -> list[str]:
        return [provided.name for provided in self._provided]

    def provider(self, name: str) -> tuple[Provider, Scale, Trouble]:
        """Raises KeyError: there is none."""
        found = self._of(name)
        return found.provider, found.scale, found.problem

    def standing(self, name: str) -> list[tuple[Job, Standing]]:
        """The jobs of a provider, with how they stand."""
        return [(job, self._standing(job)) for job in self._jobs.of(name)]

    def lends(self, provider: str, node: str) -> bool:
        """Whether the provider has a job whose agent calls itself so."""
        return any(
            job.provider == provider and job.node == node and job.phase != "over" for job in self._jobs.all()
        )

    def set_scale(self, name: str, *, reset: bool = False, **named: float) -> None:
        """From now on, and after a restart: `minimum`, `maximum`, `idle`. What is not named stays as it is, in the file too.

        `reset`: what was set before counts no longer.

        Raises:
            KeyError: there is no such provider.
            SettingsError: the figures make no sense together.
        """
        provided = self._of(name)
        limits = {**({} if reset else self._book.limits().get(name, {})), **named}
        scale = changed(f"provider {name}", provided.file_scale, limits)
        if scale.minimum < named.get("minimum", 0):
            raise SettingsError(
                f"provider {name}: minimum {named['minimum']:g} is larger than the maximum, {scale.maximum}"
            )
        self._book.set_limits(name, limits)
        provided.limit(limits)
        self._promise()
        self._look_soon.set()

    def _promise(self) -> None:
        self._pool.promise({one.name: one.scale for one in self._provided if one.scale.maximum})

    def _of(self, name: str) -> Provided:
        found = next((provided for provided in self._provided if provided.name == name), None)
        if found is None:
            raise KeyError(name)
        return found

    # ---- a look

    async def _ask(self, provided: Provided) -> bool:
        """How its jobs are; False: the engine does not answer, and what it said before holds."""
        now = self._pool.now()
        try:
            await find_jobs(provided, self._jobs, self._pace, now)
            known = {job.id: job.state for job in self._jobs.of(provided.name) if _is_asked_for(job)}
            reports = await provided.provider.poll(known) if known else {}
        except ProviderDownError as error:
            provided.silence = provided.silence.failed(now, words(error))
            logger.warning("a provider does not answer", provider=provided.name, problem=str(error))
            return False
        provided.silence = Trouble()
        for job_id, report in reports.items():
            self._take_report(provided, self._jobs[job_id], report, now)
        return True

    def _decide(self, provided: Provided, now: float) -> Plan:
        for job in self._jobs.of(provided.name):
            self._take_node(provided, job)
        decided = self._plan(provided, now)
        self._note_needs(provided, decided, now)
        return decided

    def _go_on(self, provided: Provided, now: float) -> Plan:
        """Leases and nodes of an engine that is silent go on as they are, until the time is up that it has said before."""
        for job in self._jobs.of(provided.name):
            seen = self._jobs.seen(job)
            if seen.ends_at is not None:
                seen.seconds_left = max(0.0, seen.ends_at - now)
        decided = self._plan(provided, now)
        for ending in decided.drain:
            if ending.in_time:
                self._orders.drain(ending)
        return decided

    def _plan(self, provided: Provided, now: float) -> Plan:
        mine = {job.id: job.node for job in self._jobs.of(provided.name)}
        others = {node for name, nodes in self._counted_on.items() if name != provided.name for node in nodes}
        served = frozenset[str]().union(
            *(asks for name, asks in self._served.items() if name != provided.name)
        )
        decided = plan(
            provided.name,
            provided.scale,
            [self._standing(job) for job in self._jobs.of(provided.name)],
            [ask for ask in self._pool.asks() if ask.id not in served],
            provided.problem,
            now,
            self._elsewhere(provided),
            [job for job, node in mine.items() if node in others],
        )
        self._left.update({mine.get(name, name): free for name, free in decided.left.items()})
        self._counted_on[provided.name] = decided.needed.difference(mine)
        self._served[provided.name] = decided.served
        return decided

    def _elsewhere(self, provided: Provided) -> dict[str, tuple[int, ...]]:
        """Room on nodes that are none of this provider's jobs, that stay, and where what its jobs serve may go on."""
        jobs = {job.node: job for job in self._jobs.all()}
        own = [
            node for job in self._jobs.of(provided.name) if (node := self._pool.node(job.node)) is not None
        ]
        types = frozenset[str]().union(*(node.types for node in own))
        like = (provided.scale.node_pool, provided.scale.offer.sharing)
        room = {}
        for name in self._pool.node_names():
            job = jobs.get(name)
            if job is not None and job.provider == provided.name:
                continue
            node = self._pool.node(name)
            if node is None or not node.free:
                continue
            # A session goes on only on a device of the same type, and its holder asks for the same node pool again.
            if (node.pool, node.sharing) != like or (types and node.types.isdisjoint(types)):
                continue
            if job is None or self._stays(job):
                room[name] = self._left.get(name, node.free)
        return room

    def _stays(self, job: Job) -> bool:
        provided = next((one for one in self._provided if one.name == job.provider), None)
        return provided is not None and stays(provided.scale, self._standing(job))

    def _take_report(self, provided: Provided, job: Job, report: JobReport, now: float) -> None:
        seen = self._jobs.seen(job)
        seen.seconds_left = report.seconds_left
        seen.ends_at = None if report.seconds_left is None else now + report.seconds_left
        if report == seen.report and report.phase != "ended":
            return  # as at the last look
        seen.report, seen.starts_in, seen.never = report, report.starts_in, report.never
        seen.reason = words(report.reason)
        if report.phase != seen.engine:
            seen.engine, seen.since = report.phase, now
            if report.phase == "running" and seen.submitted:
                seen.lifetime = report.seconds_left
        if report.phase != "ended":
            return
        came = seen.connected or self._pool.node(job.node) is not None
        why = job.why if job.phase == "cancelling" else f"the engine ended it: {seen.reason}"
        if job.phase in ("submitted", "draining") and not came:
            provided.trouble = provided.trouble.failed(
                now, f"the job ended before its agent connected: {seen.reason}"
            )
        logger.info("a job is over", provider=provided.name, job=job.id, node=job.node, why=why)
        self._jobs.store(replace(job, phase="over", why=why))

    def _take_node(self, provided: Provided, job: Job) -> None:
        seen = self._jobs.seen(job)
        if job.phase in ("draining", "cancelling"):
            self._orders.keep_drained(job)
        if job.phase == "cancelling":
            # As soon as its agent has left, which may be before the engine says so.
            self._pool.forget(job.node)
        if seen.connected and job.phase != "over":
            return
        node = self._pool.node(job.node)
        if node is not None and not seen.connected:
            # Only a new one shows that the engine gives again; one that has served for long shows nothing.
            seen.connected, seen.connected_at = True, self._pool.now()
            provided.trouble = Trouble()
            self._compare(provided, node, job)
        if job.phase != "over":
            return
        if node is None:
            self._jobs.forget(job)
        elif node.connected:
            # The engine has lent its devices to somebody else, perhaps: nobody is placed there any more.
            if not node.drained or (node.busy and not seen.evicting):
                self._pool.drain(job.node, "its job is over", evict=True)
                seen.evicting = True
        else:
            self._pool.forget(job.node)

    def _compare(self, provided: Provided, node: NodeStands, job: Job) -> None:
        """Who waits for what the settings promise, and nodes of this provider do not have, must not bring one after the other."""
        if provided.see(node):
            scale = provided.scale
            logger.warning(
                "a node is not what the settings of its provider promise; the next one counts as one like it",
                provider=provided.name, node=job.node, memory_mib=scale.device_mib, type=scale.offer.type,
                node_pool=scale.node_pool, sharing=scale.offer.sharing,
            )  # fmt: skip
            self._promise()

    def _note_needs(self, provided: Provided, decided: Plan, now: float) -> None:
        for job in self._jobs.of(provided.name):
            node = self._pool.node(job.node)
            seen = self._jobs.seen(job)
            if job.id in decided.needed or (node is not None and node.busy and not node.lost):
                seen.unneeded_since = None
            elif seen.unneeded_since is None:
                seen.unneeded_since = now

    def _standing(self, job: Job) -> Standing:
        node = self._pool.node(job.node)
        free = self._left.get(job.node, node.free) if node is not None and node.connected else ()
        settling = self._pool.now() - self._jobs.seen(job).connected_at < self._pace.look
        return self._jobs.standing(job, node, free=free, settling=settling)


def _provided(name: str, provider: Provider, file_scale: Scale, limits: Mapping[str, float]) -> Provided:
    scale = changed(f"provider {name}", file_scale, limits)
    least = limits.get("minimum", file_scale.minimum)
    if scale.minimum < least:
        logger.warning(
            "a maximum that `gpupool provider scale` has set is below the minimum, which counts no more than it",
            provider=name,
            minimum=least,
            maximum=scale.maximum,
        )
    return Provided(name, provider, file_scale, scale)


async def _side_by_side(calls: Sequence[Coroutine[Any, Any, _T]]) -> list[_T]:
    """What they return, when all of them have ended; if some failed, raises what the first of them did."""
    if len(calls) <= 1:
        return [await call for call in calls]
    done = await asyncio.gather(*calls, return_exceptions=True)
    for one in done:
        if isinstance(one, BaseException):
            raise one
    return [one for one in done if not isinstance(one, BaseException)]


def _is_asked_for(job: Job) -> bool:
    return job.phase in ("submitted", "draining", "cancelling") and bool(job.state)

"""What is done with jobs: they are asked for, drained and ended.

Every act has two lines in the ledger: one before, that it is meant, and one after, with what the provider wants to know again. A
pool that dies between them finds the job in the engine by its name, or not at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import structlog

from gpupool.providers.contract import JobOrder, ProviderDownError, ProviderRefusedError, ProviderSilentError
from gpupool.providers.elasticity import Ending, Plan
from gpupool.providers.jobs import Job, node_name
from gpupool.providers.known_jobs import KnownJobs
from gpupool.providers.pool import PoolSide
from gpupool.providers.provided import Pace, Provided, words

#: Seconds that engines have to take all jobs back at the end.
_GIVE_BACK: Final = 10.0
#: So many jobs are told to end side by side then.
_AT_ONCE: Final = 8

logger = structlog.get_logger(__name__)


class JobOrders:
    """Carries out what was decided.

    Args:
        pool: whose nodes the jobs are.
        jobs: all of them.
        pace: how often a job is told again to end.
        name: makes a new job's name.
        look_soon: called when a look at the engine is worth while at once.
    """

    def __init__(
        self,
        pool: PoolSide,
        jobs: KnownJobs,
        pace: Pace,
        name: Callable[[], str],
        look_soon: Callable[[], None],
    ) -> None:
        self._pool = pool
        self._jobs = jobs
        self._pace = pace
        self._name = name
        self._look_soon = look_soon

    async def give_all_back(self, provided: Provided) -> None:
        """Tells the engine the end of all jobs that are to end, but does not wait for it without end."""
        some = asyncio.Semaphore(_AT_ONCE)

        async def end(job: Job) -> None:
            async with some:
                await self._end(provided, job, self._pool.now())

        try:
            async with asyncio.timeout(_GIVE_BACK):
                mine = [job for job in self._jobs.of(provided.name) if job.phase == "cancelling"]
                answers = await asyncio.gather(*map(end, mine), return_exceptions=True)
            problem = next((answer for answer in answers if answer is not None), None)
        except TimeoutError as error:
            problem = error
        if problem is not None:
            # Their agents end by themselves when the pool does not answer, see `Place.leave_after`.
            logger.warning("jobs are not given back", provider=provided.name, problem=words(problem))

    def keep_drained(self, job: Job) -> None:
        """The ledger may have been away when the drain was stored, and an agent may connect when its job ends already."""
        node = self._pool.node(job.node)
        if node is not None and node.connected and not node.drained:
            evict = job.phase == "cancelling" or self._jobs.seen(job).evicting
            self._pool.drain(job.node, job.why, evict=evict)

    async def carry_out(self, provided: Provided, decided: Plan, now: float) -> None:
        """Drains, ends and asks for what the plan says; what the engine refuses counts as trouble of its provider."""
        for ending in decided.drain:
            self.drain(ending)
        for ending in decided.cancel:
            self._jobs.store(replace(self._jobs[ending.job], phase="cancelling", why=ending.why))
            self.keep_drained(self._jobs[ending.job])
            if ending.failed:
                provided.trouble = provided.trouble.failed(now, ending.why)
        room = now >= provided.trouble.not_before
        try:
            cancelling = [job for job in self._jobs.of(provided.name) if job.phase == "cancelling"]
            # Those first that were asked the longest ago: one that the engine will not end keeps no other from its end.
            for job in sorted(cancelling, key=lambda job: self._jobs.seen(job).told_to_end or 0.0):
                try:
                    await self._end(provided, job, now)
                except ProviderSilentError:
                    raise  # the others would each wait as long for nothing
                except (ProviderDownError, ProviderRefusedError) as error:  # others may be ended all the same
                    logger.warning("the engine will not end a job", job=job.id, problem=str(error))
            for _ in range(decided.submit if room else 0):
                await self._submit(provided, now)
        except (ProviderDownError, ProviderRefusedError) as error:
            provided.trouble = provided.trouble.failed(now, words(error))
            logger.warning("a provider will not", provider=provided.name, problem=str(error))

    def drain(self, ending: Ending) -> None:
        """Nobody is placed on the job's node any more."""
        job = self._jobs[ending.job]
        self._jobs.store(replace(job, phase="draining", why=ending.why))
        self._jobs.seen(job).evicting = ending.evict
        self._pool.drain(job.node, ending.why, evict=ending.evict)
        if not ending.evict:
            self._look_soon()  # it serves nobody, unless somebody came just now

    async def _end(self, provided: Provided, job: Job, now: float) -> None:
        seen = self._jobs.seen(job)
        if seen.told_to_end is not None and now - seen.told_to_end < self._pace.insist:
            return
        if seen.told_to_end is None:
            logger.info("a job is given back", provider=provided.name, job=job.id, node=job.node, why=job.why)
        seen.told_to_end = now
        await provided.provider.cancel(job.id, job.state)

    async def _submit(self, provided: Provided, now: float) -> None:
        name = self._name()
        job = Job(name, provided.name, node_name(provided.name, name), provided.scale.devices)
        self._jobs.store(job)
        seen = self._jobs.seen(job)
        seen.since, seen.submitted = now, True
        try:
            state = await provided.provider.submit(JobOrder(job.id, job.node, job.devices))
        except ProviderRefusedError:
            self._jobs.forget(job)
            raise
        logger.info("a job is submitted", provider=provided.name, job=job.id, node=job.node)
        self._jobs.store(replace(job, phase="submitted", state=state))

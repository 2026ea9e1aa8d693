"""Jobs that are found in the engine: those whose submit was never answered, and those that nobody here knows."""

from __future__ import annotations

from dataclasses import replace

import structlog

from gpupool.providers.contract import ProviderDownError, ProviderRefusedError, ProviderSilentError
from gpupool.providers.known_jobs import KnownJobs
from gpupool.providers.provided import Pace, Provided

logger = structlog.get_logger(__name__)


async def find_jobs(provided: Provided, jobs: KnownJobs, pace: Pace, now: float) -> None:
    """Adopts the former, and ends the latter.

    Raises:
        ProviderDownError: the engine does not say which there are, or falls silent.
    """
    lost = [
        job
        for job in jobs.of(provided.name)
        if job.phase == "intended" or (job.phase == "cancelling" and not job.state)
    ]
    due = provided.swept is None or now - provided.swept >= pace.sweep
    if not lost and not due:
        return
    owned = await provided.provider.list_owned()
    for job in lost:
        if job.id in owned and job.phase == "cancelling":
            jobs.store(replace(job, state=owned[job.id]))
        elif job.id in owned:
            jobs.store(replace(job, phase="submitted", state=owned[job.id], why="found in the engine"))
        elif now - jobs.seen(job).since >= pace.settle:
            logger.info("a job was never submitted", provider=provided.name, job=job.id)
            jobs.forget(job)
    # Of what the engine lists none has ended: one that it called ended before is nobody's, like an unknown one.
    strangers = [job_id for job_id in owned if job_id not in jobs or jobs[job_id].phase == "over"]
    for job_id in strangers:
        if jobs.is_kept(job_id):
            continue
        logger.warning("a job that this pool does not count on is ended", provider=provided.name, job=job_id)
        try:
            await provided.provider.cancel(job_id, owned[job_id])
        except ProviderSilentError:
            raise
        except (ProviderDownError, ProviderRefusedError) as error:
            logger.warning("the engine will not end it", job=job_id, problem=str(error))
    # Those that were asked to end are looked at again soon.
    provided.swept = now if not strangers else now - pace.sweep + pace.insist

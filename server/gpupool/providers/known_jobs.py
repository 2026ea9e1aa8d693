"""All jobs that the pool has asked for: what the ledger keeps of each, and what was seen of it since this process began."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from gpupool.providers.contract import JobReport
from gpupool.providers.elasticity import Standing
from gpupool.providers.jobs import Job, JobBook
from gpupool.providers.pool import NodeStands


@dataclass(slots=True)
class Seen:
    """What is known of a job besides the ledger; forgotten with the process, which at worst keeps a job longer."""

    since: float
    #: What the engine said last.
    report: JobReport | None = None
    engine: str = ""
    reason: str = ""
    seconds_left: float | None = None
    #: When the engine ends it, by the pool's clock: what was said last holds while the engine says nothing.
    ends_at: float | None = None
    starts_in: float | None = None
    never: bool = False
    unneeded_since: float | None = None
    connected: bool = False
    connected_at: float = -math.inf
    evicting: bool = False
    told_to_end: float | None = None
    #: This process has submitted it.
    submitted: bool = False
    #: `seconds_left` when it was seen to run first, of a job that this process has submitted.
    lifetime: float | None = None


class KnownJobs:
    """All jobs of all providers.

    Args:
        book: where they are kept.
        now: the pool's clock.
    """

    def __init__(self, book: JobBook, now: Callable[[], float]) -> None:
        self._book = book
        self._now = now
        self._jobs = book.jobs()
        self._of: dict[str, dict[str, Job]] = {}
        for job in self._jobs.values():
            self._of.setdefault(job.provider, {})[job.id] = job
        self._seen: dict[str, Seen] = {}
        #: How jobs stood when somebody asked last, with what that followed from.
        self._stood: dict[str, tuple[Job, NodeStands | None, tuple[object, ...], Standing]] = {}
        self._ending = False

    @property
    def ending(self) -> bool:
        """All of them are to end, and no other one begins."""
        return self._ending

    def __contains__(self, job_id: str) -> bool:
        return job_id in self._jobs

    def __getitem__(self, job_id: str) -> Job:
        return self._jobs[job_id]

    def is_kept(self, job_id: str) -> bool:
        """Whether the ledger counts on a job now, though this process may not.

        A leader that was stopped for long knows none of its successor's jobs. Each of them has had its row before the
        engine listed it: so the row is there, or the question is refused because another server leads.
        """
        kept = self._book.find(job_id)
        return kept is not None and kept.phase != "over"

    def all(self) -> list[Job]:
        return list(self._jobs.values())

    def of(self, provider: str) -> list[Job]:
        return list(self._of.get(provider, {}).values())

    def seen(self, job: Job) -> Seen:
        """May be written to."""
        seen = self._seen.get(job.id)
        if seen is None:
            seen = self._seen[job.id] = Seen(self._now())
        return seen

    def store(self, job: Job) -> None:
        """On the disk when this returns."""
        if self._ending and job.phase != "over":
            # Also if a look that is still under way has meant something else for it.
            job = replace(job, phase="cancelling")
        self._book.store(job)
        self._jobs[job.id] = job
        self._of.setdefault(job.provider, {})[job.id] = job

    def forget(self, job: Job) -> None:
        self._book.forget(job.id)
        self._jobs.pop(job.id, None)
        self._of.get(job.provider, {}).pop(job.id, None)
        self._seen.pop(job.id, None)
        self._stood.pop(job.id, None)

    def end_all(self, why: str) -> None:
        """From now on every job is one that is to end; the ledger has it before any engine is asked."""
        self._ending = True
        for job in self.all():
            if job.phase != "over":
                self.store(replace(job, why=why))

    def standing(
        self, job: Job, node: NodeStands | None, *, free: tuple[int, ...], settling: bool
    ) -> Standing:
        """How a job stands, for the plan.

        Args:
            job: one of these.
            node: its node.
            free: what nobody has on it.
            settling: its node has connected just now.
        """
        seen = self.seen(job)
        more = (
            free, settling, seen.engine, seen.since, seen.reason, seen.connected, seen.unneeded_since,
            seen.seconds_left, seen.lifetime, seen.starts_in, seen.never, seen.evicting,
        )  # fmt: skip
        known = self._stood.get(job.id)
        # Of a thousand jobs most stand as they did a look ago.
        if known is None or known[0] is not job or known[1] is not node or known[2] != more:
            known = self._stood[job.id] = job, node, more, _standing(job, seen, node, free, settling)
        return known[3]


def _standing(
    job: Job, seen: Seen, node: NodeStands | None, free: tuple[int, ...], settling: bool
) -> Standing:
    return Standing(
        id=job.id,
        phase=job.phase,
        engine=seen.engine,
        since=seen.since,
        reason=seen.reason,
        devices=job.devices,
        connected=seen.connected or node is not None,
        settling=settling,
        found=node.devices if node is not None and node.connected else None,
        busy=node is not None and node.busy and not node.lost,
        lost=node is not None and node.lost,
        drained=node is not None and node.drained,
        unneeded_since=seen.unneeded_since,
        seconds_left=seen.seconds_left,
        lifetime=seen.lifetime,
        starts_in=seen.starts_in,
        never=seen.never,
        evicting=seen.evicting,
        leases=node.leases if node is not None else (),
        free=free,
    )

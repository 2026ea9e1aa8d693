"""Jobs of providers, kept in the pool's ledger."""

from __future__ import annotations

from collections.abc import Mapping

from gpupool.ledger.ledger import Ledger
from gpupool.ledger.provider_jobs import ProviderJobs
from gpupool.providers.jobs import Job


class LedgerBook:
    """`gpupool.providers.jobs.JobBook` over the ledger's tables."""

    def __init__(self, ledger: Ledger) -> None:
        self._rows = ProviderJobs(ledger.database)

    @property
    def pool_id(self) -> str:
        return self._rows.pool_id

    def jobs(self) -> dict[str, Job]:
        """All of them. Raises ValueError: one is none."""
        found = (Job.from_json(row) for row in self._rows.rows())
        return {job.id: job for job in found}

    def find(self, job_id: str) -> Job | None:
        row = self._rows.row(job_id)
        return None if row is None else Job.from_json(row)

    def store(self, job: Job) -> None:
        self._rows.store(job.id, job.as_json())

    def forget(self, job_id: str) -> None:
        self._rows.forget(job_id)

    def limits(self) -> dict[str, dict[str, float]]:
        return self._rows.limits()

    def set_limits(self, provider: str, limits: Mapping[str, float]) -> None:
        self._rows.set_limits(provider, limits)

"""Jobs of providers in the ledger. They are no part of the pool's steps: an engine cannot be rolled back."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Engine, delete, insert, select

from gpupool.ledger import schema

_POOL_ID = "pool_id"


class ProviderJobs:
    """Rows by job and by provider. Each call is a transaction of its own, on the disk when it returns.

    Raises SQLAlchemyError when the ledger cannot be read or written.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.pool_id = self._pool_id()

    def rows(self) -> list[dict[str, Any]]:
        """What was stored, the oldest id first."""
        with self._engine.connect() as connection:
            query = select(schema.provider_jobs.c.job).order_by(schema.provider_jobs.c.id)
            return [dict(job) for job in connection.execute(query).scalars()]

    def store(self, job_id: str, job: Mapping[str, Any]) -> None:
        table = schema.provider_jobs
        with self._engine.begin() as connection:
            connection.execute(delete(table).where(table.c.id == job_id))
            connection.execute(insert(table).values(id=job_id, job=dict(job)))

    def forget(self, job_id: str) -> None:
        with self._engine.begin() as connection:
            connection.execute(delete(schema.provider_jobs).where(schema.provider_jobs.c.id == job_id))

    def limits(self) -> dict[str, dict[str, float]]:
        """By provider."""
        with self._engine.connect() as connection:
            found = connection.execute(select(schema.provider_limits)).mappings().all()
        return {row["provider"]: dict(row["limits"]) for row in found}

    def set_limits(self, provider: str, limits: Mapping[str, float]) -> None:
        table = schema.provider_limits
        with self._engine.begin() as connection:
            connection.execute(delete(table).where(table.c.provider == provider))
            if limits:
                connection.execute(insert(table).values(provider=provider, limits=dict(limits)))

    def _pool_id(self) -> str:
        """A name that no other ledger has, made when it is first asked for."""
        with self._engine.begin() as connection:
            query = select(schema.meta.c.value).where(schema.meta.c.name == _POOL_ID)
            found = connection.execute(query).scalar()
            if found is None:
                found = secrets.token_hex(4)
                connection.execute(insert(schema.meta).values(name=_POOL_ID, value=found))
        return str(found)

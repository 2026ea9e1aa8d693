"""Jobs of providers in the ledger. They are no part of the pool's steps: an engine cannot be rolled back."""

from __future__ import annotations

import contextlib
import functools
import secrets
from collections.abc import Iterator, Mapping
from typing import Any

from sqlalchemy import Connection, delete, insert, select

from gpupool.ledger import schema
from gpupool.ledger.database import Database

_POOL_ID = "pool_id"


class ProviderJobs:
    """Rows by job and by provider. Each call is a transaction of its own, on the disk when it returns.

    Raises SQLAlchemyError when the ledger cannot be read or written, or another server has taken over.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    @functools.cached_property
    def pool_id(self) -> str:
        """A name that no other ledger has, made when it is first asked for."""
        with self._writing() as connection:
            query = select(schema.meta.c.value).where(schema.meta.c.name == _POOL_ID)
            found = connection.execute(query).scalar()
            if found is None:
                found = secrets.token_hex(4)
                connection.execute(insert(schema.meta).values(name=_POOL_ID, value=found))
        return str(found)

    def rows(self) -> list[dict[str, Any]]:
        """What was stored, the oldest id first."""
        with self._database.engine.connect() as connection:
            query = select(schema.provider_jobs.c.job).order_by(schema.provider_jobs.c.id)
            return [dict(job) for job in connection.execute(query).scalars()]

    def row(self, job_id: str) -> dict[str, Any] | None:
        """What is stored of one; None: nothing. An answer is one of this server's own lead, as a write would be."""
        table = schema.provider_jobs
        with self._writing() as connection:
            job = connection.execute(select(table.c.job).where(table.c.id == job_id)).scalar()
        return None if job is None else dict(job)

    def store(self, job_id: str, job: Mapping[str, Any]) -> None:
        table = schema.provider_jobs
        with self._writing() as connection:
            connection.execute(delete(table).where(table.c.id == job_id))
            connection.execute(insert(table).values(id=job_id, job=dict(job)))

    def forget(self, job_id: str) -> None:
        with self._writing() as connection:
            connection.execute(delete(schema.provider_jobs).where(schema.provider_jobs.c.id == job_id))

    def limits(self) -> dict[str, dict[str, float]]:
        """By provider."""
        with self._database.engine.connect() as connection:
            found = connection.execute(select(schema.provider_limits)).mappings().all()
        return {row["provider"]: dict(row["limits"]) for row in found}

    def set_limits(self, provider: str, limits: Mapping[str, float]) -> None:
        table = schema.provider_limits
        with self._writing() as connection:
            connection.execute(delete(table).where(table.c.provider == provider))
            if limits:
                connection.execute(insert(table).values(provider=provider, limits=dict(limits)))

    @contextlib.contextmanager
    def _writing(self) -> Iterator[Connection]:
        with self._database.engine.begin() as connection:
            self._database.fence(connection)
            yield connection

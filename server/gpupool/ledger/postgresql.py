"""A ledger in PostgreSQL: one pool per database, and a commit whose answer is lost is found out about.

The password comes from where libpq looks for it (``PGPASSFILE``, ``~/.pgpass``, a service file), never from the URL: that
stands in the list of processes and in logs.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, Engine, create_engine, insert, select, text, update
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.pool import QueuePool

from gpupool.ledger import schema

DRIVER: Final = "postgresql+psycopg"
#: Two halves of the advisory lock that the only pool of a database holds ("gpup", "ool").
_LOCK: Final = (0x67707570, 0x006F6F6C)
#: An answer that takes longer is none, milliseconds: the pool stands still meanwhile.
_PATIENCE_MS: Final = 5000
#: How long a server of ours that lost its connection may take to be ended at the database, seconds.
_TAKE_BACK_SECONDS: Final = 3.0
#: How long a pool that starts waits for one that has just ended: its connection lives a moment longer, seconds.
_PREDECESSOR_SECONDS: Final = 1.0
_OWNER: Final = "owner"
#: Parameters of libpq that are secrets.
_SECRETS: Final = frozenset({"password", "sslpassword"})


class NotTheOnlyPoolError(SQLAlchemyError):
    """Another pool uses the database."""


class OutcomeUnknownError(SQLAlchemyError):
    """The database may know more than this pool: it must be started again."""


class PostgresDatabase:
    """A PostgreSQL database (15 or later).

    Args:
        url: ``postgresql+psycopg://user@host:5432/name``; without a password.
        exclusive: hold the advisory lock, on the connection that steps are written on.

    Raises:
        ValueError: the URL is of another kind, has a password in it, or psycopg is not installed.
    """

    path: Path | None = None

    def __init__(self, url: str, *, exclusive: bool) -> None:
        parsed = _parse(url)
        self.name = parsed.render_as_string(hide_password=True)
        self._exclusive = exclusive
        #: Told apart from any other pool, also from one that took over while the connection was broken.
        self._owner = secrets.token_hex(8)
        options = (
            f"-c synchronous_commit=on -c statement_timeout={_PATIENCE_MS} -c lock_timeout={_PATIENCE_MS}"
        )
        self._arguments: dict[str, Any] = {
            "connect_timeout": 5,
            "tcp_user_timeout": _PATIENCE_MS,
            "keepalives_idle": 5,
            "keepalives_interval": 2,
            "keepalives_count": 3,
            "application_name": f"gpupool-{self._owner}",
            "options": options,
        }
        try:
            # Readers; `pre_ping` finds connections that a restart of the database has broken.
            self.engine = self._make_engine(parsed, size=4, pre_ping=True)
            self._writers = self._make_engine(parsed, size=1, pre_ping=False)
        except (NoSuchModuleError, ImportError) as error:
            raise ValueError(
                "a ledger in PostgreSQL needs the package psycopg: pip install 'jupyter-gpupool[postgresql]'"
            ) from error
        self._writer: Connection | None = None
        self._took_over = False
        self._unknown_step: int | None = None
        self._fatal = ""

    def open(self) -> None:
        if self._exclusive:
            self._connect_writer()

    @contextlib.contextmanager
    def writing(self, step: int) -> Iterator[Connection]:
        """A transaction. When the connection breaks in its commit, the database is asked whether it took place."""
        connection = self._ready_writer()
        if self._exclusive and not self._took_over:
            self._take_over(connection)
        transaction = connection.begin()
        try:
            yield connection
        except BaseException:
            with contextlib.suppress(SQLAlchemyError):
                transaction.rollback()
            self._drop_broken(connection)
            raise
        try:
            transaction.commit()
        except DBAPIError as error:
            self._drop_broken(connection)
            if not error.connection_invalidated:
                raise
            self._unknown_step = step
            if not self._took_place():
                raise

    def close(self) -> None:
        if self._writer is not None:
            with contextlib.suppress(SQLAlchemyError):
                self._writer.close()
        self._writer = None
        self._writers.dispose()
        self.engine.dispose()

    # ---- the connection that writes

    def _make_engine(self, url: URL, *, size: int, pre_ping: bool) -> Engine:
        return create_engine(
            url,
            connect_args=self._arguments,
            poolclass=QueuePool,
            pool_size=size,
            max_overflow=size,
            pool_pre_ping=pre_ping,
            isolation_level="READ COMMITTED",
        )

    def _ready_writer(self) -> Connection:
        if self._fatal:
            raise OutcomeUnknownError(self._fatal)
        if self._unknown_step is not None and self._took_place():
            self._fatal = (
                "the database has stored a step whose answer was lost, and the pool went on without it; start the "
                "pool again"
            )
            raise OutcomeUnknownError(self._fatal)
        if self._writer is None or self._writer.closed or self._writer.invalidated:
            self._connect_writer()
        assert self._writer is not None
        return self._writer

    def _connect_writer(self) -> None:
        if self._writer is not None:
            with contextlib.suppress(SQLAlchemyError):
                self._writer.close()
            self._writer = None
        connection = self._writers.connect()
        try:
            if self._exclusive:
                self._lock(connection)
        except BaseException:
            connection.invalidate()
            connection.close()
            raise
        self._writer = connection

    def _lock(self, connection: Connection) -> None:
        """Takes the advisory lock; it lasts as long as the connection."""
        give_up_at = time.monotonic() + (_TAKE_BACK_SECONDS if self._took_over else _PREDECESSOR_SECONDS)
        query = text("SELECT pg_try_advisory_lock(:one, :two)")
        while not connection.execute(query, {"one": _LOCK[0], "two": _LOCK[1]}).scalar_one():
            connection.rollback()
            if time.monotonic() > give_up_at:
                raise NotTheOnlyPoolError(
                    "another pool server uses this database; stop it, or name another database"
                )
            # Our own broken connection may live on over there; its transaction must not end after we looked.
            connection.execute(
                text(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE application_name = :name AND pid <> pg_backend_pid()"
                ),
                {"name": self._arguments["application_name"]},
            )
            connection.rollback()
            time.sleep(0.05)
        connection.rollback()
        if self._took_over:
            owner = connection.execute(
                select(schema.meta.c.value).where(schema.meta.c.name == _OWNER)
            ).scalar()
            connection.rollback()
            if owner != self._owner:
                self._fatal = "another pool server has used this database meanwhile; start this one again"
                raise OutcomeUnknownError(self._fatal)

    def _take_over(self, connection: Connection) -> None:
        with connection.begin():
            change = update(schema.meta).where(schema.meta.c.name == _OWNER).values(value=self._owner)
            if connection.execute(change).rowcount == 0:
                connection.execute(insert(schema.meta).values(name=_OWNER, value=self._owner))
        self._took_over = True

    def _took_place(self) -> bool:
        """Whether the step whose commit was not answered is stored.

        Raises:
            SQLAlchemyError: the database cannot be asked now; it stays unknown.
        """
        self._connect_writer()
        assert self._writer is not None
        query = select(schema.steps.c.number).where(schema.steps.c.number == self._unknown_step)
        found = self._writer.execute(query).first() is not None
        self._writer.rollback()
        self._unknown_step = None
        return found

    def _drop_broken(self, connection: Connection) -> None:
        if connection.invalidated:
            with contextlib.suppress(SQLAlchemyError):
                connection.close()
            self._writer = None


def _parse(url: str) -> URL:
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        # Without the URL: it may have a password in it.
        raise ValueError(
            f"the ledger's URL is none of a database; write {DRIVER}://user@host/database"
        ) from None
    if parsed.drivername not in (DRIVER, "postgresql"):
        raise ValueError(
            f"a ledger in {parsed.drivername[:40]!r} is not supported; name a file, or {DRIVER}://user@host/database"
        )
    if parsed.password is not None or not _SECRETS.isdisjoint(parsed.query):
        raise ValueError(
            "the URL of the ledger has a password in it, which others can read in the list of processes; put it into "
            "~/.pgpass, or a file that PGPASSFILE names"
        )
    return parsed.set(drivername=DRIVER)

"""A ledger in PostgreSQL: one leader per database, and a commit whose answer is lost is found out about.

Whoever leads holds an advisory lock on the one connection that writes steps. A server that was overtaken cannot write
any: its connection is gone, and another one gets neither the lock nor past the owner that is stored.

The password comes from where libpq looks for it (``PGPASSFILE``, ``~/.pgpass``, a service file), never from the URL: that
stands in the list of processes and in logs.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, Engine, create_engine, select
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.pool import QueuePool

from gpupool.ledger import schema, servers
from gpupool.ledger.database import Lead
from gpupool.ledger.lines import Deadline, Lines
from gpupool.ledger.servers import NotTheOnlyPoolError, ServerIdentity

DRIVER: Final = "postgresql+psycopg"
#: An answer that takes longer is none, milliseconds: the pool stands still meanwhile.
_PATIENCE_MS: Final = 5000
#: A transaction has several statements. One that takes longer hangs on a connection that has stalled, seconds.
_STALLED_SECONDS: Final = 15.0
#: How long a server of ours that lost its connection may take to be ended at the database, seconds.
_TAKE_BACK_SECONDS: Final = 3.0
#: How long a pool that starts waits for one that has just ended: its connection lives a moment longer, seconds.
_PREDECESSOR_SECONDS: Final = 1.0
#: Parameters of libpq that are secrets.
_SECRETS: Final = frozenset({"password", "sslpassword"})


class OutcomeUnknownError(SQLAlchemyError):
    """The database may know more than this pool: it must be started again."""


class PostgresDatabase:
    """A PostgreSQL database (15 or later).

    Args:
        url: ``postgresql+psycopg://user@host:5432/name``; without a password.
        leader: hold the advisory lock for this server, on the connection that steps are written on; None: for readers.
        name: of its connections, in PostgreSQL's list; None: after the leader.

    Attributes:
        epoch: under which this server leads; 0: it does not.

    Raises:
        ValueError: the URL is of another kind, has a password in it, or psycopg is not installed.
    """

    path: Path | None = None

    def __init__(self, url: str, *, leader: ServerIdentity | None = None, name: str | None = None) -> None:
        parsed = _parse(url)
        self.name = parsed.render_as_string(hide_password=True)
        self.epoch = 0
        self._leader = leader
        options = (
            f"-c synchronous_commit=on -c statement_timeout={_PATIENCE_MS} -c lock_timeout={_PATIENCE_MS}"
        )
        self._arguments: dict[str, Any] = {
            "connect_timeout": 5,
            "tcp_user_timeout": _PATIENCE_MS,
            "keepalives_idle": 5,
            "keepalives_interval": 2,
            "keepalives_count": 3,
            "application_name": name or (leader or ServerIdentity()).leads_as,
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
        self._readers_lines = Lines(self.engine)
        # Steps are written on the event loop, so nobody else there can see that one hangs.
        self._deadline = Deadline(_STALLED_SECONDS, Lines(self._writers).break_off)
        self._writer: Connection | None = None
        self._unknown_step: int | None = None
        self._fatal = ""

    def open(self) -> None:
        if self._leader is not None:
            self._connect_writer()

    def lead(self) -> None:
        if self._leader is None:
            return
        connection = self._ready_writer()
        with connection.begin():
            self.epoch = servers.take_over(connection, self._leader)

    def leads(self) -> Lead:
        """Over another connection than steps are written on."""
        if self._leader is None:
            return Lead.HELD
        if self._fatal:
            return Lead.LOST
        with self.engine.connect() as connection:
            # The owner first: one that takes over has the lock before it is the owner.
            owner = servers.owner(connection)
            holder = servers.lock_holder(connection)
        if owner != self._leader.id or (holder is not None and holder.name != self._leader.leads_as):
            return Lead.LOST
        return Lead.HELD if holder is not None else Lead.FREE

    def fence(self, connection: Connection) -> None:
        if self._leader is not None:
            servers.require_owner(connection, self._leader)

    def take_back(self) -> None:
        """Connects again where the connection is broken, and takes the lock back."""
        with self._deadline.work():
            self._ready_writer()

    def break_off(self) -> None:
        self._readers_lines.break_off()

    @contextlib.contextmanager
    def writing(self, step: int) -> Iterator[Connection]:
        """A transaction. When the connection breaks in its commit, the database is asked whether it took place."""
        with self._deadline.work(), self._writing(step) as connection:
            yield connection

    @contextlib.contextmanager
    def _writing(self, step: int) -> Iterator[Connection]:
        connection = self._ready_writer()
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
            with contextlib.suppress(SQLAlchemyError), self._deadline.work():
                if self._leader is not None:
                    with self._writer.begin():
                        servers.left(self._writer, self._leader)
                self._writer.close()
        self._writer = None
        self._deadline.close()
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
            if self._leader is not None:
                self._lock(connection, self._leader)
        except BaseException:
            connection.invalidate()
            connection.close()
            raise
        self._writer = connection

    def _lock(self, connection: Connection, me: ServerIdentity) -> None:
        led = self.epoch > 0
        give_up_at = time.monotonic() + (_TAKE_BACK_SECONDS if led else _PREDECESSOR_SECONDS)
        while not servers.try_lock(connection):
            connection.rollback()
            self._require_not_overtaken(connection, me)
            if time.monotonic() > give_up_at:
                raise NotTheOnlyPoolError(
                    "another pool server uses this database; stop it, name another database, or wait for it with --standby"
                )
            # Our own broken connection may live on over there; its transaction must not end after we looked.
            servers.end_connections(connection, me.leads_as)
            connection.rollback()
            time.sleep(0.05)
        connection.rollback()
        self._require_not_overtaken(connection, me)

    def _require_not_overtaken(self, connection: Connection, me: ServerIdentity) -> None:
        if self.epoch == 0:
            return
        owner = servers.owner(connection)
        connection.rollback()
        if owner != me.id:
            self._fatal = "another pool server has used this database meanwhile; start this one again"
            raise OutcomeUnknownError(self._fatal)

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

"""The databases that a ledger may be in: how each is opened, and how a transaction is written for sure."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Protocol

from sqlalchemy import Connection, Engine, create_engine, event

from gpupool.ledger.servers import ServerIdentity


class Lead(Enum):
    """Whether this server leads.

    FREE: it did, its connection broke, and nobody has taken over; it takes the lead back when it can. LOST: for good.
    """

    HELD = "held"
    FREE = "free"
    LOST = "lost"


class Database(Protocol):
    """Where a ledger lies.

    Attributes:
        name: for people; without a password.
        path: its file; None: it is no file.
        engine: for reading, and for writing what is no step.
        epoch: under which this server leads; each leader of a database has a higher one than those before. 0: there is
            but one server, or this one only reads.
    """

    name: str
    path: Path | None
    engine: Engine
    epoch: int

    def open(self) -> None:
        """Makes it ready. Raises OSError or SQLAlchemyError."""

    def writing(self, step: int) -> contextlib.AbstractContextManager[Connection]:
        """A transaction that stores step number `step`: when the block ends without an error it is on disk, else not."""

    def lead(self) -> None:
        """From now on this server decides, and no other. Called once the tables are there. Raises SQLAlchemyError."""

    def leads(self) -> Lead:
        """How it stands now; may be called in any thread. Raises SQLAlchemyError: the database does not answer."""

    def take_back(self) -> None:
        """Mends the connection that steps are written on. Raises SQLAlchemyError: it cannot be, or another leads."""

    def break_off(self) -> None:
        """Who waits for an answer on a connection of `engine` gets an error now; may be called in any thread."""

    def fence(self, connection: Connection) -> None:
        """For a transaction beside the steps: until it ends no other server takes over.

        Raises:
            SQLAlchemyError: another has.
        """

    def close(self) -> None: ...


class SqliteFile:
    """A file of its own, of mode 0600: write-ahead log, every commit on the disk before it is acknowledged."""

    def __init__(self, path: Path) -> None:
        self.path: Path | None = path
        self.name = str(path)
        self.epoch = 0
        self._file = path
        self.engine = create_engine(
            f"sqlite:///{path}", connect_args={"timeout": 5.0, "check_same_thread": False}
        )
        event.listen(self.engine, "connect", _set_up)
        event.listen(self.engine, "begin", _begin)

    def open(self) -> None:
        os.close(os.open(self._file, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))

    @contextlib.contextmanager
    def writing(self, step: int) -> Iterator[Connection]:
        with self.engine.begin() as connection:
            yield connection

    # The lock of the pool's home keeps every other server out.

    def lead(self) -> None:
        pass

    def leads(self) -> Lead:
        return Lead.HELD

    def take_back(self) -> None:
        pass

    def break_off(self) -> None:
        pass

    def fence(self, connection: Connection) -> None:
        pass

    def close(self) -> None:
        self.engine.dispose()


def _set_up(connection: sqlite3.Connection, _record: object) -> None:
    # The driver would commit before each CREATE TABLE by itself; transactions are ours alone.
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    # FULL: a commit that was acknowledged survives power loss, not only the death of the process.
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.close()


def _begin(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def is_url(where: Path | str) -> bool:
    """Whether a database server is named, and no file."""
    return isinstance(where, str) and "://" in where


def database_at(where: Path | str, *, leader: ServerIdentity | None = None) -> Database:
    """The database that is named: a path, or a URL ``postgresql+psycopg://…``.

    Args:
        where: the path or the URL.
        leader: the server, which must be the only one that stores steps; None: for readers. A file is kept so by the
            lock of the pool's home.

    Raises:
        ValueError: the URL is of another kind, or has a password in it.
    """
    if not is_url(where):
        return SqliteFile(Path(where))
    from gpupool.ledger.postgresql import PostgresDatabase

    return PostgresDatabase(str(where), leader=leader)

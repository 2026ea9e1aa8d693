"""The databases that a ledger may be in: how each is opened, and how a transaction is written for sure."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from sqlalchemy import Connection, Engine, create_engine, event


class Database(Protocol):
    """Where a ledger lies.

    Attributes:
        name: for people; without a password.
        path: its file; None: it is no file.
        engine: for reading, and for writing what is no step.
    """

    name: str
    path: Path | None
    engine: Engine

    def open(self) -> None:
        """Makes it ready. Raises OSError or SQLAlchemyError."""

    def writing(self, step: int) -> contextlib.AbstractContextManager[Connection]:
        """A transaction that stores step number `step`: when the block ends without an error it is on disk, else not."""

    def close(self) -> None: ...


class SqliteFile:
    """A file of its own, of mode 0600: write-ahead log, every commit on the disk before it is acknowledged."""

    def __init__(self, path: Path) -> None:
        self.path: Path | None = path
        self.name = str(path)
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


def database_at(where: Path | str, *, exclusive: bool) -> Database:
    """The database that is named: a path, or a URL ``postgresql+psycopg://…``.

    Args:
        where: the path or the URL.
        exclusive: for the server, which must be the only one that stores steps. A file is kept so by the lock of the
            pool's home.

    Raises:
        ValueError: the URL is of another kind, or has a password in it.
    """
    if isinstance(where, Path) or "://" not in where:
        return SqliteFile(Path(where))
    from gpupool.ledger.postgresql import PostgresDatabase

    return PostgresDatabase(where, exclusive=exclusive)

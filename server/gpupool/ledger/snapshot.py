"""Long looks at the ledger that keep nobody from writing to it."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

from sqlalchemy import Connection, Engine, NullPool, create_engine, event

#: A question that takes longer is given up, milliseconds.
_REPORT_MS = 60_000
#: SQLite has no such limit of its own: there a look ends when whoever asked has given up, seconds …
_LOOK_SECONDS = 120.0
#: … which is looked at after so many instructions of its virtual machine, some milliseconds.
_INSTRUCTIONS = 100_000


@contextlib.contextmanager
def snapshot(engine: Engine, path: Path | None = None) -> Iterator[Connection]:
    """A connection that sees the ledger as it is now, for as long as it is open, and changes nothing.

    May be used in another thread than the pool's: the ledger's own connections take the lock for writing at once,
    so a report over one of them would hold up every decision.

    Args:
        engine: the ledger's.
        path: its file, where it is SQLite.
    """
    if engine.dialect.name != "sqlite":
        reader = engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
        with reader.connect() as connection:
            # The ledger's own limit is for steps, which the whole pool waits for.
            connection.exec_driver_sql(f"SET LOCAL statement_timeout = {_REPORT_MS}")
            yield connection
        return
    file = str(path or engine.url.database)
    reading = create_engine(f"sqlite:///{file}", poolclass=NullPool, connect_args={"timeout": 5.0})
    give_up_at = time.monotonic() + _LOOK_SECONDS

    @event.listens_for(reading, "connect")
    def set_up(connection: sqlite3.Connection, _record: object) -> None:
        connection.isolation_level = None
        connection.set_progress_handler(lambda: time.monotonic() > give_up_at, _INSTRUCTIONS)
        connection.execute("PRAGMA query_only=ON")

    @event.listens_for(reading, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN DEFERRED")

    try:
        with reading.connect() as connection:
            yield connection
    finally:
        reading.dispose()

"""The ledger: stores one step of the machine in one transaction, and gives the state back after a restart."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, delete, event, insert, select, update
from sqlalchemy import Table as SqlTable
from sqlalchemy.exc import SQLAlchemyError

from gpupool.ledger import derived, rows, schema
from gpupool.ledger.periods import milliseconds
from gpupool.pool.clock import Clock
from gpupool.pool.instructions import Journal
from gpupool.pool.state import State, key_of
from gpupool.pool.table import Table
from gpupool.scheduler.model import Quota


class LedgerError(RuntimeError):
    """A step could not be stored (disk full, file unreadable, …); nothing of it was."""


class Ledger:
    """A database file with the pool's durable state.

    Args:
        path: the SQLite file; created with mode 0600.
        clock: turns the machine's times into wall-clock times, which survive a reboot.
    """

    def __init__(self, path: Path, clock: Clock) -> None:
        self.path = path
        self._clock = clock
        try:
            os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
            self.engine = _open_engine(path)
            with self.engine.begin() as connection:
                schema.prepare(connection)
                derived.prepare(connection, milliseconds(clock.to_unix(clock.now())))
        except (OSError, SQLAlchemyError) as error:
            raise LedgerError(f"the ledger {path} cannot be opened: {_first_line(error)}") from error

    def load(self) -> State:
        """The state as last committed; times that are not stored are zero, see `events.Restarted`."""
        state = State()
        with self.engine.connect() as connection:
            for table, sql, _, to_record, key in self._bindings(state):
                for row in connection.execute(select(sql)).mappings():
                    table[row[key]] = to_record(row, self._clock)
        for lease in state.leases.values():
            state.keys[key_of(lease.user, lease.key)] = lease.id
        state.commit()
        return state

    def store(self, state: State, journal: Iterable[Journal], now: float) -> bool:
        """Writes what changed since the last commit of `state`, all or nothing.

        Returns whether there was anything durable to write.

        Raises:
            LedgerError: nothing was written; the caller must roll the state back.
        """
        writes: list[Any] = []
        for table, sql, to_row, _, key in self._bindings(state):
            for name, (before, after) in table.changes().items():
                old = None if before is None else to_row(before, self._clock)
                new = None if after is None else to_row(after, self._clock)
                if old == new:
                    continue
                if new is None:
                    writes.append(delete(sql).where(sql.c[key] == name))
                elif old is None:
                    writes.append(insert(sql).values(**new))
                else:
                    changed = {column: value for column, value in new.items() if old[column] != value}
                    writes.append(update(sql).where(sql.c[key] == name).values(**changed))
        # Deletions first: a new lease may take the idempotency key of a forgotten one.
        writes.sort(key=lambda statement: not statement.is_delete)
        writes += derived.writes(state, milliseconds(self._clock.to_unix(now)))
        writes += [insert(schema.journal).values(**_journal_row(line, self._clock, now)) for line in journal]
        if not writes:
            return False
        try:
            with self.engine.begin() as connection:
                for statement in writes:
                    connection.execute(statement)
        except SQLAlchemyError as error:
            raise LedgerError(f"the ledger {self.path} cannot be written: {_first_line(error)}") from error
        return True

    def quotas(self) -> dict[str, Quota]:
        """Quotas set for single users; `"*"` is the default for all others."""
        with self.engine.connect() as connection:
            return {
                row.user: Quota(milli=row.milli, shares=row.shares)
                for row in connection.execute(select(schema.quotas))
            }

    def set_quota(self, user: str, quota: Quota | None) -> None:
        """Stores a user's quota; None removes it. A running server reads it at its next start."""
        with self.engine.begin() as connection:
            connection.execute(delete(schema.quotas).where(schema.quotas.c.user == user))
            if quota is not None:
                row = {"user": user, "milli": quota.milli, "shares": quota.shares}
                connection.execute(insert(schema.quotas).values(**row))

    def close(self) -> None:
        self.engine.dispose()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @staticmethod
    def _bindings(
        state: State,
    ) -> list[tuple[Table[Any], SqlTable, Callable[..., rows.Row], Callable[..., Any], str]]:
        return [
            (state.nodes, schema.nodes, rows.node_row, rows.node_record, "name"),
            (state.devices, schema.devices, rows.device_row, rows.device_record, "id"),
            (state.sessions, schema.sessions, rows.session_row, rows.session_record, "id"),
            (state.leases, schema.leases, rows.lease_row, rows.lease_record, "id"),
            (state.projects, schema.projects, rows.project_row, rows.project_record, "path"),
            (state.limits, schema.limits, rows.limit_row, rows.limit_record, "user"),
            (state.accounts, schema.accounts, rows.account_row, rows.account_record, "id"),
        ]


def _open_engine(path: Path) -> Engine:
    engine = create_engine(f"sqlite:///{path}", connect_args={"timeout": 5.0, "check_same_thread": False})

    @event.listens_for(engine, "connect")
    def set_up(connection: sqlite3.Connection, _record: object) -> None:
        # The driver would commit before each CREATE TABLE by itself; transactions are ours alone.
        connection.isolation_level = None
        cursor = connection.cursor()
        cursor.execute("PRAGMA journal_mode=WAL")
        # FULL: a commit that was acknowledged survives power loss, not only the death of the process.
        cursor.execute("PRAGMA synchronous=FULL")
        cursor.execute("PRAGMA foreign_keys=ON")
        cursor.close()

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


def _journal_row(line: Journal, clock: Clock, now: float) -> rows.Row:
    return {
        "at_unix": clock.to_unix(now),
        "kind": line.kind,
        "user": line.user,
        "lease_id": line.lease_id,
        "session_id": line.session_id,
        "node": line.node,
        "explanation": line.explanation,
        "data": dict(line.data),
    }


def _first_line(error: Exception) -> str:
    # SQLAlchemy appends the statement with its values, which may hold a worker token.
    cause = getattr(error, "orig", None) or error
    return str(cause).splitlines()[0] if str(cause) else type(cause).__name__


def read_journal(connection: Connection, *, lease_id: str = "", limit: int = 1000) -> list[dict[str, Any]]:
    """The latest lines of the journal, oldest first; all, or those of one lease."""
    query = select(schema.journal).order_by(schema.journal.c.number.desc()).limit(limit)
    if lease_id:
        query = query.where(schema.journal.c.lease_id == lease_id)
    return [dict(row) for row in reversed(connection.execute(query).mappings().all())]

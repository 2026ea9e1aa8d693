"""The statements of a stored step. Built once for each shape, so that SQLAlchemy compiles each once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from sqlalchemy import Connection, UpdateBase, bindparam, delete, insert, update
from sqlalchemy import Table as SqlTable

from gpupool.ledger import rows, schema
from gpupool.ledger.periods import Write
from gpupool.ledger.recorder import Changes
from gpupool.model.clock import Clock
from gpupool.model.state import State

#: Makes further statements of a step: from the state after it, what it changed, and the wall-clock time in milliseconds.
#: Called for every step, also for those that change only what is not stored; whatever it returns is written in the
#: step's transaction.
DerivedWriter = Callable[[State, Changes, int], Iterable[Write]]


@dataclass(frozen=True, slots=True)
class Binding:
    """How the records of one of the state's tables are stored."""

    name: str
    sql: SqlTable
    to_row: Callable[..., rows.Row]
    to_record: Callable[..., Any]
    key: str
    #: What is stored of a record never changes.
    fixed: bool = False


BINDINGS = (
    Binding("nodes", schema.nodes, rows.node_row, rows.node_record, "name"),
    Binding("devices", schema.devices, rows.device_row, rows.device_record, "id"),
    Binding("sessions", schema.sessions, rows.session_row, rows.session_record, "id"),
    Binding("leases", schema.leases, rows.lease_row, rows.lease_record, "id"),
    Binding("requests", schema.requests, rows.request_row, rows.request_record, "id", fixed=True),
    Binding("projects", schema.projects, rows.project_row, rows.project_record, "path"),
    Binding("limits", schema.limits, rows.limit_row, rows.limit_record, "user"),
    Binding("accounts", schema.accounts, rows.account_row, rows.account_record, "id"),
)


def durable_writes(changes: Changes, clock: Clock) -> list[Write]:
    """What brings the tables up to date; deletions first, for a new lease may take the idempotency key of a forgotten one."""
    deletions: list[Write] = []
    others: list[Write] = []
    for binding in BINDINGS:
        for name, (before, after) in changes.get(binding.name, {}).items():
            changes_one = before is not None and after is not None
            if before is after or (changes_one and (binding.fixed or rows.has_same_row(before, after))):
                continue
            old = None if before is None else binding.to_row(before, clock)
            new = None if after is None else binding.to_row(after, clock)
            if old == new:
                continue
            if new is None:
                deletions.append((_delete(binding.sql, binding.key), {"_key": name}))
            elif old is None:
                others.append((_insert(binding.sql), new))
            else:
                changed = {column: value for column, value in new.items() if old[column] != value}
                statement = _update(binding.sql, binding.key, tuple(changed))
                others.append((statement, {**changed, "_key": name}))
    return deletions + others


def journal_write(row: rows.Row) -> Write:
    """Adds a line to the journal."""
    return _insert(schema.journal), row


def step_write(row: rows.Row) -> Write:
    """Adds a step."""
    return _insert(schema.steps), row


def text_write(sha256: str, text: str) -> Write:
    """Adds a long text; the same hash is stored once (`known_texts`)."""
    return _insert(schema.texts), {"sha256": sha256, "text": text}


def execute(connection: Connection, writes: Iterable[Write]) -> None:
    """Executes them within the transaction of the connection: those of each table in their order, and table by table.

    No row refers to one of another table, so it makes no difference which table comes first. Of the same statements one
    after the other, as a crowd of steps has them, each costs little.
    """
    tables: dict[object, list[tuple[UpdateBase, list[Mapping[str, Any]]]]] = {}
    for statement, parameters in writes:
        runs = tables.setdefault(statement.table, [])
        if not runs or runs[-1][0] is not statement:
            runs.append((statement, []))
        runs[-1][1].append(parameters)
    for runs in tables.values():
        for statement, run in runs:
            connection.execute(statement, run)


@cache
def _insert(table: SqlTable) -> UpdateBase:
    return insert(table)


@cache
def _delete(table: SqlTable, key: str) -> UpdateBase:
    return delete(table).where(table.c[key] == bindparam("_key"))


@cache
def _update(table: SqlTable, key: str, columns: tuple[str, ...]) -> UpdateBase:
    return (
        update(table)
        .where(table.c[key] == bindparam("_key"))
        .values({column: bindparam(column, type_=table.c[column].type) for column in columns})
    )

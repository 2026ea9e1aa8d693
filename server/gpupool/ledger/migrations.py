"""How a database of an older version becomes one of this version."""

from __future__ import annotations

from sqlalchemy import Connection, insert, inspect, select
from sqlalchemy.dialects import sqlite
from sqlalchemy.schema import CreateIndex, CreateTable

from gpupool.ledger.schema import (
    PROTECTED,
    SCHEMA_VERSION,
    accounts,
    capacity,
    charges,
    limits,
    meta,
    metadata,
    projects,
    samples,
    steps,
    texts,
    waits,
)

#: Older databases than version 5 are SQLite's.
_SQLITE = sqlite.dialect()

#: Of what every database says in its own words, the words are left to it.
MIGRATIONS: dict[int, tuple[str | CreateTable, ...]] = {
    # Memory of sessions may lie elsewhere than on its device.
    1: (
        "ALTER TABLE sessions ADD COLUMN strict BOOLEAN NOT NULL DEFAULT 0",
        "ALTER TABLE sessions ADD COLUMN place VARCHAR NOT NULL DEFAULT 'device'",
        "ALTER TABLE sessions ADD COLUMN parked_unix FLOAT",
        "ALTER TABLE sessions ADD COLUMN parked_mib JSON NOT NULL DEFAULT '[]'",
        "ALTER TABLE sessions ADD COLUMN left_worker JSON",
        "ALTER TABLE sessions ADD COLUMN source_gone BOOLEAN NOT NULL DEFAULT 0",
    ),
    # A lease may have parts on several nodes.
    2: tuple(
        statement
        for table in ("sessions", "leases")
        for statement in (
            f"ALTER TABLE {table} ADD COLUMN gang VARCHAR NOT NULL DEFAULT ''",
            f"ALTER TABLE {table} ADD COLUMN part INTEGER NOT NULL DEFAULT 0",
        )
    ),
    # Projects, limits, what was used; node pools and drained nodes.
    3: (
        "ALTER TABLE nodes ADD COLUMN pool VARCHAR NOT NULL DEFAULT 'default'",
        "ALTER TABLE nodes ADD COLUMN labels JSON NOT NULL DEFAULT '[]'",
        "ALTER TABLE nodes ADD COLUMN sharing VARCHAR NOT NULL DEFAULT 'isolated'",
        "ALTER TABLE nodes ADD COLUMN drained BOOLEAN NOT NULL DEFAULT 0",
        "ALTER TABLE nodes ADD COLUMN drain_reason VARCHAR NOT NULL DEFAULT ''",
        "ALTER TABLE devices ADD COLUMN driver VARCHAR NOT NULL DEFAULT ''",
        "ALTER TABLE sessions ADD COLUMN project VARCHAR NOT NULL DEFAULT 'default'",
        "ALTER TABLE sessions ADD COLUMN isolated BOOLEAN NOT NULL DEFAULT 1",
        "ALTER TABLE leases ADD COLUMN project VARCHAR NOT NULL DEFAULT 'default'",
        "ALTER TABLE leases ADD COLUMN kind VARCHAR NOT NULL DEFAULT 'interactive'",
        "ALTER TABLE leases ADD COLUMN priority INTEGER NOT NULL DEFAULT 100",
        *(
            str(CreateTable(table).compile(dialect=_SQLITE))
            for table in (projects, limits, accounts, charges)
        ),
        *(
            str(CreateIndex(index).compile(dialect=_SQLITE))
            for index in sorted(charges.indexes, key=lambda index: str(index.name))
        ),
    ),
    # Any past moment can be rebuilt; what there was, and what was waited for.
    4: (
        "ALTER TABLE journal ADD COLUMN step BIGINT",
        "CREATE INDEX journal_time ON journal (at_unix)",
        *(str(CreateTable(table).compile(dialect=_SQLITE)) for table in (steps, texts, capacity, waits)),
        *(
            str(CreateIndex(index).compile(dialect=_SQLITE))
            for table in (steps, capacity, waits)
            for index in sorted(table.indexes, key=lambda index: str(index.name))
        ),
        *(statement for protection in PROTECTED[2:] for statement in protection.sqlite()),
    ),
    # The history of the pool.
    5: (CreateTable(samples),),
}


class SchemaTooNew(RuntimeError):
    """The database was written by a later version of this program."""


def prepare(connection: Connection) -> None:
    """Creates the tables, or brings an older database up to date, in the caller's transaction.

    Raises:
        SchemaTooNew: the database is of a later version; it is left as it is.
    """
    if not inspect(connection).has_table("meta"):
        metadata.create_all(connection)
        connection.execute(insert(meta).values(name="schema_version", value=str(SCHEMA_VERSION)))
        return
    version = int(
        connection.execute(select(meta.c.value).where(meta.c.name == "schema_version")).scalar_one()
    )
    if version > SCHEMA_VERSION:
        raise SchemaTooNew(
            f"the ledger has schema version {version}, this program knows up to {SCHEMA_VERSION}; "
            "start the newer program, or move the ledger away"
        )
    if version < 5 and connection.dialect.name != "sqlite":
        raise RuntimeError(f"a {connection.dialect.name} database of schema version {version} never was")
    while version < SCHEMA_VERSION:
        for statement in MIGRATIONS[version]:
            if isinstance(statement, str):
                connection.exec_driver_sql(statement)
            else:
                connection.execute(statement)
        version += 1
        connection.execute(meta.update().where(meta.c.name == "schema_version").values(value=str(version)))

"""The tables, and how a database of an older version becomes one of this version."""

from __future__ import annotations

from sqlalchemy import (
    DDL,
    JSON,
    BigInteger,
    Boolean,
    Column,
    Connection,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    event,
    false,
    insert,
    inspect,
    select,
    true,
)
from sqlalchemy.dialects import sqlite
from sqlalchemy.schema import CreateIndex, CreateTable

from gpupool.ledger.append_only import Protection

#: Grows by one with every change of the tables; `_MIGRATIONS[n]` turns version n into n + 1.
SCHEMA_VERSION = 5

#: Older databases than version 5 are SQLite's.
_SQLITE = sqlite.dialect()

#: Counts up by itself; SQLite does so for this type only, which has 64 bits there.
_COUNT = BigInteger().with_variant(Integer(), "sqlite")

metadata = MetaData()

meta = Table(
    "meta", metadata, Column("name", String, primary_key=True), Column("value", String, nullable=False)
)

nodes = Table(
    "nodes",
    metadata,
    Column("name", String, primary_key=True),
    Column("instance", String, nullable=False),
    Column("advertise_host", String, nullable=False),
    Column("lost", Boolean, nullable=False),
    Column("pool", String, nullable=False, server_default="default"),
    Column("labels", JSON, nullable=False, server_default="[]"),
    Column("sharing", String, nullable=False, server_default="isolated"),
    Column("drained", Boolean, nullable=False, server_default=false()),
    Column("drain_reason", String, nullable=False, server_default=""),
)

devices = Table(
    "devices",
    metadata,
    Column("id", String, primary_key=True),
    Column("node", String, nullable=False),
    Column("ordinal", Integer, nullable=False),
    Column("name", String, nullable=False),
    Column("uuid", String, nullable=False),
    Column("software", Boolean, nullable=False),
    Column("total_mib", BigInteger, nullable=False),
    Column("profile", Text, nullable=False),
    Column("healthy", Boolean, nullable=False),
    Column("health_reason", String, nullable=False),
    Column("present", Boolean, nullable=False),
    Column("driver", String, nullable=False, server_default=""),
)

sessions = Table(
    "sessions",
    metadata,
    Column("id", String, primary_key=True),
    Column("user", String, nullable=False),
    Column("label", String, nullable=False),
    Column("holder", String, nullable=False),
    Column("node", String, nullable=False),
    Column("device_ids", JSON, nullable=False),
    # The worker's capability itself: a resumed lease hands it out again. The file is 0600.
    Column("token", String, nullable=False),
    Column("state", String, nullable=False),
    Column("reason", String, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("address", String, nullable=False),
    Column("lease_id", String, nullable=False),
    Column("closed_unix", Float),
    Column("worker_gone", Boolean, nullable=False),
    Column("strict", Boolean, nullable=False, server_default=false()),
    # Where its device memory lies. Of an image nobody reports what it kept, so that is stored.
    Column("place", String, nullable=False, server_default="device"),
    Column("parked_unix", Float),
    Column("parked_mib", JSON, nullable=False, server_default="[]"),
    # The worker on another node that it was taken away from, while its end is not confirmed.
    Column("left_worker", JSON(none_as_null=True)),
    Column("source_gone", Boolean, nullable=False, server_default=false()),
    # A process with shares on several nodes has a session, and a lease, on each: the first one's id.
    Column("gang", String, nullable=False, server_default=""),
    Column("part", Integer, nullable=False, server_default="0"),
    Column("project", String, nullable=False, server_default="default"),
    Column("isolated", Boolean, nullable=False, server_default=true()),
)

leases = Table(
    "leases",
    metadata,
    Column("id", String, primary_key=True),
    Column("session_id", String, nullable=False),
    Column("user", String, nullable=False),
    Column("idempotency_key", String, nullable=False),
    Column("label", String, nullable=False),
    Column("holder", String, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("shares", JSON, nullable=False),
    Column("resize_shares", JSON),
    Column("state", String, nullable=False),
    Column("reason", String, nullable=False),
    Column("granted_unix", Float, nullable=False),
    Column("ends_unix", Float),
    Column("ended_unix", Float),
    Column("new_session", Boolean, nullable=False),
    Column("reservation", Boolean, nullable=False),
    Column("close_session", Boolean, nullable=False),
    Column("gang", String, nullable=False, server_default=""),
    Column("part", Integer, nullable=False, server_default="0"),
    Column("project", String, nullable=False, server_default="default"),
    Column("kind", String, nullable=False, server_default="interactive"),
    Column("priority", Integer, nullable=False, server_default="100"),
    # Two leases for one ask, or two with one epoch, are a bug: the database refuses them too.
    UniqueConstraint("user", "idempotency_key"),
    UniqueConstraint("session_id", "epoch"),
)

journal = Table(
    "journal",
    metadata,
    Column("number", _COUNT, primary_key=True, autoincrement=True),
    Column("at_unix", Float, nullable=False),
    Column("kind", String, nullable=False),
    Column("user", String, nullable=False),
    Column("lease_id", String, nullable=False),
    Column("session_id", String, nullable=False),
    Column("node", String, nullable=False),
    Column("explanation", Text, nullable=False),
    Column("data", JSON, nullable=False),
    # The step that wrote the line; empty in lines of before version 5.
    Column("step", BigInteger),
    Index("journal_lease", "lease_id"),
    Index("journal_session", "session_id"),
    Index("journal_time", "at_unix"),
)

# What each stored step did to all records, and the event behind it: see `steps.py`. Unlike the journal's lines, old
# ones may go, but only behind a later checkpoint.
steps = Table(
    "steps",
    metadata,
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("at_unix", Float, nullable=False),
    Column("event", String, nullable=False),
    Column("checkpoint", Boolean, nullable=False),
    Column("detail", LargeBinary, nullable=False),
    Index("steps_time", "at_unix"),
)
Index(
    "steps_checkpoint",
    steps.c.number,
    sqlite_where=steps.c.checkpoint.is_(true()),
    postgresql_where=steps.c.checkpoint.is_(true()),
)

# Long texts that many steps name by their SHA-256.
texts = Table(
    "texts",
    metadata,
    Column("sha256", String, primary_key=True),
    Column("text", Text, nullable=False),
)

tokens = Table(
    "tokens",
    metadata,
    Column("id", String, primary_key=True),
    Column("subject", String, nullable=False),
    Column("role", String, nullable=False),
    Column("sha256", String, nullable=False),
    Column("created_unix", Float, nullable=False),
    Column("revoked_unix", Float),
)

quotas = Table(
    "quotas",
    metadata,
    Column("user", String, primary_key=True),
    Column("milli", Integer),
    Column("shares", Integer),
)

projects = Table(
    "projects",
    metadata,
    Column("path", String, primary_key=True),
    Column("deserved", BigInteger),
    Column("limit_milli", BigInteger),
    Column("weight", Integer, nullable=False),
    Column("priority", Integer, nullable=False),
    Column("min_run", Float),
    Column("members", JSON, nullable=False),
)

limits = Table(
    "limits",
    metadata,
    Column("user", String, primary_key=True),
    Column("milli", BigInteger),
    Column("shares", Integer),
    Column("largest_milli", Integer),
    Column("gpu_seconds", BigInteger),
    Column("window_seconds", BigInteger, nullable=False),
)

accounts = Table(
    "accounts",
    metadata,
    Column("id", String, primary_key=True),
    Column("window_unix", Float),
    Column("window_milli_ms", BigInteger, nullable=False),
    Column("decayed_milli_seconds", Float, nullable=False),
    Column("as_of_unix", Float, nullable=False),
)

# What a lease held of a device for how long, at one size: the source of every report. `to_ms` is empty while it lasts.
charges = Table(
    "charges",
    metadata,
    Column("number", _COUNT, primary_key=True, autoincrement=True),
    Column("lease_id", String, nullable=False),
    Column("device_id", String, nullable=False),
    Column("user", String, nullable=False),
    Column("project", String, nullable=False),
    Column("milli", Integer, nullable=False),
    Column("mib", BigInteger, nullable=False),
    Column("from_ms", BigInteger, nullable=False),
    Column("to_ms", BigInteger),
    Index("charges_lease", "lease_id"),
    Index("charges_time", "to_ms", "from_ms"),
)

# How long a device was there to be lent, and what of it.
capacity = Table(
    "capacity",
    metadata,
    Column("number", _COUNT, primary_key=True, autoincrement=True),
    Column("device_id", String, nullable=False),
    Column("milli", Integer, nullable=False),
    Column("mib", BigInteger, nullable=False),
    Column("from_ms", BigInteger, nullable=False),
    Column("to_ms", BigInteger),
    Index("capacity_time", "to_ms", "from_ms"),
)

# What asks waited for, and how long.
waits = Table(
    "waits",
    metadata,
    Column("number", _COUNT, primary_key=True, autoincrement=True),
    Column("ask", String, nullable=False),
    Column("user", String, nullable=False),
    Column("project", String, nullable=False),
    Column("milli", BigInteger, nullable=False),
    Column("from_ms", BigInteger, nullable=False),
    Column("to_ms", BigInteger),
    Index("waits_ask", "ask"),
    Index("waits_time", "to_ms", "from_ms"),
)

#: Names of triggers, and what they forbid. `append_only.py` writes them for each database.
PROTECTED = (
    Protection("journal_no_update", "journal", "UPDATE", "the journal is append-only"),
    Protection("journal_no_delete", "journal", "DELETE", "the journal is append-only"),
    Protection("steps_no_update", "steps", "UPDATE", "the steps are append-only"),
    Protection(
        "steps_no_delete", "steps", "DELETE", "a step may be dropped only behind a later checkpoint",
        unless="EXISTS (SELECT 1 FROM steps WHERE checkpoint AND number > OLD.number)",
    ),
)  # fmt: skip
for _protection in PROTECTED:
    for _dialect, _statements in (("sqlite", _protection.sqlite()), ("postgresql", _protection.postgresql())):
        for _statement in _statements:
            event.listen(
                metadata,
                "after_create",
                DDL(_statement.replace("%", "%%")).execute_if(dialect=_dialect),  # type: ignore[no-untyped-call]
            )

_MIGRATIONS: dict[int, tuple[str, ...]] = {
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
        for statement in _MIGRATIONS[version]:
            connection.exec_driver_sql(statement)
        version += 1
        connection.execute(meta.update().where(meta.c.name == "schema_version").values(value=str(version)))

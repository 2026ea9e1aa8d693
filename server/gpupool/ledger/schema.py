"""The tables."""

from __future__ import annotations

from sqlalchemy import (
    DDL,
    JSON,
    BigInteger,
    Boolean,
    Column,
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
    true,
)

from gpupool.ledger.append_only import Protection
from gpupool.model.history_amounts import AMOUNTS

#: Grows by one with every change of the tables; there is no way from one version to another, see `version.py`.
SCHEMA_VERSION = 11

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
    # What opens the session's workers comes from it (`pool.model.session_keys`), also for a later lease. The file is 0600.
    Column("secret", String, nullable=False),
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
    # That it will be taken back soon, and for whom.
    Column("notice", JSON(none_as_null=True)),
    # Two leases for one request, or two with one epoch, are a bug: the database refuses them too.
    UniqueConstraint("user", "idempotency_key"),
    UniqueConstraint("session_id", "epoch"),
)

# Requests that wait. Their callers come again after a restart, or ask another server.
requests = Table(
    "requests",
    metadata,
    Column("id", String, primary_key=True),
    Column("number", BigInteger, nullable=False),
    Column("user", String, nullable=False),
    Column("idempotency_key", String, nullable=False),
    Column("project", String, nullable=False),
    Column("since_unix", Float, nullable=False),
    Column("give_up_unix", Float),
    # What is asked for.
    Column("wanted", JSON, nullable=False),
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
    # Why, as `gpupool.sentences` has it: who reads it is told no more names than they may see.
    Column("sentence", JSON, nullable=False),
    Column("data", JSON, nullable=False),
    # The step that wrote the line.
    Column("step", BigInteger, nullable=False),
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

# What requests waited for, and how long.
waits = Table(
    "waits",
    metadata,
    Column("number", _COUNT, primary_key=True, autoincrement=True),
    Column("request", String, nullable=False),
    Column("user", String, nullable=False),
    Column("project", String, nullable=False),
    Column("milli", BigInteger, nullable=False),
    Column("from_ms", BigInteger, nullable=False),
    Column("to_ms", BigInteger),
    Index("waits_request", "request"),
    Index("waits_time", "to_ms", "from_ms"),
)

# What the history of the pool is drawn from: sums over periods of `resolution_ms`, see `samples.py`. Rows of one period
# are by device and holder, by holder alone (what was waited for), or by nothing: how long of the period was looked at.
samples = Table(
    "samples",
    metadata,
    Column("resolution_ms", BigInteger, primary_key=True, autoincrement=False),
    Column("from_ms", BigInteger, primary_key=True, autoincrement=False),
    Column("device_id", String, primary_key=True),
    Column("user", String, primary_key=True),
    Column("project", String, primary_key=True),
    # Empty in periods longer than the shortest.
    Column("session_id", String, primary_key=True),
    Column("label", String, nullable=False),
    *(Column(name, BigInteger, nullable=False) for name in AMOUNTS),
)

# Jobs of providers: written before and after each step of theirs, not with the pool's.
provider_jobs = Table(
    "provider_jobs", metadata, Column("id", String, primary_key=True), Column("job", JSON, nullable=False)
)

# What `gpupool provider scale` has set.
provider_limits = Table(
    "provider_limits",
    metadata,
    Column("provider", String, primary_key=True),
    Column("limits", JSON, nullable=False),
)

# Pool servers of this database, in PostgreSQL: one leads under the highest epoch, the others wait to take over. Times are
# of the database's clock.
servers = Table(
    "servers",
    metadata,
    Column("id", String, primary_key=True),
    Column("name", String, nullable=False),
    Column("address", String, nullable=False),
    Column("version", String, nullable=False),
    # Under which it leads; 0: it waits.
    Column("epoch", BigInteger, nullable=False),
    Column("since_unix", Float, nullable=False),
    Column("seen_unix", Float, nullable=False),
    Column("beats", BigInteger, nullable=False),
)

# Names of triggers, and what they forbid. `append_only.py` writes them for each database.
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

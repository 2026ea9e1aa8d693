"""The pool servers of one PostgreSQL database: each has a row, and the one that holds the advisory lock leads.

The lock is the truth: PostgreSQL gives it to one connection, and takes it back with that connection. The rows are for
people, and for a standby that must know whether the holder of the lock still does anything: a process that is stopped,
or whose machine is cut off, keeps its connection, and with it the lock.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import Final

from sqlalchemy import Connection, Float, delete, insert, inspect, literal_column, select, text, update
from sqlalchemy.exc import SQLAlchemyError

from gpupool.ledger import schema

#: Two halves of the advisory lock that the only leader of a database holds ("gpup", "ool").
LOCK: Final = (0x67707570, 0x006F6F6C)
#: A server that has not been seen for so long is forgotten, seconds.
_FORGOTTEN_SECONDS: Final = 3600.0
_OWNER: Final = "owner"
_EPOCH: Final = "leader_epoch"
#: The database's clock, seconds since 1970: one clock for all servers, which goes on within a transaction.
_NOW: Final = literal_column("extract(epoch from clock_timestamp())::float8", Float)


class NotTheOnlyPoolError(SQLAlchemyError):
    """Another pool server leads on this database."""


@dataclass(frozen=True, slots=True)
class ServerIdentity:
    """What a pool server says of itself.

    Attributes:
        name: of its machine, for people.
        address: where callers reach it, for people.
        version: of gpupool.
        id: told apart from any other server, and from itself before it was deposed.
    """

    name: str = ""
    address: str = ""
    version: str = ""
    id: str = field(default_factory=lambda: secrets.token_hex(8))

    @property
    def leads_as(self) -> str:
        """The name of its connections as the leader, in PostgreSQL's list."""
        return f"gpupool-{self.id}"

    @property
    def waits_as(self) -> str:
        """The name of its connections as a standby."""
        return f"gpupool-standby-{self.id}"


@dataclass(frozen=True, slots=True)
class ServerRow:
    """A server as the database knows it.

    Attributes:
        epoch: under which it leads, or led; 0: it waits to take over.
        since_unix: when it began to do so, by the database's clock.
        silent_seconds: since it was seen last.
        beats: how often it was seen.
    """

    id: str
    name: str
    address: str
    version: str
    epoch: int
    since_unix: float
    silent_seconds: float
    beats: int


@dataclass(frozen=True, slots=True)
class LockHolder:
    """The connection that holds the advisory lock. `name`: see `ServerIdentity.leads_as`."""

    pid: int
    name: str


def take_over(connection: Connection, me: ServerIdentity) -> int:
    """Makes a server the owner of the database, whose lock the connection holds, in the caller's transaction.

    Returns the epoch under which it leads, higher than all before.
    """
    former = _meta(connection, _OWNER)
    if former is not None and former != me.id:
        # One that was stopped in the middle of a transaction keeps the rows that it has locked.
        end_connections(connection, ServerIdentity(id=former).leads_as)
    epoch = int(_meta(connection, _EPOCH) or 0) + 1
    for name, value in ((_OWNER, me.id), (_EPOCH, str(epoch))):
        changed = connection.execute(
            update(schema.meta).where(schema.meta.c.name == name).values(value=value)
        )
        if changed.rowcount == 0:
            connection.execute(insert(schema.meta).values(name=name, value=value))
    table = schema.servers
    # Whoever led before leads no more, whether it knows or not.
    connection.execute(delete(table).where(table.c.epoch > 0))
    # A standby may be stopped in the middle of its beat.
    gone = table.c.seen_unix < _NOW - _FORGOTTEN_SECONDS
    forgotten = select(table.c.id).where(gone).with_for_update(skip_locked=True)
    connection.execute(delete(table).where(table.c.id.in_(forgotten)))
    beat(connection, me, epoch)
    return epoch


def owner(connection: Connection) -> str | None:
    """The id of the server that took over last."""
    return _meta(connection, _OWNER)


def require_owner(connection: Connection, me: ServerIdentity) -> None:
    """Keeps others from taking over until the caller's transaction ends.

    Raises:
        NotTheOnlyPoolError: another has taken over.
    """
    query = select(schema.meta.c.value).where(schema.meta.c.name == _OWNER).with_for_update(read=True)
    if connection.execute(query).scalar() != me.id:
        raise NotTheOnlyPoolError("another pool server has taken over this database")


def beat(connection: Connection, me: ServerIdentity, epoch: int) -> None:
    """Says that the server is there. `epoch`: under which it leads; 0: it waits."""
    from sqlalchemy.dialects import postgresql  # a ledger in a file does without it

    table = schema.servers
    row = {"name": me.name, "address": me.address, "version": me.version, "epoch": epoch}
    statement = postgresql.insert(table).values(id=me.id, since_unix=_NOW, seen_unix=_NOW, beats=1, **row)
    connection.execute(
        statement.on_conflict_do_update(
            index_elements=[table.c.id],
            set_={**row, "seen_unix": _NOW, "beats": table.c.beats + 1},
        )
    )


def left(connection: Connection, me: ServerIdentity) -> None:
    """The server ends, and says so."""
    connection.execute(delete(schema.servers).where(schema.servers.c.id == me.id))


def rows(connection: Connection) -> list[ServerRow]:
    """All servers that were seen in the last hour, the leader first."""
    columns = schema.servers.c
    silent = (_NOW - columns.seen_unix).label("silent_seconds")
    names = (columns.id, columns.name, columns.address, columns.version, columns.epoch, columns.since_unix)
    query = (
        select(*names, silent, columns.beats)
        .where(columns.seen_unix > _NOW - _FORGOTTEN_SECONDS)
        .order_by(columns.epoch.desc(), columns.since_unix, columns.id)
    )
    return [ServerRow(*row) for row in connection.execute(query)]


def are_kept(connection: Connection) -> bool:
    """Whether the tables are there: the first leader of a new database makes them."""
    return inspect(connection).has_table(schema.servers.name)


def try_lock(connection: Connection) -> bool:
    """Takes the advisory lock if nobody has it; it lasts as long as the connection."""
    query = text("SELECT pg_try_advisory_lock(:one, :two)")
    return bool(connection.execute(query, {"one": LOCK[0], "two": LOCK[1]}).scalar_one())


def lock_holder(connection: Connection) -> LockHolder | None:
    """Who has the advisory lock of this database; None: nobody."""
    query = text(
        "SELECT held.pid, coalesce(activity.application_name, '') FROM pg_locks AS held "
        "LEFT JOIN pg_stat_activity AS activity ON activity.pid = held.pid "
        "WHERE held.locktype = 'advisory' AND held.granted AND held.objsubid = 2 "
        "AND held.classid = :one AND held.objid = :two "
        "AND held.database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    )
    row = connection.execute(query, {"one": LOCK[0], "two": LOCK[1]}).first()
    return None if row is None else LockHolder(int(row[0]), str(row[1]))


def end_connection(connection: Connection, pid: int) -> None:
    """Ends a connection of this database's, and with it what it locked."""
    connection.execute(text("SELECT pg_terminate_backend(:pid)"), {"pid": pid})


def end_connections(connection: Connection, name: str) -> None:
    """Ends all connections of this database's that call themselves so, but this one."""
    query = text(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = :name "
        "AND datname = current_database() AND pid <> pg_backend_pid()"
    )
    connection.execute(query, {"name": name})


def _meta(connection: Connection, name: str) -> str | None:
    return connection.execute(select(schema.meta.c.value).where(schema.meta.c.name == name)).scalar()

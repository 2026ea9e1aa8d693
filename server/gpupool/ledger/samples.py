"""The history of the pool in the database: written beside the steps, never with them, and read as series.

Rows are sums over periods of one of the lengths of `model.history_amounts.LEVELS`; rows of a finer level become one row
of the next (:func:`thin`). What leases held, what was there and what was waited for is added up from `charges`, `capacity` and
`waits`, so it is exact; what was used is what `pool.use_meter` counted.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Engine,
    NullPool,
    and_,
    cast,
    create_engine,
    delete,
    event,
    func,
    literal,
    or_,
    select,
)
from sqlalchemy import Table as SqlTable
from sqlalchemy.dialects import postgresql, sqlite

from gpupool.ledger.schema import capacity, charges, leases, samples, waits
from gpupool.ledger.usage import Selection, pieces_of
from gpupool.model.history_amounts import AMOUNTS, LEVELS, Amounts, Held, Subject, as_row

#: Rows that one statement writes.
_ROWS: Final = 500
_KEYS: Final = tuple(column.name for column in samples.primary_key)


@contextlib.contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """A transaction of samples, to be used beside the pool's event loop. Keep it short: in SQLite a step waits for its end.

    Its end does not wait for the disk: what a power cut takes of the last seconds is no loss, and the next step brings it
    to the disk all the same.
    """
    if engine.dialect.name != "sqlite":
        with engine.begin() as connection:
            connection.exec_driver_sql("SET LOCAL synchronous_commit = off")
            yield connection
        return
    own = create_engine(f"sqlite:///{engine.url.database}", poolclass=NullPool, connect_args={"timeout": 5.0})

    @event.listens_for(own, "connect")
    def set_up(connection: sqlite3.Connection, _record: object) -> None:
        connection.isolation_level = None
        connection.execute("PRAGMA synchronous=NORMAL")

    @event.listens_for(own, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    try:
        with own.begin() as connection:
            yield connection
    finally:
        own.dispose()


def held(connection: Connection, from_ms: int, to_ms: int, now_ms: int) -> Held:
    """What the ledger knows of the time from `from_ms` to `to_ms`, exactly."""
    time = Selection(from_ms, to_ms)
    return Held(
        _leases(connection, time, now_ms),
        _devices(connection, time, now_ms),
        _requests(connection, time, now_ms),
    )


def add(connection: Connection, length_ms: int, from_ms: int, rows: Mapping[Subject, Amounts]) -> None:
    """Adds rows of a period to those that are there."""
    values = [
        {"resolution_ms": length_ms, "from_ms": from_ms, **as_row(subject, amounts)}
        for subject, amounts in rows.items()
        if amounts
    ]
    for first in range(0, len(values), _ROWS):
        statement = _insert(connection)
        connection.execute(_adding(statement), values[first : first + _ROWS])


def thin(connection: Connection, now_ms: int) -> bool:
    """Makes the oldest period that is due coarser, or drops it; returns whether there was one.

    Periods become longer ones as wholes, so that no sum changes.
    """
    for level, coarser in zip(LEVELS, (*LEVELS[1:], None), strict=True):
        length = level.length_ms if coarser is None else coarser.length_ms
        before = (now_ms - level.kept_ms) // length * length
        of_level = samples.c.resolution_ms == level.length_ms
        oldest = connection.execute(
            select(func.min(samples.c.from_ms)).where(of_level, samples.c.from_ms < before)
        ).scalar_one()
        if oldest is None:
            continue
        since = oldest // length * length
        due = and_(of_level, samples.c.from_ms >= since, samples.c.from_ms < since + length)
        if coarser is not None:
            _sum_up(connection, due, coarser.length_ms, since)
        connection.execute(delete(samples).where(due))
        return True
    return False


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a series is of; what is empty is summed over.

    Attributes:
        project: it and those below it.
        session: known for the time of the finest level only.
    """

    from_ms: int
    to_ms: int
    node: str = ""
    device: str = ""
    user: str = ""
    project: str = ""
    session: str = ""

    def has(self, subject: Subject) -> bool:
        """Whether it counts. How long was looked counts in everything."""
        return not (subject.device or subject.user or subject.session) or (
            (not self.node or subject.device.rpartition("/")[0] == self.node)
            and (not self.device or subject.device == self.device)
            and (not self.user or subject.user == self.user)
            and (not self.project or f"{subject.project}/".startswith(f"{self.project}/"))
            and (not self.session or subject.session == self.session)
        )


def points(connection: Connection, wanted: Wanted, step_ms: int) -> dict[int, Amounts]:
    """Sums by the beginning of the point that they are in, each `step_ms` long, counted from the epoch."""
    at = (samples.c.from_ms // step_ms * step_ms).label("at")
    rows = connection.execute(select(at, *_sums()).where(_matches(wanted)).group_by(at)).mappings()
    return {int(row["at"]): _amounts(row) for row in rows}


def subjects(connection: Connection, wanted: Wanted) -> list[tuple[Subject, Amounts]]:
    """Sums over the whole time by device, user, project and session; sessions have the label of their last row."""
    keys = [samples.c[name] for name in ("device_id", "user", "project", "session_id")]
    last = func.max(samples.c.from_ms).label("last")
    query = (
        select(*keys, samples.c.label, last, *_sums())
        .where(_matches(wanted))
        .group_by(*keys, samples.c.label)
        .order_by(last)
    )
    found: dict[tuple[str, str, str, str], tuple[str, Amounts]] = {}
    for row in connection.execute(query).mappings():
        key = (row["device_id"], row["user"], row["project"], row["session_id"])
        _, amounts = found.get(key, ("", Amounts()))
        found[key] = row["label"], amounts + _amounts(row)
    return [(Subject(*key, label), amounts) for key, (label, amounts) in found.items()]


# ---- what the ledger knows


def _leases(connection: Connection, time: Selection, now_ms: int) -> dict[Subject, Amounts]:
    pieces = pieces_of(charges, time, now_ms)
    length = pieces.c.until - pieces.c.since
    keys = (pieces.c.device_id, pieces.c.user, pieces.c.project, leases.c.session_id)
    query = (
        select(*keys, func.sum(pieces.c.milli * length), func.sum(pieces.c.mib * length))
        .select_from(pieces.outerjoin(leases, leases.c.id == pieces.c.lease_id))
        .group_by(*keys)
    )
    return {
        Subject(device, user, project, session or ""): Amounts(held_milli_ms=int(milli), held_mib_ms=int(mib))
        for device, user, project, session, milli, mib in connection.execute(query)
    }


def _devices(connection: Connection, time: Selection, now_ms: int) -> dict[Subject, Amounts]:
    pieces = pieces_of(capacity, time, now_ms)
    length = pieces.c.until - pieces.c.since
    query = select(
        pieces.c.device_id, func.sum(pieces.c.milli * length), func.sum(pieces.c.mib * length)
    ).group_by(pieces.c.device_id)
    return {
        Subject(device): Amounts(capacity_milli_ms=int(milli), capacity_mib_ms=int(mib))
        for device, milli, mib in connection.execute(query)
    }


def _requests(connection: Connection, time: Selection, now_ms: int) -> dict[Subject, Amounts]:
    pieces = pieces_of(waits, time, now_ms)
    length = pieces.c.until - pieces.c.since
    keys = (pieces.c.user, pieces.c.project)
    query = select(*keys, func.sum(pieces.c.milli * length), func.sum(length)).group_by(*keys)
    return {
        Subject(user=user, project=project): Amounts(
            waiting_milli_ms=int(milli), waiting_request_ms=int(requests)
        )
        for user, project, milli, requests in connection.execute(query)
    }


# ---- statements


def _sum_up(connection: Connection, due: ColumnElement[bool], length_ms: int, since: int) -> None:
    """Adds the rows that are due to those of a longer period; whose session it was is not known there."""
    keys = [samples.c[name] for name in ("device_id", "user", "project")]
    select_sums = (
        select(
            literal(length_ms, BigInteger),
            literal(since, BigInteger),
            *keys,
            literal("").label("session_id"),
            literal("").label("label"),
            *_sums(),
        )
        .where(due)
        .group_by(*keys)
    )
    rows = connection.execute(select_sums).all()
    names = [column.name for column in samples.c]
    values = [dict(zip(names, row, strict=True)) for row in rows]
    for first in range(0, len(values), _ROWS):
        connection.execute(_adding(_insert(connection)), values[first : first + _ROWS])


def _insert(connection: Connection) -> Any:
    return (sqlite if connection.dialect.name == "sqlite" else postgresql).insert(samples)


def _adding(statement: Any) -> Any:
    """Where there is a row already, its sums grow."""
    grown = {name: samples.c[name] + statement.excluded[name] for name in AMOUNTS}
    return statement.on_conflict_do_update(
        index_elements=list(_KEYS), set_={**grown, "label": statement.excluded.label}
    )


def _sums() -> list[ColumnElement[int]]:
    return [cast(func.sum(samples.c[name]), BigInteger).label(name) for name in AMOUNTS]


def _amounts(row: Mapping[Any, Any]) -> Amounts:
    return Amounts(*(int(row[name]) for name in AMOUNTS))


def _matches(wanted: Wanted) -> ColumnElement[bool]:
    table: SqlTable = samples
    time = and_(
        table.c.resolution_ms.in_([level.length_ms for level in LEVELS]),
        table.c.from_ms >= wanted.from_ms,
        table.c.from_ms < wanted.to_ms,
    )
    found = list(_conditions(wanted))
    if wanted.session:
        time = and_(time, table.c.resolution_ms == LEVELS[0].length_ms)
    looked = and_(table.c.device_id == "", table.c.user == "", table.c.session_id == "")
    return and_(time, or_(looked, and_(*found))) if found else time


def _conditions(wanted: Wanted) -> Iterable[ColumnElement[bool]]:
    for name, value in (
        ("device_id", wanted.device),
        ("user", wanted.user),
        ("session_id", wanted.session),
    ):
        if value:
            yield samples.c[name] == value
    if wanted.node:
        ordinal = func.substr(samples.c.device_id, len(wanted.node) + 2)
        yield and_(_begins(samples.c.device_id, f"{wanted.node}/"), ~ordinal.contains("/"))
    if wanted.project:
        yield or_(samples.c.project == wanted.project, _begins(samples.c.project, f"{wanted.project}/"))


def _begins(column: ColumnElement[str], text: str) -> ColumnElement[bool]:
    return func.substr(column, 1, len(text)) == text

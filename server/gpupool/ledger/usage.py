"""What was used between two moments, added up in the database: exact, however it is grouped.

Each row of ``charges``, ``capacity`` or ``waits`` counts with its quantity times the milliseconds that it has in common
with the asked time; for hours and days it is first cut at their beginnings (UTC, counted from the epoch). All of that
is integer arithmetic, so the parts add up to the whole. A row that lasts counts until now.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import BigInteger, Connection, FromClause, case, func, literal, select
from sqlalchemy import Table as SqlTable

from gpupool.ledger.schema import capacity, charges, waits

#: What a report may be grouped by.
GROUPS: Final = ("user", "project", "device", "node", "hour", "day")
#: Lengths of the periods among them, milliseconds.
PERIODS: Final = {"hour": 3_600_000, "day": 86_400_000}
#: More rows than this are no report for people, and more than one message carries.
MAXIMUM_ROWS: Final = 50_000
#: Sums are taken in two parts, because MiB times milliseconds of a large pool leave 64 bits within some years.
_LOW: Final = 1 << 20


class TooLargeError(ValueError):
    """An answer would be too large. `str()` is one sentence that says what would help."""


@dataclass(frozen=True, slots=True)
class Selection:
    """What is asked.

    Attributes:
        from_ms: wall-clock milliseconds, the first that counts.
        to_ms: the first that does not count any more.
        by: some of `GROUPS`; the rows are sums over everything that is not named. `hour` or `day`, not both.
        user: only of this one; empty: of all.
        project: of this one and those below it; empty: of all.
    """

    from_ms: int
    to_ms: int
    by: tuple[str, ...] = ()
    user: str = ""
    project: str = ""

    @property
    def period(self) -> str:
        """``hour``, ``day`` or nothing."""
        return next((name for name in self.by if name in PERIODS), "")


@dataclass(frozen=True, slots=True)
class UsageRow:
    """Sums of one group; what is not grouped by is empty.

    Attributes:
        period_ms: beginning of the hour or day; 0: not grouped by one.
        milli_ms: milli-GPU times milliseconds.
        mib_ms: MiB times milliseconds.
        leases: how many there were in it; one on several nodes counts on each.
    """

    user: str = ""
    project: str = ""
    device: str = ""
    node: str = ""
    period_ms: int = 0
    milli_ms: int = 0
    mib_ms: int = 0
    leases: int = 0

    @property
    def key(self) -> tuple[str, str, str, str, int]:
        return self.user, self.project, self.device, self.node, self.period_ms


@dataclass(frozen=True, slots=True)
class Step:
    """From `since` to `until` (milliseconds) there were `milli` milli-GPU to lend."""

    since: int
    until: int
    milli: int


def require_few(rows: int) -> None:
    """Raises TooLargeError if a report has more rows than it may."""
    if rows > MAXIMUM_ROWS:
        raise TooLargeError(
            f"these are more than {MAXIMUM_ROWS} rows; ask for a shorter time or fewer groups"
        )


def used(connection: Connection, selection: Selection, now_ms: int) -> list[UsageRow]:
    """What leases held, grouped, in the order of the groups' values.

    Raises:
        TooLargeError: there are more than `MAXIMUM_ROWS`; so do the next two.
    """
    return _sums(connection, charges, selection, now_ms)


def there(connection: Connection, selection: Selection, now_ms: int) -> list[UsageRow]:
    """What devices had to lend. Only groups of devices, nodes and periods mean anything for it."""
    by = tuple(name for name in selection.by if name not in ("user", "project"))
    return _sums(connection, capacity, Selection(selection.from_ms, selection.to_ms, by), now_ms)


def waited(connection: Connection, selection: Selection, now_ms: int) -> list[UsageRow]:
    """What requests waited for. Groups of devices and nodes are left out: nobody knows where it would have been."""
    by = tuple(name for name in selection.by if name not in ("device", "node"))
    asked = Selection(selection.from_ms, selection.to_ms, by, selection.user, selection.project)
    return _sums(connection, waits, asked, now_ms)


def capacity_steps(connection: Connection, from_ms: int, to_ms: int, now_ms: int) -> list[Step]:
    """How much there was to lend and when, without the times when there was nothing."""
    pieces = pieces_of(capacity, Selection(from_ms, to_ms), now_ms)
    changes: Counter[int] = Counter()
    for since, until, milli in connection.execute(select(pieces.c.since, pieces.c.until, pieces.c.milli)):
        changes[since] += milli
        changes[until] -= milli
    steps = []
    milli = 0
    for since, until in itertools.pairwise(sorted(changes)):
        milli += changes[since]
        if milli:
            steps.append(Step(since, until, milli))
    return steps


def total(rows: Iterable[UsageRow]) -> tuple[int, int]:
    """(milli-GPU-milliseconds, MiB-milliseconds) of all rows together."""
    listed = list(rows)
    return sum(row.milli_ms for row in listed), sum(row.mib_ms for row in listed)


def _sums(connection: Connection, table: SqlTable, selection: Selection, now_ms: int) -> list[UsageRow]:
    pieces = pieces_of(table, selection, now_ms)
    groups = [_group(pieces, name) for name in selection.by]
    length = pieces.c.until - pieces.c.since
    zero = literal(0, BigInteger)
    milli, mib = pieces.c.milli * length, pieces.c.mib * length if "mib" in pieces.c else zero
    leases = func.count(pieces.c.lease_id.distinct()) if "lease_id" in pieces.c else zero
    query = select(
        *groups,
        func.sum(milli // _LOW).label("milli_high"),
        func.sum(milli % _LOW).label("milli_low"),
        func.sum(mib // _LOW).label("mib_high"),
        func.sum(mib % _LOW).label("mib_low"),
        leases.label("leases"),
    )
    if groups:
        # One row more says that there are too many, before all of them are in memory.
        query = query.group_by(*groups).limit(MAXIMUM_ROWS + 1)
    rows = [_row(selection, dict(row)) for row in connection.execute(query).mappings()]
    require_few(len(rows))
    # Not by the database: each has an order of letters of its own.
    return sorted((row for row in rows if row.milli_ms or row.mib_ms or row.leases), key=lambda row: row.key)


def _row(selection: Selection, row: Mapping[str, Any]) -> UsageRow:
    names = {name: str(row[name]) for name in ("user", "project", "device", "node") if name in selection.by}
    return UsageRow(
        **names,
        period_ms=int(row["period"]) if selection.period else 0,
        milli_ms=int(row["milli_high"] or 0) * _LOW + int(row["milli_low"] or 0),
        mib_ms=int(row["mib_high"] or 0) * _LOW + int(row["mib_low"] or 0),
        leases=int(row["leases"] or 0),
    )


def _group(pieces: FromClause, name: str) -> Any:
    if name in PERIODS:
        return (pieces.c.since // PERIODS[name] * PERIODS[name]).label("period")
    if name == "device":
        return pieces.c.device_id.label("device")
    if name == "node":
        # "<node>/<ordinal>": what is left when everything behind the last slash is cut off, and the slash.
        head = func.rtrim(pieces.c.device_id, func.replace(pieces.c.device_id, "/", ""))
        return func.substr(head, 1, func.length(head) - 1).label("node")
    return pieces.c[name].label(name)


def pieces_of(table: SqlTable, selection: Selection, now_ms: int) -> FromClause:
    """Rows of `table` within the asked time, `since` to `until`; cut at the beginnings of its periods."""
    end = min(selection.to_ms, now_ms)
    since = case((table.c.from_ms > selection.from_ms, table.c.from_ms), else_=selection.from_ms)
    lasted = func.coalesce(table.c.to_ms, end)
    until = case((lasted < end, lasted), else_=end)
    kept = [column for column in table.c if column.name not in ("number", "from_ms", "to_ms")]
    whole = select(*kept, since.label("since"), until.label("until")).where(
        table.c.from_ms < end, (table.c.to_ms > selection.from_ms) | table.c.to_ms.is_(None), until > since
    )
    if selection.user:
        whole = whole.where(table.c.user == selection.user)
    if selection.project:
        below = f"{selection.project}/"
        inside = func.substr(table.c.project, 1, len(below)) == below
        whole = whole.where((table.c.project == selection.project) | inside)
    if not selection.period:
        return whole.subquery()
    return _cut(whole.cte("whole"), PERIODS[selection.period])


def _cut(whole: FromClause, length: int) -> FromClause:
    """`whole` with each row cut wherever a period of `length` milliseconds begins."""
    first = select(*(column for column in whole.c if column.name != "until"), whole.c.until.label("last"))
    rest = first.cte("pieces", recursive=True)
    following = (rest.c.since // length + 1) * length
    again = select(
        *(column for column in rest.c if column.name not in ("since", "last")),
        following.label("since"),
        rest.c.last,
    ).where(following < rest.c.last)
    pieces = rest.union_all(again)
    following = (pieces.c.since // length + 1) * length
    until = case((following < pieces.c.last, following), else_=pieces.c.last)
    return select(*pieces.c, until.label("until")).subquery()

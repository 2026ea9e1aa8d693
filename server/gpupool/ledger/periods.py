"""Rows that last: from ``from_ms`` to ``to_ms``, which is empty while they do.

Times are wall-clock milliseconds, integers, so that sums are exact. Statements are made once for each shape.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from sqlalchemy import Table, UpdateBase, bindparam, case, insert, literal, select, update

#: A statement and its parameters.
Write = tuple[UpdateBase, Mapping[str, Any]]


def milliseconds(unix: float) -> int:
    """A wall-clock time as the rows have it."""
    return round(unix * 1000)


def begin(table: Table, row: Mapping[str, Any], now_ms: int) -> Write:
    """A row that lasts from now on."""
    return _insert(table), {**row, "from_ms": now_ms}


def end(table: Table, which: Mapping[str, str], now_ms: int) -> Write:
    """Ends the rows that last and have these values; never before they began, should the wall clock have been set back."""
    values = {f"_{name}": value for name, value in which.items()}
    return _update(table, tuple(which)), {**values, "_now": now_ms}


def interrupt(table: Table, from_ms: int, to_ms: int) -> Iterator[Write]:
    """Takes a time out of all rows that last: they end when it begins, and others like them begin when it ends."""
    others = [column for column in table.c if column.name not in ("number", "from_ms", "to_ms")]
    lasting = table.c.to_ms.is_(None) & (table.c.from_ms <= from_ms)
    again = select(*others, literal(to_ms, table.c.from_ms.type)).where(lasting)
    yield insert(table).from_select([*(column.name for column in others), "from_ms"], again), {}
    yield update(table).where(lasting).values(to_ms=from_ms), {}


@cache
def _insert(table: Table) -> UpdateBase:
    return insert(table)


@cache
def _update(table: Table, names: tuple[str, ...]) -> UpdateBase:
    now = bindparam("_now", type_=table.c.from_ms.type)
    to_ms = case((table.c.from_ms > now, table.c.from_ms), else_=now)
    found = [table.c[name] == bindparam(f"_{name}") for name in names]
    return update(table).where(table.c.to_ms.is_(None), *found).values(to_ms=to_ms)

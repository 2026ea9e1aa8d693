"""Rows that last: from ``from_ms`` to ``to_ms``, which is empty while they do.

Times are wall-clock milliseconds, integers, so that sums are exact. Statements are made once for each shape.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from sqlalchemy import Table, UpdateBase, bindparam, case, insert, update

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


@cache
def _insert(table: Table) -> UpdateBase:
    return insert(table)


@cache
def _update(table: Table, names: tuple[str, ...]) -> UpdateBase:
    now = bindparam("_now", type_=table.c.from_ms.type)
    to_ms = case((table.c.from_ms > now, table.c.from_ms), else_=now)
    found = [table.c[name] == bindparam(f"_{name}") for name in names]
    return update(table).where(table.c.to_ms.is_(None), *found).values(to_ms=to_ms)

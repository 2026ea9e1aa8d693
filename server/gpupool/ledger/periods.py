"""Rows that last: from ``from_ms`` to ``to_ms``, which is empty while they do.

Times are wall-clock milliseconds, integers, so that sums are exact.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Table, case, update


def milliseconds(unix: float) -> int:
    """A wall-clock time as the rows have it."""
    return round(unix * 1000)


def end(table: Table, now_ms: int) -> Any:
    """Ends rows of `table` that last; never before they began, should the wall clock have been set back."""
    to_ms = case((table.c.from_ms > now_ms, table.c.from_ms), else_=now_ms)
    return update(table).where(table.c.to_ms.is_(None)).values(to_ms=to_ms)

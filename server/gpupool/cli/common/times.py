"""Moments on the command line: ``2026-11-01``, ``2026-11-01T08:30``, ``7d`` (ago), ``today``, ``month``, ``now``."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from gpupool.cli.common.options import duration

_WORDS = (
    "now, today, month (its first day), a time ago (7d, 12h), or a date (2026-11-01, 2026-11-01T08:30+01:00)"
)


#: The last second of the year 9999, after which Python has no dates.
_LATEST = 253_402_300_799


def moment(text: str) -> float:
    """Seconds since 1970. Without a zone it is UTC, as hours and days of reports are."""
    written = text.strip()
    now = datetime.now(UTC)
    if written == "now":
        return now.timestamp()
    if written in ("today", "month"):
        start = now.replace(hour=0, minute=0, second=0, microsecond=0)
        return (start if written == "today" else start.replace(day=1)).timestamp()
    try:
        if written[-1:] in ("s", "m", "h", "d"):
            found = now.timestamp() - duration(written)
        else:
            date = datetime.fromisoformat(written)
            found = (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise typer.BadParameter(f"{text!r} is no moment; write {_WORDS}") from None
    if not 0 <= found <= _LATEST:
        raise typer.BadParameter(f"{text!r} is not between 1970 and 9999")
    return found


def utc(unix: float) -> str:
    """``2026-11-01T08:00:00Z``, which :func:`moment` reads; parts of a second only where there are some."""
    whole = datetime.fromtimestamp(round(unix * 1000) / 1000, UTC)
    digits = "milliseconds" if whole.microsecond else "seconds"
    return whole.isoformat(timespec=digits).replace("+00:00", "Z")


From = Annotated[
    float,
    typer.Option(
        "--from", parser=moment, metavar="TIME", help=f"The first moment that counts: {_WORDS}; UTC."
    ),
]
To = Annotated[
    float, typer.Option("--to", parser=moment, metavar="TIME", help="The first that does not count any more.")
]

"""Lines of the journal for people: filtered, in pages, oldest first; and what a time's lines add up to."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, func, select

from gpupool.ledger.schema import journal

#: Lines read at a time.
PAGE: Final = 500


@dataclass(frozen=True, slots=True)
class Filter:
    """Which lines; what is empty does not matter. Times are wall-clock seconds, `to_unix` None is open."""

    from_unix: float = 0.0
    to_unix: float | None = None
    user: str = ""
    lease_id: str = ""
    session_id: str = ""
    kind: str = ""
    node: str = ""

    def conditions(self) -> list[ColumnElement[bool]]:
        found = [
            journal.c[name] == value
            for name in ("user", "lease_id", "session_id", "kind", "node")
            if (value := getattr(self, name))
        ]
        if self.from_unix > 0:
            found.append(journal.c.at_unix >= self.from_unix)
        if self.to_unix is not None:
            found.append(journal.c.at_unix < self.to_unix)
        return found


@dataclass(frozen=True, slots=True)
class Decisions:
    """What was decided in a time.

    Attributes:
        granted, queued, cancelled: how many requests; of a lease on several nodes the whole counts once.
        refused: by reason; ended: leases by reason.
        waits: seconds that each granted request had waited, in ascending order.
        held_seconds: how long the leases lasted that ended, added up.
    """

    granted: int = 0
    queued: int = 0
    cancelled: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    ended: dict[str, int] = field(default_factory=dict)
    waits: tuple[float, ...] = ()
    held_seconds: float = 0.0

    def wait(self, part: float) -> float | None:
        """The wait that `part` (0…1) of the granted requests did not exceed, by nearest rank; None: none was granted."""
        if not self.waits:
            return None
        return self.waits[max(0, math.ceil(part * len(self.waits)) - 1)]


def last_number(connection: Connection) -> int:
    """The number of the latest line; 0: there is none."""
    return int(connection.execute(select(func.max(journal.c.number))).scalar() or 0)


def number_before(connection: Connection, wanted: Filter, latest: int) -> int:
    """The number that the `latest` so many lines come after."""
    query = (
        select(journal.c.number)
        .where(*wanted.conditions())
        .order_by(journal.c.number.desc())
        .offset(latest - 1)
        .limit(1)
    )
    found = connection.execute(query).scalar()
    return 0 if found is None else int(found) - 1


def page(connection: Connection, wanted: Filter, after: int, upto: int | None = None) -> Sequence[Any]:
    """The next `PAGE` lines after number `after`, at most to number `upto`."""
    query = select(journal).where(journal.c.number > after, *wanted.conditions())
    if upto is not None:
        query = query.where(journal.c.number <= upto)
    return connection.execute(query.order_by(journal.c.number).limit(PAGE)).all()


def decisions(connection: Connection, from_unix: float, to_unix: float) -> Decisions:
    """What the lines of a time add up to."""
    kinds = ("grant", "queue", "refuse", "cancelled", "ended")
    query = select(journal.c.kind, journal.c.data).where(
        journal.c.at_unix >= from_unix, journal.c.at_unix < to_unix, journal.c.kind.in_(kinds)
    )
    counts: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    ended: Counter[str] = Counter()
    waits: list[float] = []
    held = 0.0
    for kind, data in connection.execute(query):
        if kind == "grant" and is_part(data):
            continue
        counts[kind] += 1
        if kind == "grant":
            waits.append(float(data.get("waited_seconds", 0.0)))
        elif kind == "refuse":
            refused[str(data.get("reason", ""))] += 1
        elif kind == "ended":
            ended[str(data.get("reason", ""))] += 1
            held += float(data.get("held_seconds", 0.0))
    return Decisions(
        counts["grant"], counts["queue"], counts["cancelled"], dict(refused), dict(ended),
        tuple(sorted(waits)), held,
    )  # fmt: skip


def is_part(data: Any) -> bool:
    """Whether a `grant` line is of a further part of a lease on several nodes: its key says so."""
    return "\n" in str(data.get("key", ""))

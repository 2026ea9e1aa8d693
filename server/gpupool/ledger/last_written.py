"""When a pool last wrote to its ledger: until then it is known to have served."""

from __future__ import annotations

from sqlalchemy import Connection, func, select

from gpupool.ledger.periods import milliseconds
from gpupool.ledger.schema import capacity, charges, journal, samples, steps, waits
from gpupool.model.history_amounts import MINUTE_MS


def last_ms(connection: Connection) -> int:
    """The last moment that anything in the ledger is of, wall-clock milliseconds; 0: it is empty.

    A pool that serves writes its history every minute, so it has not served much longer.
    """
    seen = []
    for table in (charges, capacity, waits):
        # Of ten million rows, too, the index and the last one are found at once.
        seen.append(connection.execute(select(func.max(table.c.to_ms))).scalar() or 0)
        newest = select(table.c.from_ms).order_by(table.c.number.desc()).limit(1)
        seen.append(connection.execute(newest).scalar() or 0)
    for table in (journal, steps):
        query = select(table.c.at_unix).order_by(table.c.number.desc()).limit(1)
        seen.append(milliseconds(connection.execute(query).scalar() or 0.0))
    # Of a minute its end: one that is cut short by the pool's own end is not told apart.
    minute = select(func.max(samples.c.from_ms)).where(samples.c.resolution_ms == MINUTE_MS)
    begin = connection.execute(minute).scalar()
    return max(*seen, 0 if begin is None else begin + MINUTE_MS)

"""Looks every few seconds who comes near a quota, and writes what changed to the journal."""

from __future__ import annotations

import asyncio

import structlog
from sqlalchemy import Engine, select

from gpupool.ledger.ledger import LedgerError
from gpupool.ledger.schema import journal
from gpupool.ledger.snapshot import snapshot
from gpupool.model import events
from gpupool.model.alert import Alert
from gpupool.pool.lifecycle.shell import PoolShell
from gpupool.pool.projects import alerts

logger = structlog.get_logger(__name__)

#: A pool that starts again looks so far back for what it has said already, seconds.
REMEMBERED_SECONDS = 7 * 86_400.0
_FIELDS = tuple(Alert.__dataclass_fields__)


async def watch(pool: PoolShell) -> None:
    """Goes on until cancelled."""
    remembers = False
    while True:
        try:
            if not remembers:
                await remember(pool)
                remembers = True
            await look(pool)
        except LedgerError:
            pass  # said in the log and in /health; what is near will still be near
        except Exception:
            logger.exception("the look at quotas failed")
        await asyncio.sleep(pool.timers.heartbeat)


async def look(pool: PoolShell) -> None:
    """Looks once.

    Raises:
        LedgerError: what changed could not be stored; the next look says it again.
    """
    now = pool.clock.now()
    used = alerts.levels(pool.state, pool.timers, pool.machine.quotas, now)
    new, over = pool.alerts.review(used)
    if new or over:
        await pool.apply_together(events.QuotasNear(now, new, over))
        pool.alerts.take(new, over)
    pool.alerts.refresh(used)


async def remember(pool: PoolShell) -> None:
    """Takes over what an earlier run of the pool has said and not taken back; it is read beside the event loop."""
    since = pool.clock.to_unix(pool.clock.now()) - REMEMBERED_SECONDS
    pool.alerts.take(await asyncio.to_thread(_standing, pool.ledger.engine, since), ())


def _standing(engine: Engine, since_unix: float) -> list[Alert]:
    query = (
        select(journal.c.kind, journal.c.data)
        .where(journal.c.at_unix >= since_unix, journal.c.kind.in_(("alert", "alert-over")))
        .order_by(journal.c.number)
    )
    standing: dict[str, Alert] = {}
    with snapshot(engine) as connection:
        for kind, data in connection.execute(query):
            alert = Alert(**{name: data[name] for name in _FIELDS})
            if kind == "alert":
                standing[alert.id] = alert
            else:
                standing.pop(alert.id, None)
    return list(standing.values())

"""What was asked for and not there, and for how long: what shortage is measured by.

A row lasts from a request's arrival in the queue until it is granted, refused or called off. Who is served at once leaves
none. Requests do not outlive the pool, so a pool that starts ends what an earlier one left open.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sqlalchemy import Connection, func, select

from gpupool.ledger.periods import Write, begin, end, milliseconds
from gpupool.ledger.recorder import Changes
from gpupool.ledger.schema import capacity, charges, journal, waits
from gpupool.model.state import DeviceRecord, RequestRecord, State
from gpupool.shares import least_milli, usable_mib


def milli_asked(request: RequestRecord, devices: Iterable[DeviceRecord]) -> int:
    """Milli-GPU that `request` wants in all."""
    sizes = (usable_mib(device.total_mib) for device in devices if device.present)
    return least_milli(sizes, request.milli, request.mib, request.count)


def writes(state: State, changes: Changes, now_ms: int) -> Iterator[Write]:
    """The statements that bring the rows up to date with what a step changed."""
    for name, (before, after) in changes.get("requests", {}).items():
        if before is not None and (after is None or after.project != before.project):
            yield end(waits, {"request": name}, now_ms)
        if after is not None and (before is None or after.project != before.project):
            row = {
                "request": name,
                "user": after.user,
                "project": after.project,
                "milli": milli_asked(after, state.devices.values()),
            }
            yield begin(waits, row, now_ms)


def end_open(connection: Connection) -> None:
    """Ends the rows of a pool that was killed, at the last moment that it wrote anything."""
    if connection.execute(select(waits.c.number).where(waits.c.to_ms.is_(None)).limit(1)).first() is None:
        return
    seen = [
        connection.execute(select(func.max(column))).scalar() or 0
        for table in (charges, capacity, waits)
        for column in (table.c.from_ms, table.c.to_ms)
    ]
    last = connection.execute(select(journal.c.at_unix).order_by(journal.c.number.desc()).limit(1)).scalar()
    connection.execute(*end(waits, {}, max([*seen, milliseconds(last or 0.0)])))

"""What was asked for and not there, and for how long: what shortage is measured by.

A row lasts from a request's arrival in the queue until it is granted, refused or called off. Who is served at once leaves
none. What a pool that starts finds open of requests that wait no more, it ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sqlalchemy import ColumnElement, Connection, case, select, update

from gpupool.ledger.last_written import last_ms
from gpupool.ledger.periods import Write, begin, end
from gpupool.ledger.recorder import Changes
from gpupool.ledger.schema import requests, waits
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
    """Ends the rows of requests that wait no more, at the last moment at which anything was written."""
    over = waits.c.request.not_in(select(requests.c.id))
    if (
        connection.execute(select(waits.c.number).where(waits.c.to_ms.is_(None), over).limit(1)).first()
        is None
    ):
        return
    end_all(connection, last_ms(connection), over)


def end_all(connection: Connection, at_ms: int, which: ColumnElement[bool] | None = None) -> None:
    """Ends rows at a moment, or when they began, if that is later; all, or some of them."""
    to_ms = case((waits.c.from_ms > at_ms, waits.c.from_ms), else_=at_ms)
    lasting = waits.c.to_ms.is_(None)
    where = lasting if which is None else lasting & which
    connection.execute(update(waits).where(where).values(to_ms=to_ms))

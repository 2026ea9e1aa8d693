"""Rows that follow from what a step changes, for reports: written in the same transaction."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import Connection

from gpupool.ledger import capacity, charges, waits
from gpupool.ledger.periods import Write
from gpupool.ledger.recorder import Changes
from gpupool.model.state import State


def writes(state: State, changes: Changes, now_ms: int) -> Iterator[Write]:
    """The statements for what a step changed that led to `state`, at wall-clock time `now_ms`."""
    yield from charges.writes(changes, now_ms)
    yield from capacity.writes(state, changes, now_ms)
    yield from waits.writes(state, changes, now_ms)


def prepare(connection: Connection, now_ms: int) -> None:
    """Brings the rows of a ledger that is opened in step with what it holds, in the caller's transaction."""
    charges.open_missing(connection)
    capacity.open_missing(connection, now_ms)
    waits.end_open(connection)

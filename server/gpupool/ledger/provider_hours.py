"""How long a provider's devices were there, and what of them was lent: exact, from `capacity` and `charges`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, select
from sqlalchemy import Table as SqlTable

from gpupool.ledger.schema import capacity, charges
from gpupool.ledger.usage import Selection, pieces_of

_MS_PER_HOUR: Final = 3_600_000


@dataclass(frozen=True, slots=True)
class DeviceHours:
    """Of one provider's nodes.

    Attributes:
        borrowed: hours that devices were there, whole ones.
        lent: of them what leases held, as parts of devices.
        idle: hours in which nobody held anything of a device.
    """

    borrowed: float
    lent: float
    idle: float


def device_hours(connection: Connection, node_pattern: str, from_ms: int, to_ms: int) -> DeviceHours:
    """The hours between two moments of the wall clock, in milliseconds.

    Args:
        connection: to the ledger.
        node_pattern: names of the nodes, as `LIKE` of SQL has it.
        from_ms: the first that counts.
        to_ms: the first that does not count any more; what lasts counts until then.
    """
    there = _pieces(connection, capacity, node_pattern, from_ms, to_ms)
    held = _pieces(connection, charges, node_pattern, from_ms, to_ms)
    borrowed = sum(until - since for pieces in there.values() for since, until, _ in pieces)
    lent = sum(milli * (until - since) for pieces in held.values() for since, until, milli in pieces)
    used = sum(_covered([(since, until) for since, until, _ in pieces]) for pieces in held.values())
    return DeviceHours(
        borrowed / _MS_PER_HOUR, lent / 1000 / _MS_PER_HOUR, max(0, borrowed - used) / _MS_PER_HOUR
    )


def _pieces(
    connection: Connection, table: SqlTable, node_pattern: str, from_ms: int, to_ms: int
) -> dict[str, list[tuple[int, int, int]]]:
    """By device (since, until, milli), the oldest first."""
    pieces = pieces_of(table, Selection(from_ms, to_ms), to_ms)
    query = (
        select(pieces.c.device_id, pieces.c.since, pieces.c.until, pieces.c.milli)
        .where(pieces.c.device_id.like(f"{node_pattern}/%"))
        .order_by(pieces.c.since)
    )
    found: dict[str, list[tuple[int, int, int]]] = {}
    for device, since, until, milli in connection.execute(query):
        found.setdefault(device, []).append((int(since), int(until), int(milli)))
    return found


def _covered(pieces: list[tuple[int, int]]) -> int:
    """Milliseconds in which at least one of them lasts; `pieces` by their beginnings."""
    covered, reached = 0, 0
    for since, until in pieces:
        covered += max(0, until - max(since, reached))
        reached = max(reached, until)
    return covered

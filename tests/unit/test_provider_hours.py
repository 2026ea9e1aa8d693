"""Device hours of borrowed nodes: what was there, what of it was lent, and when nobody had anything of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from gpupool.ledger.ledger import Ledger
from gpupool.ledger.provider_hours import DeviceHours, device_hours
from gpupool.ledger.schema import capacity, charges
from gpupool.model.clock import Clock
from gpupool.providers.jobs import node_pattern
from sqlalchemy import Connection, insert

HOUR = 3_600_000
LAB = "lab-0123abcd"


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[Connection]:
    ledger = Ledger(tmp_path / "pool.sqlite", Clock(0.0))
    with ledger.engine.begin() as open_one:
        yield open_one
    ledger.close()


def there(connection: Connection, device: str, since: float, until: float | None) -> None:
    values = {"device_id": device, "milli": 1000, "mib": 1000, "from_ms": int(since * HOUR)}
    connection.execute(insert(capacity).values(**values, to_ms=None if until is None else int(until * HOUR)))


def held(connection: Connection, device: str, milli: int, since: float, until: float | None) -> None:
    values = {
        "lease_id": "l1", "device_id": device, "user": "ann", "project": "default", "milli": milli, "mib": 1,
        "from_ms": int(since * HOUR), "to_ms": None if until is None else int(until * HOUR),
    }  # fmt: skip
    connection.execute(insert(charges).values(**values))


def of_lab(connection: Connection, since: float = 0, until: float = 100) -> DeviceHours:
    return device_hours(connection, node_pattern("lab"), int(since * HOUR), int(until * HOUR))


def test_nothing_was_borrowed(connection: Connection) -> None:
    there(connection, "node1/0", 0, 50)
    held(connection, "node1/0", 500, 0, 50)
    assert of_lab(connection) == DeviceHours(0.0, 0.0, 0.0)


def test_shares_beside_each_other_count_as_parts_and_their_time_once(connection: Connection) -> None:
    there(connection, f"{LAB}/0", 0, 10)
    held(connection, f"{LAB}/0", 500, 1, 3)
    held(connection, f"{LAB}/0", 200, 2, 5)
    assert of_lab(connection) == DeviceHours(10.0, pytest.approx(1.0 + 0.6), 6.0)


def test_only_the_time_that_is_asked_for_counts_and_what_lasts_counts_until_its_end(
    connection: Connection,
) -> None:
    there(connection, f"{LAB}/0", 0, None)
    there(connection, f"{LAB}/1", 0, 4)
    held(connection, f"{LAB}/0", 1000, 3, None)
    assert of_lab(connection, 2, 8) == DeviceHours(6.0 + 2.0, 5.0, 3.0)


def test_nodes_of_others_do_not_count(connection: Connection) -> None:
    for name in ("labor-0123abcd", "lab", "lab-x", "lab2-0123abcd", "lab-0123abcde"):
        there(connection, f"{name}/0", 0, 10)
    there(connection, f"{LAB}/0", 0, 1)
    assert of_lab(connection).borrowed == 1.0

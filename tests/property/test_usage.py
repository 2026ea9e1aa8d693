"""Sums of charges against the definition: each row, cut by hand at the window and at every hour."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import sqlalchemy
from gpupool.ledger import schema, usage
from hypothesis import given, settings
from hypothesis import strategies as st

HOUR = 3_600_000
#: Times around the beginnings of hours and days, where cutting goes wrong.
MOMENT = st.builds(
    lambda hour, offset: max(0, 1_700_000 * 1000 // HOUR * HOUR + hour * HOUR + offset),
    st.integers(0, 60),
    st.sampled_from((-1, 0, 1, 1234, HOUR // 2)),
)
ROW = st.fixed_dictionaries(
    {
        "lease_id": st.sampled_from(("l1", "l2", "l3")),
        "device_id": st.sampled_from(("a/0", "a/1", "b/0", "rack/b/0")),
        "user": st.sampled_from(("ann", "Ann", "bob")),
        "project": st.sampled_from(
            ("default", "research", "research/vision", "research2/x", "Research/vision")
        ),
        "milli": st.integers(1, 1000),
        "mib": st.sampled_from((1, 1587, 80_000, 1 << 24)),
        "from_ms": MOMENT,
        "length": st.one_of(st.none(), st.sampled_from((0, 1, HOUR, 5 * HOUR, 30 * HOUR + 17))),
    }
)
ENGINE = sqlalchemy.create_engine("sqlite://", poolclass=sqlalchemy.StaticPool)
schema.metadata.create_all(ENGINE)


def pieces(row: dict[str, Any], since: int, until: int, period: int) -> Iterator[tuple[int, int]]:
    """(beginning of the period, milliseconds), by walking from one beginning to the next."""
    at = max(row["from_ms"], since)
    end = min(until if row["to_ms"] is None else row["to_ms"], until)
    while at < end:
        begin = at - at % period if period else 0
        stop = min(end, begin + period) if period else end
        yield begin, stop - at
        at = stop


@settings(max_examples=80, deadline=None)
@given(
    rows=st.lists(ROW, max_size=8),
    since=MOMENT,
    until=MOMENT,
    now=MOMENT,
    by=st.lists(st.sampled_from(("user", "project", "device", "node")), unique=True, max_size=3),
    period=st.sampled_from(("", "hour", "day")),
    user=st.sampled_from(("", "ann")),
    project=st.sampled_from(("", "research", "research/vision")),
)
def test_sums_are_those_of_the_definition(
    rows: list[dict[str, Any]],
    since: int,
    until: int,
    now: int,
    by: list[str],
    period: str,
    user: str,
    project: str,
) -> None:
    stored = []
    for row in rows:
        length = row["length"]
        stored.append(
            {name: value for name, value in row.items() if name != "length"}
            | {"to_ms": None if length is None else row["from_ms"] + length}
        )
    groups = (*by, period) if period else tuple(by)
    expected: Counter[tuple[str, ...]] = Counter()
    memory: Counter[tuple[str, ...]] = Counter()
    leases: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for row in stored:
        if (user and row["user"] != user) or (
            project and not (row["project"] + "/").startswith(project + "/")
        ):
            continue
        names = {
            "user": row["user"],
            "project": row["project"],
            "device": row["device_id"],
            "node": row["device_id"].rpartition("/")[0],
        }
        for begin, length in pieces(row, since, min(until, now), usage.PERIODS.get(period, 0)):
            key = tuple(names[name] for name in by) + ((str(begin),) if period else ())
            expected[key] += row["milli"] * length
            memory[key] += row["mib"] * length
            leases[key].add(row["lease_id"])
    with ENGINE.begin() as connection:
        connection.execute(sqlalchemy.delete(schema.charges))
        if stored:
            connection.execute(sqlalchemy.insert(schema.charges), stored)
        found = usage.used(connection, usage.Selection(since, until, groups, user, project), now)
        keys = [
            tuple(getattr(row, name) for name in by) + ((str(row.period_ms),) if period else ())
            for row in found
        ]
    assert len(set(keys)) == len(keys)
    assert dict(zip(keys, [row.milli_ms for row in found], strict=True)) == dict(expected)
    assert dict(zip(keys, [row.mib_ms for row in found], strict=True)) == dict(memory)
    assert dict(zip(keys, [row.leases for row in found], strict=True)) == {
        key: len(names) for key, names in leases.items()
    }


def test_a_hundred_years_of_a_large_pool_are_no_overflow() -> None:
    year = 366 * 24 * HOUR
    row = {
        "lease_id": "l", "device_id": "a/0", "user": "ann", "project": "p", "milli": 1000, "mib": 1 << 18,
        "from_ms": 0, "to_ms": 100 * year,
    }  # fmt: skip
    with ENGINE.begin() as connection:
        connection.execute(sqlalchemy.delete(schema.charges))
        connection.execute(sqlalchemy.insert(schema.charges), [row] * 5000)
        (found,) = usage.used(connection, usage.Selection(0, 200 * year), 200 * year)
    assert (found.milli_ms, found.mib_ms) == (5000 * 1000 * 100 * year, 5000 * (1 << 18) * 100 * year)
    assert found.mib_ms > 2**63

"""However the history is thinned out, and whenever the meter is looked at: no sum changes."""

from __future__ import annotations

from collections import Counter

from gpupool.ledger import samples, schema
from gpupool.model.history_amounts import AMOUNTS, LEVELS, MINUTE_MS, Amounts, Subject
from gpupool.model.state import SessionRecord, State, Usage
from gpupool.pool.reporting.use_meter import UseMeter
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection, create_engine, select

DAY = 86_400_000
HOUR = 3_600_000
NOW = 1_700_000_000_000

amounts = st.builds(Amounts, *[st.integers(0, 10**12)] * len(AMOUNTS))
subjects = st.builds(
    Subject,
    st.sampled_from(["", "vm/0", "vm/1"]),
    st.sampled_from(["", "ann", "bob"]),
    st.sampled_from(["", "default", "research/vision"]),
    st.sampled_from(["", "s1", "s2"]),
)
#: Minutes before now: most of them around the moments at which periods become longer.
ages = st.one_of(
    st.integers(0, 100 * 1440),
    *[st.integers(level.kept_ms // MINUTE_MS - 130, level.kept_ms // MINUTE_MS + 130) for level in LEVELS],
)
rows = st.lists(st.tuples(ages, subjects, amounts), max_size=25)


def sums(connection: Connection) -> Counter[tuple[object, ...]]:
    """By hour and holder: what a series over whole hours is made of."""
    found: Counter[tuple[object, ...]] = Counter()
    for row in connection.execute(select(schema.samples)).mappings():
        hour = row["from_ms"] // HOUR
        for name in AMOUNTS:
            if row[name]:
                found[hour, row["device_id"], row["user"], row["project"], name] += row[name]
    return found


@given(rows=rows, steps=st.lists(st.integers(0, 30 * DAY), min_size=1, max_size=4))
@settings(max_examples=60, deadline=None)
def test_thinning_keeps_every_sum_but_what_is_too_old(
    rows: list[tuple[int, Subject, Amounts]], steps: list[int]
) -> None:
    engine = create_engine("sqlite://")
    with engine.begin() as connection:
        schema.samples.create(connection)
        for age, subject, amount in rows:
            minute = (NOW // MINUTE_MS - age) * MINUTE_MS
            samples.add(connection, MINUTE_MS, minute, {subject: amount})
        before, now = sums(connection), NOW
        for step in steps:
            now += step
            while samples.thin(connection, now):
                pass
            horizon = (now - LEVELS[-1].kept_ms) // HOUR
            before = Counter({key: value for key, value in before.items() if key[0] >= horizon})  # type: ignore[operator]
            assert sums(connection) == before
            for row in connection.execute(select(schema.samples)).mappings():
                level = next(level for level in LEVELS if level.length_ms == row["resolution_ms"])
                assert row["from_ms"] % level.length_ms == 0
                assert now - row["from_ms"] <= level.kept_ms + HOUR
                assert not row["session_id"] or level is LEVELS[0]
    engine.dispose()


reports = st.lists(
    st.tuples(
        st.integers(1, 200_000), st.floats(0, 100, allow_nan=False), st.integers(0, 10**9), st.booleans()
    ),
    max_size=20,
)


@given(reports=reports, devices=st.integers(1, 3))
@settings(max_examples=100, deadline=None)
def test_the_meter_counts_what_the_counters_grew_by_whenever_it_is_asked(
    reports: list[tuple[int, float, int, bool]], devices: int
) -> None:
    state = State()
    meter = UseMeter(state, NOW)
    names = tuple(f"vm/{ordinal}" for ordinal in range(devices))
    now, seconds, moved, counted = NOW, 0.0, 0, Amounts()
    for wait, more, bytes_, ask in reports:
        now, seconds, moved = now + wait, seconds + more, moved + bytes_
        usage = Usage(device_seconds=seconds, bytes_to_device=moved, memory_used=(1 << 20,) * devices)
        state.sessions["s"] = SessionRecord(
            "s", "ann", "", "", "vm", names, "t", state="attached", place="device", usage=usage
        )
        meter.look(state, now)
        if ask:
            for amount in meter.until((now - 10_000) // MINUTE_MS * MINUTE_MS).values():
                counted += amount
    for amount in meter.until(now + MINUTE_MS).values():
        counted += amount
    assert counted.used_milli_ms == round(seconds * 1e6)
    assert counted.to_device_bytes == moved
    assert counted.memory_mib_ms == (now - NOW) * devices

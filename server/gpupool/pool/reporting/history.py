"""The pool's history: what is kept of the past, how finely, and how the rows of a period are put together. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from gpupool.model.history_amounts import LEVELS, MINUTE_MS, Amounts, Held, Level, Subject
from gpupool.pool.reporting.use_meter import Bucket, merge

#: Rows of one period beyond this number are summed up by device, under `OTHERS`.
MOST_ROWS: Final = 2000
#: In the place of a user and project who are not named.
OTHERS: Final = "(others)"
#: Lengths that the points of a series may have, milliseconds: each is a multiple of those before that it may be made of.
STEPS: Final = tuple(
    minutes * MINUTE_MS for minutes in (1, 2, 5, 10, 20, 30, 60, 120, 180, 360, 720, 1440, 2880, 10_080)
)


def put_together(
    held: Held, used: Bucket, labels: Mapping[str, str], covered_ms: int, most: int = MOST_ROWS
) -> Bucket:
    """The rows of a period.

    Args:
        held: what leases held in it.
        used: what sessions used in it.
        labels: what sessions are called.
        covered_ms: how long it was looked at.
        most: so many holders at most have rows of their own on all devices together.
    """
    rows: Bucket = {}
    merge(rows, held.leases)
    merge(rows, used)
    named = {
        replace(subject, label=labels.get(subject.session, "")): waste(amounts)
        for subject, amounts in rows.items()
    }
    whole = bounded(named, most)
    merge(whole, held.devices)
    merge(whole, held.requests)
    merge(whole, {Subject(): Amounts(covered_ms=covered_ms)})
    return whole


def waste(amounts: Amounts) -> Amounts:
    """With idle waste: what one session held of one device in a period, less the device time that it used there.

    It is never less than nothing: a user of more than her share (because nobody else wanted the device) makes up for
    nobody else.
    """
    return replace(amounts, idle_milli_ms=max(0, amounts.held_milli_ms - amounts.used_milli_ms))


def bounded(rows: Bucket, most: int) -> Bucket:
    """At most `most` rows, those that held and used most; the others as one row for each device."""
    if len(rows) <= most:
        return dict(rows)

    def weight(subject: Subject) -> tuple[int, int, str, str]:
        amounts = rows[subject]
        return (
            -amounts.held_milli_ms - amounts.used_milli_ms,
            -amounts.memory_mib_ms,
            subject.device,
            subject.session,
        )

    first = sorted(rows, key=weight)
    kept = {subject: rows[subject] for subject in first[:most]}
    for subject in first[most:]:
        merge(kept, {Subject(subject.device, OTHERS, OTHERS): rows[subject]})
    return kept


def level_at(age_ms: int) -> Level:
    """How finely what is so old is still known."""
    return next((level for level in LEVELS if age_ms <= level.kept_ms), LEVELS[-1])


def step_of(from_ms: int, to_ms: int, now_ms: int, points: int) -> int:
    """Length of the points of a series: `points` at most, or as many as the coarsest level in it has."""
    finest = level_at(now_ms - from_ms).length_ms
    fitting = [step for step in STEPS if step % finest == 0 and -(-to_ms // step) - from_ms // step <= points]
    return fitting[0] if fitting else STEPS[-1]


def summed(rows: Iterable[tuple[Subject, Amounts]]) -> Bucket:
    """Sums by subject."""
    found: Bucket = {}
    for subject, amounts in rows:
        merge(found, {subject: amounts})
    return found

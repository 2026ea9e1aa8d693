"""The journal of steps: of each stored step the event, what skipped steps had changed before it, and what it changed.

A *checkpoint* has the whole state as it was before its event, so that nobody needs what lies behind it. The first step
of each run of the pool is one, and then one whenever the steps since have become large and many.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy import Connection, delete, func, select

from gpupool.ledger import plain, schema
from gpupool.ledger.recorder import Written

#: A checkpoint comes after at least so many steps …
CHECKPOINT_STEPS: Final = 1000
#: … that are together so many times as large as the last one, so that it at most doubles what is written.
CHECKPOINT_RATIO: Final = 1.0
#: Steps that are dropped at once, at most: the pool waits for it.
PRUNED_AT_ONCE: Final = 4 * CHECKPOINT_STEPS
_COMPRESSED_FROM: Final = 400


class StepsMissingError(LookupError):
    """The ledger does not have the steps that were asked for; `str()` is one sentence."""


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """One step as it was stored.

    Attributes:
        event: name of the event's type; empty: the step came without one.
        fields: the event's fields.
        before: what changed since the step before this one, or, in a checkpoint, everything.
        after: what the event changed.
        context: what the machine was run with: of a checkpoint, and where that has changed.
        memory: what the machine remembered beside the state.
    """

    number: int
    at_unix: float
    checkpoint: bool
    event: str
    fields: Mapping[str, Any]
    before: Written
    after: Written
    context: Mapping[str, Any] | None = None
    memory: Mapping[str, Any] | None = None


@dataclass(slots=True)
class Texts:
    """Long texts by their SHA-256; `new` are to be written with the step."""

    known: set[str] = field(default_factory=set)
    new: dict[str, str] = field(default_factory=dict)

    def intern(self, text: str) -> str:
        name = sha256_of(text)
        if name not in self.known:
            self.new[name] = text
        return name

    def written(self) -> None:
        self.known.update(self.new)
        self.new.clear()


def sha256_of(text: str) -> str:
    """In hexadecimal digits, of the UTF-8 bytes."""
    return hashlib.sha256(text.encode()).hexdigest()


def pack(step: RecordedStep) -> dict[str, Any]:
    """The row of a step."""
    detail: dict[str, Any] = {}
    for name, value in (
        ("e", step.fields),
        ("b", step.before),
        ("a", step.after),
        ("c", step.context),
        ("m", step.memory),
    ):
        if value:
            detail[name] = value
    text = json.dumps(detail, separators=(",", ":"), ensure_ascii=False).encode()
    return {
        "number": step.number,
        "at_unix": step.at_unix,
        "event": step.event,
        "checkpoint": step.checkpoint,
        "detail": zlib.compress(text, 1) if len(text) >= _COMPRESSED_FROM else text,
    }


def unpack(row: Mapping[str, Any]) -> RecordedStep:
    """A recorded step of its row, whose detail is JSON, compressed where it is long."""
    raw = bytes(row["detail"])
    # JSON of a step begins with a brace; what zlib writes never does.
    detail = json.loads(raw if raw.startswith(b"{") else zlib.decompress(raw))
    return RecordedStep(
        row["number"],
        row["at_unix"],
        row["checkpoint"],
        row["event"],
        detail.get("e", {}),
        detail.get("b", {}),
        detail.get("a", {}),
        detail.get("c"),
        detail.get("m"),
    )


def last_number(connection: Connection) -> int:
    """The number of the last step; 0: there is none."""
    return connection.execute(select(func.max(schema.steps.c.number))).scalar_one() or 0


def known_texts(connection: Connection) -> set[str]:
    """The hashes of all long texts that are stored."""
    return set(connection.execute(select(schema.texts.c.sha256)).scalars())


def text_of(connection: Connection, sha256: str) -> str:
    """Raises StepsMissingError: it is not there."""
    found = connection.execute(select(schema.texts.c.text).where(schema.texts.c.sha256 == sha256)).scalar()
    if found is None:
        raise StepsMissingError(f"the ledger has lost a text that its steps name ({sha256[:12]})")
    return str(found)


def number_of_line(connection: Connection, line: int) -> int:
    """The step that wrote a line of the journal.

    Raises:
        StepsMissingError: there is no such line.
    """
    row = connection.execute(select(schema.journal.c.step).where(schema.journal.c.number == line)).first()
    if row is None:
        last = connection.execute(select(func.max(schema.journal.c.number))).scalar_one() or 0
        raise StepsMissingError(f"the journal has no line {line}; its last one is {last}")
    return int(row.step)


def number_at(connection: Connection, unix: float) -> int:
    """The last step that was stored by then.

    Raises:
        StepsMissingError: the steps begin later.
    """
    query = select(func.max(schema.steps.c.number)).where(schema.steps.c.at_unix <= unix)
    number = connection.execute(query).scalar_one()
    if number is None:
        raise StepsMissingError(f"the ledger has no steps of before {unix:.3f} any more")
    return int(number)


def read(connection: Connection, number: int) -> Iterator[RecordedStep]:
    """The steps from the latest checkpoint on, up to step `number`.

    Raises:
        StepsMissingError: they have been dropped, or never were.
    """
    columns = schema.steps.c
    query = select(func.max(columns.number)).where(columns.checkpoint, columns.number <= number)
    first = connection.execute(query).scalar_one()
    if first is None or number > last_number(connection):
        raise StepsMissingError(
            f"the details of step {number} are no longer kept, or have not been written yet"
        )
    query_rows = (
        select(schema.steps).where(columns.number >= first, columns.number <= number).order_by(columns.number)
    )
    expected = first
    for row in connection.execute(query_rows).mappings():
        if row["number"] != expected:
            raise StepsMissingError(f"step {expected} is missing")
        yield unpack(dict(row))
        expected += 1


def prune(connection: Connection, before_unix: float, at_most: int = PRUNED_AT_ONCE) -> int:
    """Drops the oldest steps, those that no moment from `before_unix` on needs; returns how many.

    The journal's lines stay; what they did can be read, but not replayed any more.
    """
    columns = schema.steps.c
    kept_from = connection.execute(
        select(func.max(columns.number)).where(columns.checkpoint, columns.at_unix <= before_unix)
    ).scalar_one()
    first = connection.execute(select(func.min(columns.number))).scalar_one()
    if kept_from is None or first is None or first >= kept_from:
        return 0
    end = min(kept_from, first + at_most)
    return connection.execute(delete(schema.steps).where(columns.number < end)).rowcount


def event_fields(event: Any, intern: plain.Intern) -> dict[str, Any]:
    """An event as plain values; `intern` stores long texts."""
    return plain.record(event, intern)

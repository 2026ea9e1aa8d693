"""A decision of the past, made again: the machine in the state of before, the same event, and whether it does the same."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from sqlalchemy import Connection, select

from gpupool.ledger import plain, rebuild, recorder, schema, steps
from gpupool.ledger.recorder import Written
from gpupool.ledger.steps import StepsMissingError
from gpupool.model import events
from gpupool.model.instructions import Instruction, Journal
from gpupool.model.state import State
from gpupool.pool.lifecycle.machine import Machine
from gpupool.pool.lifecycle.machine_memory import remind
from gpupool.pool.model import live_view
from gpupool.pool.model.consolidation import Consolidation
from gpupool.pool.model.step import Ids
from gpupool.pool.model.timers import Timers
from gpupool.scheduler.model import Quota
from gpupool.scheduler.placement import DEFAULT_POLICY
from gpupool.scheduler.pool_view import Promise
from gpupool.sentences import Sentence

#: Numbers of instructions are new at every run; they are not compared. By table, the fields that have one.
_NUMBERED = {"leases": ("confirm_request", "resize"), "sessions": ("parking",)}


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the journal, as compared."""

    kind: str
    explanation: str
    user: str
    lease_id: str
    session_id: str
    node: str
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Replay:
    """A step, and what came of it when it was made again.

    Attributes:
        state: the pool before the event (and after what was left out for a what-if).
        event: what happened.
        recorded: the journal's lines of then; `lines` those of now.
        recorded_changes: what the event changed then, as stored; `changes` now.
        instructions: everything that the machine asked for now.
    """

    number: int
    at_unix: float
    state: State
    event: events.Event
    recorded: tuple[Line, ...]
    lines: tuple[Line, ...]
    recorded_changes: Written
    changes: Written
    instructions: tuple[Instruction, ...]

    @property
    def same_outcome(self) -> bool:
        """Whether the same was decided for the same reason, though perhaps with other figures in the explanation.

        That may be where a new request was decided by an earlier look at the queue, which is only looked at again.
        """
        then, now = compared(self.recorded_changes), compared(self.changes)
        lines = [[_outcome(line) for line in lot] for lot in (self.recorded, self.lines)]
        return lines[0] == lines[1] and all(
            then.get(table) == now.get(table) for table in ("leases", "sessions", "nodes", "devices")
        )

    @property
    def same(self) -> bool:
        """Whether the same was decided, with the same consequences for every record."""
        return self.lines == self.recorded and compared(self.changes) == compared(self.recorded_changes)


def run_context(
    timers: Timers,
    quotas: Mapping[str, Quota],
    policy: str = DEFAULT_POLICY,
    consolidate: Consolidation = Consolidation.IDLE,
) -> dict[str, Any]:
    """What the ledger records of how the machine is run, beside its state."""
    limits = {user: asdict(quota) for user, quota in quotas.items()}
    return {"timers": asdict(timers), "quotas": limits, "policy": policy, "consolidate": consolidate.value}


def replay(
    connection: Connection,
    number: int,
    *,
    without_leases: Collection[str] = (),
    policy: str | None = None,
) -> Replay:
    """Makes step `number` again, in memory; the ledger is only read.

    Args:
        connection: to the ledger.
        number: of the step, as the journal names it.
        without_leases: leases that are taken out of the state of before: what if they had not been there?
        policy: the placement policy, one of `scheduler.placement.POLICIES`: what if it had been another? None: the same.

    Raises:
        StepsMissingError: the ledger does not have the step, what leads to it, or one of these leases was not there.
    """
    moment = rebuild.moment(connection, number, last_event=False)
    step, state = moment.step, moment.state

    def text(sha256: str) -> str:
        return steps.text_of(connection, sha256)

    try:
        event = _event(step, text)
        timers = Timers(**moment.context["timers"])
        consolidate = Consolidation(moment.context["consolidate"])
        promised = tuple(Promise(**one) for one in moment.context.get("promised", ()))
    except (TypeError, ValueError) as error:
        raise StepsMissingError(f"step {number} cannot be made again: {error}") from None
    quotas = {user: Quota(**quota) for user, quota in moment.context["quotas"].items()}
    for lease_id in without_leases:
        _take_out(state, lease_id)
    machine = Machine(
        state,
        timers,
        _same_ids(step.after),
        quotas,
        policy or moment.context["policy"],
        consolidate,
    )
    machine.view.promised = promised
    memory = dict(step.memory or {})
    lesson = text(memory.pop("lesson")) if "lesson" in memory else ""
    remind(machine, memory, lesson, event.now)
    with contextlib.nullcontext() if (view := live_view.of(state)) is None else view.not_learning():
        done = machine.handle(event)
    changes = recorder.written(recorder.changes_of(state), steps.sha256_of)
    before = rebuild.moment(connection, number, last_event=False).state
    return Replay(
        number,
        step.at_unix,
        before,
        event,
        tuple(_recorded_lines(connection, number)),
        tuple(_line(item) for item in done if isinstance(item, Journal)),
        step.after,
        changes,
        tuple(done),
    )


def _event(step: steps.RecordedStep, text: Any) -> events.Event:
    kind = getattr(events, step.event, None)
    if not step.event or not (isinstance(kind, type) and issubclass(kind, events.Event)):
        what = f"its event {step.event!r} is not known" if step.event else "it was stored without its event"
        raise ValueError(what)
    event: events.Event = plain.make(kind, step.fields, text)
    return event


def _same_ids(after: Written) -> Ids:
    """Names in the order in which the step drew them; beyond those, names that say that they are new."""
    sessions, leases = _new_names(after, "sessions"), _new_names(after, "leases")
    return Ids(lambda: next(sessions), lambda: next(leases), lambda: "", itertools.count(1))


def _new_names(after: Written, table: str) -> Iterator[str]:
    yield from (key for key, fields in after.get(table, {}).items() if isinstance(fields, list))
    for number in itertools.count(1):
        yield f"new-{table[:-1]}-{number}"


def _take_out(state: State, lease_id: str) -> None:
    lease = state.leases.get(lease_id)
    if lease is None:
        raise StepsMissingError(f"there was no lease {lease_id[:40]!r} then")
    for part in state.lease_parts(lease):
        session = state.sessions[part.session_id]
        del state.leases[part.id]
        state.keys.pop(f"{part.user}\n{part.key}", None)
        if session.lease_id == part.id:
            changed = replace(session, lease_id="", state="parked", parked_at=session.parked_at)
            state.sessions[session.id] = changed
    state.commit()


def _outcome(line: Line) -> tuple[object, ...]:
    return line.kind, line.user, line.lease_id, line.session_id, line.node, line.data.get("reason")


def _recorded_lines(connection: Connection, number: int) -> Iterator[Line]:
    columns = schema.journal.c
    query = select(schema.journal).where(columns.step == number).order_by(columns.number)
    for row in connection.execute(query).mappings():
        said = str(Sentence.from_json(row["sentence"]))
        others = {name: row[name] for name in Line.__dataclass_fields__ if name != "explanation"}
        yield Line(explanation=said, **others)


def _line(item: Journal) -> Line:
    data = plain.encode(item.data, steps.sha256_of)
    return Line(item.kind, item.explanation, item.user, item.lease_id, item.session_id, item.node, data)


def compared(changes: Written) -> dict[str, dict[str, Any]]:
    """Changes without the numbers of instructions."""
    result: dict[str, dict[str, Any]] = {}
    for table, rows in changes.items():
        numbered = _NUMBERED.get(table, ())
        kept = {key: _without_numbers(fields, numbered) for key, fields in rows.items()}
        result[table] = {key: fields for key, fields in kept.items() if fields != {}}
    return {table: rows for table, rows in result.items() if rows}


def _without_numbers(fields: Any, numbered: tuple[str, ...]) -> Any:
    if isinstance(fields, list):
        return [_without_numbers(fields[0], numbered)]
    if not isinstance(fields, dict):
        return fields
    return {
        name: {key: item for key, item in value.items() if key != "request"}
        if isinstance(value, dict)
        else value
        for name, value in fields.items()
        if not (name in numbered and isinstance(value, int))
    }

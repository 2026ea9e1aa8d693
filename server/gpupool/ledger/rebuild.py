"""Any past moment of the pool, put together from a checkpoint and the steps since."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from sqlalchemy import Connection

from gpupool.ledger import recorder, steps
from gpupool.ledger.ledger import Ledger
from gpupool.ledger.steps import RecordedStep, StepsMissingError
from gpupool.model.clock import Clock
from gpupool.model.state import State, key_of


@dataclass(frozen=True, slots=True)
class Moment:
    """The pool around one step.

    Attributes:
        state: as it was; secrets and what `plain.LEFT_OUT` names are missing.
        step: the step that it is the moment of.
        context: what the machine was run with.
        clock: of that run of the pool: times of the state are its times.
    """

    state: State
    step: RecordedStep
    context: Mapping[str, Any]
    clock: Clock


def replayed(lot: Iterable[RecordedStep], text: Callable[[str], str], *, last_event: bool = True) -> Moment:
    """The state after the last of these steps, of which the first is a checkpoint. Pure.

    Args:
        lot: the steps, without a gap.
        text: gives long texts by their SHA-256.
        last_event: False: before the last step's event, with all that skipped steps changed until then.

    Raises:
        ValueError: the steps do not fit together, or are of another version of this program.
    """
    state, context, latest = State(), {}, None
    for step in lot:
        if latest is not None:
            recorder.apply(state, latest.after, text)
        elif not step.checkpoint:
            raise ValueError(f"step {step.number} is no checkpoint, nothing can be built on it")
        if step.checkpoint:
            state = State()
        if step.context:
            context = dict(step.context)
        recorder.apply(state, step.before, text)
        latest = step
    if latest is None:
        raise ValueError("there are no steps")
    if last_event:
        recorder.apply(state, latest.after, text)
    for lease in state.leases.values():
        state.keys[key_of(lease.user, lease.key)] = lease.id
    state.commit()
    return Moment(state, latest, context, Clock(float(context.get("clock_offset", 0.0))))


def state_at(ledger: Ledger, *, unix: float | None = None, line: int | None = None) -> State:
    """The state after the last step stored by a wall-clock time, or after the step that wrote a line of the journal.

    Raises:
        StepsMissingError: the ledger does not have the steps for it (any more).
    """
    with ledger.engine.connect() as connection:
        if line is not None:
            number = steps.number_of_line(connection, line)
        elif unix is not None:
            number = steps.number_at(connection, unix)
        else:
            raise TypeError("name a time or a line")
        return moment(connection, number).state


def moment(connection: Connection, number: int, *, last_event: bool = True) -> Moment:
    """The pool after step `number`, or before its event.

    Raises:
        StepsMissingError: the ledger does not have the steps for it (any more), or another version wrote them.
    """

    @cache
    def text(sha256: str) -> str:
        return steps.text_of(connection, sha256)

    try:
        return replayed(steps.read(connection, number), text, last_event=last_event)
    except ValueError as error:
        raise StepsMissingError(f"step {number} cannot be rebuilt: {error}") from None

"""What would be said to an ask that is not made: the machine handles it, and everything is taken back."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace

from gpupool.pool import events, gang_view
from gpupool.pool.instructions import TellRefused
from gpupool.pool.machine import Machine
from gpupool.pool.queue_memory import QueueMemory
from gpupool.pool.state import AskRecord, key_of
from gpupool.scheduler.model import Decision, Outcome, PlacedShare


@dataclass(frozen=True, slots=True)
class Considered:
    """The answer that an ask would get at once.

    Attributes:
        reason, sentence: of a refusal, or why it would wait; empty for a grant.
        shares: what would be granted.
        ask: as it would stand in the queue, or was when it was refused; None: it would be granted, or was none.
        decision: what the scheduler said; None: it was not asked.
    """

    outcome: Outcome
    reason: str = ""
    sentence: str = ""
    shares: tuple[PlacedShare, ...] = ()
    ask: AskRecord | None = None
    decision: Decision | None = None


def consider(machine: Machine, event: events.Requested) -> Considered:
    """What would be said to this ask now. Nothing is granted, queued, noted or learned.

    To be called between steps.
    """
    state = machine.state
    name = key_of(event.user, event.key)
    if name in state.asks or name in state.keys:
        raise ValueError(f"{event.key[:40]!r} is the key of an ask that has been made")
    with _undone(machine):
        done = machine.handle(replace(event, wait=None))
        lease = state.leases.get(state.keys.get(name, ""))
        if lease is not None:
            return Considered(Outcome.GRANT, shares=gang_view.shares(state.lease_parts(lease)))
        ask = state.asks.get(name)
        if ask is not None:
            decision = ask.decision
            reason = "" if decision is None else decision.reason
            return Considered(Outcome.QUEUE, reason, ask.reason, ask=ask, decision=decision)
        refused = [item for item in done if isinstance(item, TellRefused) and item.key == event.key]
        said = refused[-1]
        return Considered(Outcome.REFUSE, said.reason, said.explanation, ask=said.ask, decision=said.decision)


@contextlib.contextmanager
def _undone(machine: Machine) -> Iterator[None]:
    """Takes everything back that happens while it is open."""
    state, queue = machine.state, machine.queue
    machine.queue = QueueMemory()
    view = state.live_view
    learning = view.not_learning() if view is not None else contextlib.nullcontext()
    try:
        with learning:
            try:
                yield
            finally:
                state.rollback()
    finally:
        machine.queue = queue

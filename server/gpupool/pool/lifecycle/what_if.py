"""What would be said to a request that is not made: the machine handles it, and everything is taken back."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from gpupool.model import events
from gpupool.model.instructions import Fault, TellRefused
from gpupool.model.state import RequestRecord, key_of
from gpupool.pool.leases import gang_view
from gpupool.pool.lifecycle.fault_log import log_fault
from gpupool.pool.lifecycle.machine import Machine
from gpupool.pool.model import live_view
from gpupool.pool.model.queue_memory import QueueMemory
from gpupool.scheduler.model import Decision, Outcome, PlacedShare
from gpupool.sentences import NOTHING, Sentence

#: An answer with seconds in it counts for so long.
_REMEMBERED_SECONDS: Final = 2.0
_MOST_REMEMBERED: Final = 1000


@dataclass(frozen=True, slots=True)
class Considered:
    """The answer that a request would get at once.

    Attributes:
        reason, said: of a refusal, or why it would wait; empty for a grant.
        shares: what would be granted.
        request: as it would stand in the queue, or was when it was refused; None: it would be granted, or was none.
        decision: what the scheduler said; None: it was not asked.
    """

    outcome: Outcome
    reason: str = ""
    said: Sentence = NOTHING
    shares: tuple[PlacedShare, ...] = ()
    request: RequestRecord | None = None
    decision: Decision | None = None


def consider(machine: Machine, event: events.Requested) -> Considered:
    """What would be said to this request now. Nothing is granted, queued, noted or learned.

    To be called between steps.
    """
    state = machine.state
    name = key_of(event.user, event.key)
    if name in state.requests or name in state.keys:
        raise ValueError(f"{event.key[:40]!r} is the key of a request that has been made")
    with _undone(machine):
        done = machine.handle(replace(event, wait=None))
        for item in done:
            if isinstance(item, Fault):  # all else is taken back
                log_fault(item)
        lease = state.leases.get(state.keys.get(name, ""))
        if lease is not None:
            return Considered(Outcome.GRANT, shares=gang_view.shares(state.lease_parts(lease)))
        request = state.requests.get(name)
        if request is not None:
            decision = request.decision
            reason = "" if decision is None else decision.reason
            return Considered(Outcome.QUEUE, reason, request.said, request=request, decision=decision)
        refused = [item for item in done if isinstance(item, TellRefused) and item.key == event.key]
        said = refused[-1]
        return Considered(
            Outcome.REFUSE, said.reason, said.said, request=said.request, decision=said.decision
        )


class WhatIfs:
    """Answers that still hold: of many who watch, each look at the queue serves all who wonder about the same.

    As long as the pool itself goes by its last look at the queue, and the same requests wait, nothing has changed that would be
    decided otherwise. Where nobody waits there is no queue to look at, and nothing is remembered.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._of: tuple[object, int, int] | None = None
        self._known: dict[events.Requested, tuple[float, Considered]] = {}

    def consider(self, event: events.Requested) -> Considered:
        """As :func:`consider`; what was said at most two seconds ago is said again where it still holds."""
        queue = self._machine.queue
        if not queue.holds(self._machine.state) or not queue.waiting.lanes:
            self._forget(None)
            return consider(self._machine, event)
        self._forget((queue.latest, queue.waiting.highest(), len(queue.waiting)))
        wish = replace(event, now=0.0, key="", label="", holder="")  # which decide nothing
        said_at, answer = self._known.get(wish, (-math.inf, None))
        if answer is None or event.now >= said_at + _REMEMBERED_SECONDS:
            answer = consider(self._machine, event)
            if len(self._known) < _MOST_REMEMBERED:
                self._known[wish] = event.now, answer
        return answer

    def _forget(self, now_of: tuple[object, int, int] | None) -> None:
        """Forgets all answers that were given on something else."""
        if self._of is None or now_of is None or self._of[0] is not now_of[0] or self._of[1:] != now_of[1:]:
            self._known.clear()
        self._of = now_of


@contextlib.contextmanager
def _undone(machine: Machine) -> Iterator[None]:
    """Takes everything back that happens while it is open."""
    state, queue = machine.state, machine.queue
    machine.queue = QueueMemory()
    view = live_view.of(state)
    learning = view.not_learning() if view is not None else contextlib.nullcontext()
    try:
        with queue.passed_over(state), learning:
            try:
                yield
            finally:
                state.rollback()
    finally:
        machine.queue = queue

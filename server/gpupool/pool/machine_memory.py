"""What the machine remembers beside its state, as a few plain values: recorded with each step, so that it can be made
again as it was."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from gpupool.pool import queue_rules
from gpupool.pool.step import Ids, Step

if TYPE_CHECKING:
    from gpupool.pool.machine import Machine

Memory = Mapping[str, float | bool]


def remembered(machine: Machine) -> dict[str, float | bool]:
    """What goes into the next decision besides the state; values that a new machine has are left out.

    ``last_tick``, ``looked_at``, ``told_at``: times; ``highest``: number of the latest ask; ``untold``: places have changed
    since all were told theirs; ``looked``: the last look at the queue still holds, so a new ask is decided alone.
    """
    queue = machine.queue
    values: dict[str, float | bool | None] = {
        "last_tick": machine.last_tick,
        "highest": queue.waiting.highest(),
        "looked_at": queue.looked_at,
        "told_at": queue.told_at,
        "untold": queue.untold,
        "looked": queue.holds(machine.state),
    }
    return {
        name: value for name, value in values.items() if value is not None and value and value != -math.inf
    }


def remind(machine: Machine, memory: Memory, now: float) -> None:
    """Makes a new machine remember what another one did with the same state."""
    queue = machine.queue
    machine.last_tick = memory.get("last_tick")
    if memory.get("looked"):
        _look_again(machine, memory.get("looked_at", now))
    queue.waiting.skip_to(int(memory.get("highest", 0)))
    queue.looked_at = memory.get("looked_at", -math.inf)
    queue.told_at = memory.get("told_at", -math.inf)
    queue.untold = bool(memory.get("untold"))


def _look_again(machine: Machine, now: float) -> None:
    """Looks at the queue as it was looked at then, and forgets what came of it."""
    ids = Ids(lambda: "looked", lambda: "looked", lambda: "", itertools.count(1))
    step = Step(machine.state, machine.timers, machine.quotas, ids, now, queue=machine.queue)
    queue_rules.look_at_all(step)
    machine.state.rollback()
    latest = machine.queue.latest
    queue_rules.follow(step)
    machine.queue.latest = latest

"""What the machine remembers beside its state, as a few plain values.

They are recorded with each step, so that it can be made again as it was.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from gpupool.pool.model.step import Ids
from gpupool.pool.queue import queue_rules
from gpupool.scheduler.placement import Demand

if TYPE_CHECKING:
    from gpupool.pool.lifecycle.machine import Machine

Memory = Mapping[str, float | bool | str]


def remembered(machine: Machine) -> dict[str, float | bool | str]:
    """What goes into the next decision besides the state; values that a new machine has are left out.

    ``owed``: seconds that timers have yet to be given; ``last_tick``, ``looked_at``, ``told_at``, ``began_at``: times;
    ``highest``: number of the latest request; ``untold``: places have changed since all were told theirs; ``looked``: the
    last look at the queue still holds, so a new request is decided alone.
    """
    queue = machine.queue
    values: dict[str, float | bool | None] = {
        "last_tick": machine.last_tick,
        "owed": machine.owed,
        "highest": queue.waiting.highest(),
        "looked_at": queue.looked_at,
        "told_at": queue.told_at,
        "began_at": queue.began_at,
        "untold": queue.untold,
        "looked": queue.holds(machine.state),
    }
    return {name: value for name, value in values.items() if value and value != -math.inf}


def lesson(machine: Machine) -> str:
    """What the placement policy has learned so far, as text; empty: nothing. Asked after a step, which it went by."""
    learned = machine.policy.learned
    rows = [[demand.milli, demand.mib, demand.count, number] for demand, number in learned.items()]
    return json.dumps(rows) if rows else ""


def remind(machine: Machine, memory: Memory, lesson: str, now: float) -> None:
    """Makes a new machine remember what another one did with the same state, and what its policy had learned."""
    queue = machine.queue
    machine.last_tick = _time(memory, "last_tick", None)
    machine.owed = _time(memory, "owed", None) or 0.0
    rows = json.loads(lesson or "[]")
    machine.policy.recall({Demand(milli, mib, count): number for milli, mib, count, number in rows})
    if memory.get("looked"):
        _look_again(machine, _time(memory, "looked_at", None) or now)
    queue.waiting.skip_to(int(memory.get("highest", 0)))
    queue.looked_at = _time(memory, "looked_at", -math.inf) or 0.0
    queue.told_at = _time(memory, "told_at", -math.inf) or 0.0
    queue.began_at = _time(memory, "began_at", -math.inf) or 0.0
    queue.untold = bool(memory.get("untold"))


def _time(memory: Memory, name: str, default: float | None) -> float | None:
    value = memory.get(name)
    return default if value is None else float(value)


def _look_again(machine: Machine, now: float) -> None:
    """Looks at the queue as it was looked at then, and forgets what came of it."""
    ids = Ids(lambda: "looked", lambda: "looked", lambda: "", itertools.count(1))
    step = replace(machine.step(now), ids=ids)
    queue_rules.look_at_all(step)
    machine.state.rollback()
    latest = machine.queue.latest
    queue_rules.follow(step)
    machine.queue.latest = latest

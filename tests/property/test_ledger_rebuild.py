"""Whatever happens to a pool, each recorded moment can be rebuilt from the ledger, and each decision can be made again:
it is the same one, in the same words, with the same consequences for every record (in other words perhaps, where a new
request was decided by an earlier look at the queue)."""

from __future__ import annotations

import itertools
from dataclasses import fields, is_dataclass, replace
from typing import Any

from gpupool.ledger import rebuild
from gpupool.ledger.plain import LEFT_OUT, TOLD
from gpupool.model import events
from gpupool.model.instructions import Instruction
from gpupool.model.state import RequestRecord, State
from gpupool.pool.lifecycle.machine import Machine
from gpupool.pool.lifecycle.replay import Replay, compared, replay
from hypothesis import HealthCheck, Phase, settings

from tests.property.test_pool_machine import PoolStory
from tests.support.pool_world import PoolWorld

TABLES = ("nodes", "devices", "sessions", "leases", "requests", "projects", "limits", "accounts")
Sight = dict[str, list[tuple[str, Any]]]


def without_what_is_left_out(record: Any) -> Any:
    """The record with what is never recorded made equal."""
    changed: dict[str, Any] = dict.fromkeys(LEFT_OUT.get(type(record), ()))
    for field in fields(record):
        value = getattr(record, field.name)
        if is_dataclass(value) and field.name not in changed:
            changed[field.name] = without_what_is_left_out(value)
    if isinstance(record, RequestRecord) and record.told is not None:
        changed["told"] = TOLD
    return replace(record, **changed)


def sight(state: State) -> Sight:
    """All records in their order: the order in which the scheduler meets them is part of what it saw."""
    return {
        name: [(key, without_what_is_left_out(row)) for key, row in getattr(state, name).items()]
        for name in TABLES
    }


class RecordedWorld(PoolWorld):
    """Remembers what the state was before and after each step that the ledger recorded."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.sights: dict[int, tuple[Sight, Sight]] = {}
        super().__init__(*arguments, **options)

    def _open(self, served_until: float | None = None) -> Machine:
        assert self.ledger is not None
        self.ledger.checkpoint_steps = 9
        return super()._open(served_until)

    def handle(self, event: events.Event, *, lose_messages: bool = False) -> list[Instruction]:
        assert self.ledger is not None
        before, last = sight(self.machine.state), self.ledger.last_step
        done = super().handle(event, lose_messages=lose_messages)
        if self.ledger.last_step != last:
            self.sights[self.ledger.last_step] = (before, sight(self.machine.state))
        return done


def describe(again: Replay) -> str:
    """What differs between a step and its replay."""
    then, now = compared(again.recorded_changes), compared(again.changes)
    differing = {
        table: {key: (then.get(table, {}).get(key), now.get(table, {}).get(key))}
        for table in {*then, *now}
        for key in {*then.get(table, {}), *now.get(table, {})}
        if then.get(table, {}).get(key) != now.get(table, {}).get(key)
    }
    lines = [pair for pair in itertools.zip_longest(again.recorded, again.lines) if pair[0] != pair[1]]
    return f"step {again.number}, {again.event}: (then, now) {differing} {lines}"


class RecordedStory(PoolStory):
    world_class = RecordedWorld

    def teardown(self) -> None:
        try:
            if hasattr(self, "world"):
                self.check_every_step()
        finally:
            super().teardown()

    def check_every_step(self) -> None:
        assert self.world.ledger is not None
        with self.world.ledger.engine.connect() as connection:
            assert len(self.world.sights) > 5
            for number, (before, after) in self.world.sights.items():
                assert sight(rebuild.moment(connection, number, last_event=False).state) == before
                moment = rebuild.moment(connection, number)
                assert sight(moment.state) == after
                assert dict(moment.state.keys) == {
                    f"{lease.user}\n{lease.key}": lease.id for lease in moment.state.leases.values()
                }
                again = replay(connection, number)
                # A new request may have been decided by a look at the queue of a moment before.
                alone = isinstance(again.event, events.Requested)
                assert again.same or (alone and again.same_outcome), describe(again)


TestRecordedStory = RecordedStory.TestCase
TestRecordedStory.settings = settings(
    max_examples=10,
    stateful_step_count=25,
    deadline=None,
    derandomize=True,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)

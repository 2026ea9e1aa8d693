"""Who wonders what would be said to a request costs the pool no look at its queue, and many who wonder cost one."""

from __future__ import annotations

from typing import Any

import pytest
from gpupool.model import events
from gpupool.pool.lifecycle import what_if
from gpupool.pool.lifecycle.what_if import WhatIfs, consider
from gpupool.pool.queue import queue_rules
from gpupool.scheduler.model import Outcome
from structlog.testing import capture_logs

from tests.support.pool_world import PoolWorld


@pytest.fixture
def world() -> PoolWorld:
    """One device, taken; three wait."""
    world = PoolWorld(nodes={"node1": 1})
    world.connect()
    world.attach("busy", 1000, user="root")
    for number in range(3):
        world.request(f"waits{number}", 400, wait=None)
    return world


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """When the queue was looked at as a whole."""
    seen: list[float] = []
    original = queue_rules.look_at_all

    def look(step: Any) -> Any:
        seen.append(step.now)
        return original(step)

    monkeypatch.setattr(queue_rules, "look_at_all", look)
    return seen


def wish(world: PoolWorld, milli: int = 300, user: str = "ann") -> events.Requested:
    number = len(world.told)
    return events.Requested(world.now, user, f"explain-{number}-{milli}", milli, None, 1, wait=None)


def test_the_pool_goes_on_by_its_own_look_after_a_what_if(world: PoolWorld, looks: list[float]) -> None:
    for number in range(queue_rules.ALL_TOLD):
        world.request(f"also{number}", 400, wait=None)
    own = world.machine.queue.latest
    assert consider(world.machine, wish(world)).outcome is Outcome.QUEUE
    assert world.machine.queue.holds(world.machine.state)
    assert world.machine.queue.latest is own
    before = len(looks)
    world.request("new", 400, wait=None)
    assert len(looks) == before, "among many a new request is decided alone"
    assert [*world.machine.state.requests.values()][-1].place == len(world.machine.state.requests)


def test_what_the_pool_fails_at_is_in_its_log(world: PoolWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> None:
        raise RuntimeError("no advice")

    monkeypatch.setattr("gpupool.pool.queue.queue_pass.advise", fails)
    asked = wish(world, 123)
    with capture_logs() as lines:
        assert consider(world.machine, asked).outcome is Outcome.QUEUE
    assert (asked.key, "no advice") in [(line["request"], str(line["exc_info"])) for line in lines]


def test_what_was_taken_back_is_still_looked_at_anew(world: PoolWorld) -> None:
    """A step that could not be stored leaves nothing in the queue that it put there."""
    world.machine.handle(events.Requested(world.now, "ann", "lost", 100, None, 1, wait=None))
    world.machine.state.rollback()
    assert not world.machine.queue.holds(world.machine.state)
    consider(world.machine, wish(world))
    assert not world.machine.queue.holds(world.machine.state)
    world.request("new", 400, wait=None)
    assert [request.key for request in world.machine.state.requests.values()][-1] == "new"
    assert [request.place for request in world.machine.state.requests.values()] == [1, 2, 3, 4]


def test_many_who_watch_the_same_are_answered_by_one_look(world: PoolWorld, looks: list[float]) -> None:
    answers = WhatIfs(world.machine)
    said = [answers.consider(wish(world)) for _ in range(20)]
    assert len(looks) == 1
    assert len({(str(one.said), one.reason) for one in said}) == 1
    answers.consider(wish(world, 200))
    answers.consider(wish(world, user="bob"))
    assert len(looks) == 3, "another wish, and another user's, are others"


@pytest.mark.parametrize("change", ["ask", "leave", "release", "time"])
def test_what_has_changed_is_looked_at_again(world: PoolWorld, looks: list[float], change: str) -> None:
    answers = WhatIfs(world.machine)
    first = answers.consider(wish(world))
    if change == "ask":
        world.request("new", 400, wait=None)
    elif change == "leave":
        world.handle(events.Cancelled(world.now, "ann", "waits0"))
    elif change == "release":
        (name,) = [lease.id for lease in world.machine.state.leases.values() if lease.live]
        world.release(name, close=True)
        world.settle()
    else:
        world.now += what_if._REMEMBERED_SECONDS
    looks.clear()
    again = answers.consider(wish(world))
    assert looks
    assert again == consider(world.machine, wish(world))
    assert first.request is not None
    assert again.request is not None
    if change in ("ask", "leave"):
        assert again.request.place == first.request.place + (1 if change == "ask" else -1)

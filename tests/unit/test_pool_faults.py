"""What the pool itself fails at is nobody else's matter: one request is refused with a word, and all others are served."""

from __future__ import annotations

from typing import Any

import pytest
from gpupool.model.instructions import TellGranted, TellQueued, TellRefused
from gpupool.pool.queue.queue_pass import QueuePass

from tests.support.pool_world import PoolWorld


class TestARequestThatThePoolFailsAt:
    @pytest.fixture
    def world(self, monkeypatch: pytest.MonkeyPatch) -> PoolWorld:
        """One device, taken; a request waits whose decision fails from now on."""
        world = PoolWorld(nodes={"node1": 1})
        world.connect()
        world.attach("busy", 1000, user="root")
        world.request("bad", 123, wait=None)
        world.request("good", 400, wait=None)
        decide = QueuePass._decide

        def fails(self: QueuePass, step: Any, request: Any, *more: Any) -> Any:
            if request.key == "bad":
                raise RuntimeError("a mistake")
            return decide(self, step, request, *more)

        monkeypatch.setattr(QueuePass, "_decide", fails)
        return world

    def test_is_refused_with_a_word_and_in_the_log(self, world: PoolWorld) -> None:
        world.live(10)
        told = world.answer("bad")
        assert isinstance(told, TellRefused)
        assert (told.reason, "a mistake of its own" in told.explanation) == ("fault", True)
        assert [(one.key, str(one.error)) for one in world.faults] == [("bad", "a mistake")]

    def test_keeps_nobody_else_from_being_served(self, world: PoolWorld) -> None:
        assert isinstance(world.answer("good"), TellQueued)
        world.release("l1", close=True)
        world.settle()
        assert isinstance(world.answer("good"), TellGranted)

    def test_among_others_that_fail_as_well_keeps_its_place(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """It is not for the wishes, then: refusals would empty the queue."""
        world = PoolWorld(nodes={"node1": 1})
        world.connect()
        world.attach("busy", 1000, user="root")
        for number in range(4):
            world.request(f"k{number}", 100 + number, wait=None)

        def fails(*_: Any) -> None:
            raise RuntimeError("a mistake")

        monkeypatch.setattr(QueuePass, "_decide", fails)
        with pytest.raises(RuntimeError):
            world.live(10)
        assert not any(isinstance(world.answer(f"k{number}"), TellRefused) for number in range(4))

    def test_whose_advice_fails_is_told_without_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def fails(*_: Any) -> None:
            raise RuntimeError("no advice")

        monkeypatch.setattr("gpupool.pool.queue.queue_pass.advise", fails)
        world = PoolWorld(nodes={"node1": 1})
        world.connect()
        world.attach("busy", 1000, user="root")
        world.request("waits", 400, wait=None)
        world.live(5)
        assert isinstance(world.answer("waits"), TellQueued)
        assert {str(one.error) for one in world.faults} == {"no advice"}

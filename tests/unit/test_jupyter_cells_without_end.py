"""When a cell is taken to be over though its kernel did not say so: what the server has heard counts, in whatever order."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from gpupool.client.session.events import ScopeLeft

from jupyter_gpupool.server.watching import watch as watching
from jupyter_gpupool.server.watching.busy import OpenRequests
from jupyter_gpupool.server.watching.watch import SCOPE_GRACE_SECONDS, Watch

CELL, NEXT = ({"msg_type": "execute_request", "msg_id": name} for name in ("cell", "next"))


class World:
    """A watch over one kernel whose cell has a share, and a clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(watching, "time", SimpleNamespace(monotonic=lambda: self.now))
        self.requests = OpenRequests()
        self.ended: list[object] = []
        busy = SimpleNamespace(
            open_requests=lambda _: self.requests.open, last_ended_at=lambda _: self.requests.last_ended_at
        )
        record = SimpleNamespace(scopes={"scope"})
        session = SimpleNamespace(kernel_id="k", record=record, observe=self.ended.append)
        self.watch = Watch(*cast(Any, ([session], busy, None, list, list)))

    def heard(self, cell: dict[str, str], state: str) -> None:
        self.requests.status(cell, state, self.now)

    def ticks(self, seconds: float) -> list[object]:
        end = self.now + seconds
        while self.now < end:
            self.now += 1.0
            self.watch._end_stale_scopes()
        return self.ended


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


LONG = SCOPE_GRACE_SECONDS + 2


def test_a_cell_that_was_heard_to_begin_and_to_end_is_over(world: World) -> None:
    world.heard(CELL, "busy")
    world.watch.scope_entered("k", "scope")
    assert world.ticks(3 * LONG) == []
    world.heard(CELL, "idle")
    assert world.ticks(LONG)[0] == ScopeLeft("scope")


def test_so_is_one_whose_begin_was_heard_after_it_had_its_share(world: World) -> None:
    world.watch.scope_entered("k", "scope")
    world.heard(CELL, "busy")
    assert world.ticks(3 * LONG) == []
    world.heard(CELL, "idle")
    assert world.ticks(LONG)[0] == ScopeLeft("scope")


def test_so_is_a_short_one_of_which_no_tick_saw_anything(world: World) -> None:
    world.watch.scope_entered("k", "scope")
    world.now += 0.1
    world.heard(CELL, "busy")
    world.heard(CELL, "idle")
    assert world.ticks(LONG)[0] == ScopeLeft("scope")


def test_nothing_is_concluded_from_silence_nor_from_the_cell_before(world: World) -> None:
    world.heard(NEXT, "busy")
    world.heard(NEXT, "idle")
    world.now += 0.1
    world.watch.scope_entered("k", "scope")
    assert world.ticks(3 * LONG) == []

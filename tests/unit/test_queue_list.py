"""What the pool lists of its queue: bounded, whatever users ask for, and of others no more than their turn needs."""

from __future__ import annotations

import pytest
from gpupool.client.errors import PoolRefusedError
from gpupool.client.pool import queue_of
from gpupool.client.types import Queue
from gpupool.model import events
from gpupool.model.clock import Clock
from gpupool.model.state import State
from gpupool.pool.access import validate
from gpupool.pool.api import convert
from gpupool.pool.lifecycle.machine import Machine
from gpupool.pool.model.timers import Timers
from gpupool.proto.gpupool.v1 import pool_pb2 as pb

from tests.support.pool_world import counting_ids, offered

NOW = 1000.0
FILTER = "name!=*H100*"


@pytest.fixture
def machine() -> Machine:
    """Its only device is held."""
    made = Machine(State(), Timers(), counting_ids())
    made.handle(events.Restarted(NOW))
    made.handle(events.NodeHello(NOW, "node1", 1, "run-1", (offered(0),), ()))
    ask(made, "ann", "first")
    return made


def ask(machine: Machine, user: str, key: str, **more: object) -> None:
    asked = pb.RequestLease(idempotency_key=key, milli=1000, wait_seconds=-1, **more)  # type: ignore[arg-type]
    machine.handle(validate.request(asked, user, NOW))
    machine.state.commit()


def listed(machine: Machine, viewer: str | None) -> pb.QueueList:
    return convert.queue_list(machine.state, Clock(0.0), viewer)


def test_what_others_want_of_a_gpu_is_for_them_and_administrators(machine: Machine) -> None:
    ask(machine, "ann", "a", filters=[FILTER], label="nb.ipynb")
    for viewer, seen in (("ann", [FILTER]), (None, [FILTER]), ("bob", [])):
        (entry,) = listed(machine, viewer).entries
        assert list(entry.filters) == seen
        assert entry.HasField("explanation") == bool(seen)
        assert list(entry.wants) == ["node1/0"]  # a picture of the pool shows who waits for what


def test_the_first_places_are_listed_and_those_of_the_viewer(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(convert, "MOST_PLACES", 3)
    for number in range(6):
        ask(machine, "ann", f"a{number}")
    ask(machine, "bob", "b")
    ask(machine, "ann", "last")
    for viewer, places, left_out in (
        ("bob", [1, 2, 3, 7], 4),
        ("ann", [1, 2, 3, 4, 5, 6, 8], 1),
        (None, [1, 2, 3], 5),
    ):
        answer = listed(machine, viewer)
        assert ([entry.place for entry in answer.entries], answer.left_out) == (places, left_out)


def test_the_list_is_no_longer_than_clients_take(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convert, "MOST_QUEUE_BYTES", 16 * 1024)
    fat = {"label": "\U0001f600" * 256, "holder": "\U0001f600" * 256}
    for number in range(20):
        ask(machine, "ann", f"a{number}", filters=[f"name!={number}" + "\U0001f600" * 120], **fat)
    for viewer in ("ann", None):
        answer = listed(machine, viewer)
        assert 0 < answer.ByteSize() < 17 * 1024
        assert answer.left_out == 20 - len(answer.entries) > 0
    assert listed(machine, "bob").left_out == 0


async def test_a_queue_that_cannot_be_read_takes_nothing_from_the_rest() -> None:
    class Broken:
        async def queue(self) -> Queue:
            raise PoolRefusedError("full", "Received message larger than max")

    assert await queue_of(Broken()) is None

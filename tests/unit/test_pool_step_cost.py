"""A step costs what it changes: not what waits, and not what has ended within the hour.

Counted are the instructions of the interpreter, so the figures are the same on every machine. What a single call of the
C library does with a list (a copy, a search) is not seen by this; it takes microseconds for ten thousand.
"""

from __future__ import annotations

import pytest
from gpupool.model import events, instructions
from gpupool.model.instructions import Instruction
from gpupool.model.project_records import ProjectRecord
from gpupool.model.state import State
from gpupool.pool.api.convert import session_list
from gpupool.pool.lifecycle.machine import Machine
from gpupool.pool.model.timers import Timers

from tests.support.instructions_counted import instructions_of
from tests.support.pool_world import counting_ids, offered

DEVICES = 4
#: More than are told of every change at once, and ten times as many.
FEW, MANY = 100, 1000


class FullPool:
    """A machine whose devices are all held, by leases `l1`, `l2`, …; its node does at once what it is told."""

    def __init__(self, *, waiting: int = 0, ended: int = 0, users: int = 1) -> None:
        self.machine = Machine(State(), Timers(), counting_ids())
        self.now = 1000.0
        self.users = users
        self.asked = 0
        self.answers: list[events.Event] = []
        self.held: list[str] = []
        self.handle(events.Restarted(self.now))
        self.handle(events.NodeHello(self.now, "node1", 1, "run-1", tuple(map(offered, range(DEVICES))), ()))
        for _ in range(DEVICES):
            self.ask()
        self.settle()
        for _ in range(ended):
            self.release()
            self.settle()
            self.ask()
            self.settle()
        for _ in range(waiting):
            self.ask()
        # What has changed since the last look is looked at once by the next one, whoever that is.
        for step in STEPS.values():
            step(self)

    def handle(self, event: events.Event) -> list[Instruction]:
        done = self.machine.handle(event)
        self.machine.state.commit()
        for item in done:
            match item:
                case instructions.StartWorker():
                    started = events.WorkerStarted(
                        self.now, item.node, item.connection, item.session_id, item.epoch, f"{item.node}:1"
                    )
                    self.answers.append(started)
                case instructions.StopWorker():
                    exited = events.WorkerExited(self.now, item.node, item.connection, item.session_id, 0, "")
                    self.answers.append(exited)
                case instructions.TellGranted():
                    self.held.append(item.lease_id)
        return done

    def settle(self) -> None:
        while self.answers:
            self.handle(self.answers.pop(0))

    def ask(self, project: str = "", milli: int = 1000) -> None:
        self.asked += 1
        user = f"user{self.asked % self.users}"
        self.handle(
            events.Requested(self.now, user, f"k{self.asked}", milli, None, 1, wait=None, project=project)
        )

    def leave(self) -> None:
        request = list(self.machine.state.requests.values())[-1]
        self.handle(events.Cancelled(self.now, request.user, request.key))

    def release(self) -> None:
        self.handle(events.Released(self.now, self.held.pop(0), "exit", True))

    def grant(self) -> None:
        """A lease ends, and the first in line is granted one and served."""
        self.release()
        self.settle()

    def heartbeat(self) -> None:
        self.handle(events.NodeHeartbeat(self.now, "node1", 1, 1, ()))

    def tick(self) -> None:
        self.handle(events.Tick(self.now))


STEPS = {
    "ask": FullPool.ask,
    "leave": FullPool.leave,
    "grant": FullPool.grant,
    "heartbeat": FullPool.heartbeat,
    "tick": FullPool.tick,
}


def costs(pool: FullPool) -> dict[str, int]:
    return {name: instructions_of(lambda step=step: step(pool)) for name, step in STEPS.items()}  # type: ignore[misc]


@pytest.mark.parametrize("users", [1, 50])
def test_a_step_costs_the_same_however_many_wait(users: int) -> None:
    few, many = (costs(FullPool(waiting=number, users=users)) for number in (FEW, MANY))
    for step, cost in few.items():
        assert many[step] <= 1.05 * cost, (
            f"{step}: {cost} instructions with {FEW} waiting, {many[step]} with {MANY}"
        )


def test_a_step_costs_the_same_however_many_leases_have_ended() -> None:
    few, many = (costs(FullPool(waiting=FEW, ended=number)) for number in (10, 300))
    for step, cost in few.items():
        assert many[step] <= 1.05 * cost, (
            f"{step}: {cost} instructions after 10 leases, {many[step]} after 300"
        )


def test_a_users_sessions_are_listed_at_the_same_cost_however_many_others_have() -> None:
    def cost(others: int) -> int:
        pool = FullPool(ended=others, users=others)
        seen = pool.machine.state.sessions["s1"].user

        def listed() -> None:
            assert len(session_list(pool.machine.state, pool.now, seen).sessions) == 2

        listed()
        return instructions_of(listed)

    few, many = cost(10), cost(200)
    assert many <= 1.05 * few, f"{few} instructions beside 10 other users, {many} beside 200"


def test_a_lease_where_there_is_room_costs_the_same_however_many_there_are() -> None:
    """While nobody waits: whoever has to be compared with others costs a look at them."""

    def cost(nodes: int) -> int:
        pool = FullPool()
        for number in range(2, 2 + nodes):
            devices = tuple(map(offered, range(DEVICES)))
            pool.handle(events.NodeHello(pool.now, f"node{number}", number, "run-1", devices, ()))
            for _ in range(DEVICES - 1):
                pool.ask()
        return instructions_of(pool.ask)

    few, many = cost(3), cost(40)
    assert many <= 1.3 * few, f"{few} instructions beside some leases, {many} beside thirteen times as many"


def test_room_taken_back_for_somebody_costs_the_same_however_much_is_taken_back_for_others() -> None:
    """Each who waits is looked at in the pool as it is and as it is going to be, which are far apart then."""

    def cost(nodes: int) -> float:
        pool = FullPool()
        pool.handle(events.Released(pool.now, "l1", "exit", True))
        for path, deserved in (("theirs", 0), ("ours", 1000 * DEVICES * nodes)):
            pool.handle(events.ProjectSet(pool.now, ProjectRecord(path, deserved), "root"))
        for number in range(2, 2 + nodes):
            devices = tuple(map(offered, range(DEVICES)))
            pool.handle(events.NodeHello(pool.now, f"node{number}", number, "run-1", devices, ()))
            for _ in range(DEVICES):
                pool.ask("theirs")
        pool.settle()
        pool.now += pool.machine.timers.min_run + 1
        for number in range(1, 2 + nodes):
            pool.handle(events.NodeHeartbeat(pool.now, f"node{number}", number, 1, ()))
        for number in range(DEVICES * nodes // 2):
            pool.ask("ours", 600 + number)
        waiting = list(pool.machine.state.requests)
        noticed = {lease.notice.for_request for lease in pool.machine.state.leases.values() if lease.notice}
        assert noticed == set(waiting)
        return instructions_of(pool.grant) / len(waiting)

    few, many = cost(4), cost(24)
    assert many <= 1.5 * few, f"{few:.0f} instructions for each of 8 requests, {many:.0f} for each of 48"


def test_nothing_piles_up_for_an_index_that_nobody_asks() -> None:
    pool = FullPool(waiting=FEW)
    pool.grant()
    assert any(one.behind for one in pool.machine.state.index.all)
    pool.tick()
    assert not any(one.behind for one in pool.machine.state.index.all)


def test_what_is_compared_are_grants() -> None:
    pool = FullPool(waiting=FEW)
    granted = len(pool.machine.state.requests)
    pool.grant()
    assert len(pool.machine.state.requests) == granted - 1
    assert len(pool.held) == DEVICES

"""Many sessions on one device: each computes its own, and who goes beyond its share fails alone."""

from __future__ import annotations

import random
import statistics
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.device_session import LARGE, OUT_OF_MEMORY, STEPS, DeviceSession, Refused, Step
from tests.support.patience import measured
from tests.support.pool_node import SCALE, native_worker_is_built
from tests.support.pool_portal import PoolPortal
from tests.support.session_memory import STEP, Buffer, Launch
from tests.support.session_program import build
from tests.support.session_sight import USABLE
from tests.support.session_world import SessionWorld
from tests.support.two_nodes import PoolAndTwoNodes

pytestmark = pytest.mark.skipif(not native_worker_is_built(), reason="native parts not built")

ILLEGAL_ADDRESS = 700
#: Step times of the same program in one run are within this of each other, on a machine that does other things too.
NOISE = 1.6
LOOKS = 5


@pytest.fixture(scope="module")
def one_device() -> Iterator[SessionWorld]:
    with (
        tempfile.TemporaryDirectory(prefix="gps-") as folder,
        PoolAndTwoNodes(scale=SCALE, nodes={"a": 1}) as stack,
        PoolPortal(stack.endpoint, 5 * SCALE) as portal,
    ):
        yield SessionWorld(stack, portal, build(Path(folder)), Path(folder))


@pytest.fixture
def world(one_device: SessionWorld) -> Iterator[SessionWorld]:
    yield one_device
    for session in list(one_device.sessions):
        one_device.close(session, killed=False)
    one_device.check_shares()


def attach(world: SessionWorld, milli: int) -> DeviceSession:
    session = world.attach(milli)
    assert session is not None
    return session


def work_of(seed: int, count: int) -> list[Step]:
    choice = random.Random(seed)
    return [
        Step(choice.choice(STEPS), choice.randrange(9), choice.randrange(9), choice.randrange(1 << 32))
        for _ in range(count)
    ]


def all_at_once(sessions: list[DeviceSession], steps: int) -> None:
    def run(place: int) -> None:
        sessions[place].work(work_of(place, steps))
        sessions[place].check_all()

    with ThreadPoolExecutor(len(sessions)) as threads:
        list(threads.map(run, range(len(sessions))))


def test_twenty_users_with_a_twentieth_each_compute_at_once(world: SessionWorld) -> None:
    sessions = [attach(world, 50) for _ in range(20)]
    world.check_shares()
    assert world.free_milli() == {"a/0": 0}
    assert world.attach(50) is None
    for number, session in enumerate(sessions):
        session.allocate(5000 + number, number)
    all_at_once(sessions, 200)
    # Half of them give their share to others, and come back to what they had.
    for session in sessions[::2]:
        world.detach(session, "idle", drained=True)
    others = [attach(world, 50) for _ in sessions[::2]]
    all_at_once([*others, *sessions[1::2]], 50)
    for other in others:
        world.close(other, killed=False)
    for session in sessions[::2]:
        assert world.resume(session, 50)
    all_at_once(sessions, 50)
    world.check_shares()


def test_sixty_five_and_thirty_five_percent_fill_a_device(world: SessionWorld) -> None:
    large, small = attach(world, 650), attach(world, 350)
    world.check_shares()
    assert (large.mib, small.mib) == (650 * USABLE // 1000, 350 * USABLE // 1000)
    assert world.attach(50) is None
    for session in (large, small):
        seed = 0
        while True:  # as much as there is: each gets its own share, and not one word of the other's
            seed += 1
            try:
                session.allocate(LARGE, seed)
            except Refused as refusal:
                assert refusal.answer.error == OUT_OF_MEMORY, refusal
                break
        held = sum(buffer.size for buffer in session.memory.buffers) * 4 >> 20
        assert session.mib - 8 <= held <= session.mib
    all_at_once([large, small], 60)
    # The larger gives a part of its share away, the smaller goes on.
    for buffer in large.freeable()[8:]:
        large.free(buffer)
    assert world.resize(large, 500)
    third = attach(world, 150)
    all_at_once([large, small, third], 60)
    world.check_shares()


def allocate_beyond(greedy: DeviceSession, then: Callable[[], None]) -> None:
    kept = greedy.allocate(LARGE, 1)
    for size in (greedy.mib << 18, 1 << 28, 1 << 36):
        with pytest.raises(Refused) as refused:
            greedy.allocate(size, 1)
        assert refused.value.answer.error == OUT_OF_MEMORY
        then()
    greedy.check([kept])
    greedy.work(work_of(1, 30))
    greedy.check_all()


def write_where_it_has_no_memory(wild: DeviceSession, then: Callable[[], None]) -> None:
    for command in ("launch 0 0 0 4096 4096 64", "sync"):
        answer = wild.program.run(command)
    assert answer.error == ILLEGAL_ADDRESS, answer
    then()


Mistake = Callable[[DeviceSession, Callable[[], None]], None]
MISTAKES: list[Mistake] = [allocate_beyond, write_where_it_has_no_memory]


@pytest.mark.parametrize("mistake", MISTAKES)
def test_who_makes_a_mistake_fails_alone(world: SessionWorld, mistake: Mistake) -> None:
    neighbour, other = attach(world, 500), attach(world, 500)
    mine = neighbour.allocate(16384, 7)

    def works_as_before() -> None:
        before = world.worker_stats(neighbour)
        steps_of(neighbour, mine, 100)
        neighbour.check_all()
        after = world.worker_stats(neighbour)
        same = ("epoch", "state", "mem", "failed")
        assert [after.fields[name] for name in same] == [before.fields[name] for name in same]
        assert int(after.fields["kernels"]) - int(before.fields["kernels"]) == 2 * 100

    works_as_before()
    mistake(other, works_as_before)


@pytest.mark.serial
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_neighbours_next_steps_take_as_long_as_before(world: SessionWorld, mistake: Mistake) -> None:
    neighbour, other = attach(world, 500), attach(world, 500)
    mine = neighbour.allocate(16384, 7)
    before = [steps_of(neighbour, mine, 1000) for _ in range(3)]
    after: list[float] = []

    def look() -> None:
        """Again if something else had the processor meanwhile; a neighbour that is slower from now on is slower each time."""
        found: list[float] = []
        while len(found) < LOOKS and (not found or found[-1] >= NOISE * max(before)):
            found.append(steps_of(neighbour, mine, 1000))
        after.append(min(found))

    mistake(other, look)
    measured(max(after) < NOISE * max(before), (before, after))


def steps_of(session: DeviceSession, buffer: Buffer, times: int) -> float:
    """The median time of that many training steps (two launches and a wait), in microseconds."""
    command = f"steps {buffer.address} {buffer.size} {times}"
    session.check([])
    answer = session.program.run(command)
    assert answer.error == 0 and answer.words is not None, answer
    session.memory.post(Launch(STEP, buffer, buffer, buffer, buffer.size, 2 * times))
    session.check([buffer])
    return float(statistics.median(answer.words.tolist()))

"""Nothing is lost: sessions on real processes against a model that knows every byte of every buffer.

A real pool, two node agents with small software GPUs, real workers, and programs that use the client runtime. In any
order, programs compute and are attached, detached, released as idle, reclaimed, resized and resumed, and workers, agents
and the pool are killed or stand still. Some launch kernels that never end, and lose their lease under them. After each
step: no byte differs from the model, no device is granted or served beyond its size, nobody whose lease is over has any
effect, nothing computes without a lease, and what computes is charged.

`GPUPOOL_MACHINE_STEPS` says how long (`make test-session-machine STEPS=100000`), `GPUPOOL_MACHINE_SEED` which stories.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.errors import FlakyStrategyDefinition
from hypothesis.stateful import run_state_machine_as_test

from tests.support.pool_node import native_worker_is_built
from tests.support.pool_portal import PoolPortal
from tests.support.session_machine import SessionMachine
from tests.support.session_program import build
from tests.support.session_record import Record
from tests.support.session_world import SessionWorld
from tests.support.two_nodes import PoolAndTwoNodes

STEPS = int(os.environ.get("GPUPOOL_MACHINE_STEPS", "500"))
SEED = int(os.environ.get("GPUPOOL_MACHINE_SEED", "20261121"))
#: All timers times this: heartbeats every 0.75 s, fenced after 3.75 s.
SCALE = float(os.environ.get("GPUPOOL_MACHINE_SCALE", "0.15"))
#: So long what computes may go on without a lease; the product's is 4 s.
DRAIN = 1.0
STORIES, LENGTH = 30, 90

pytestmark = [
    pytest.mark.skipif(not native_worker_is_built(), reason="native parts not built"),
    pytest.mark.slow,
    pytest.mark.timeout(900 + STEPS // 2),
]


@pytest.fixture
def world() -> Iterator[SessionWorld]:
    with (
        tempfile.TemporaryDirectory(prefix="gps-") as folder,
        PoolAndTwoNodes("--drain", f"{DRAIN}s", scale=SCALE) as stack,
        PoolPortal(stack.endpoint, 5 * SCALE) as portal,
    ):
        world = SessionWorld(stack, portal, build(Path(folder)), Path(folder))
        yield world
        for session in world.sessions:
            session.end(killed=True)


# Its processes are real and so are its timers: a stall of the machine may fail it, what is wrong fails every time.
@pytest.mark.flaky(reruns=1)
def test_no_byte_is_lost_no_share_granted_twice_and_none_used_after_its_end(world: SessionWorld) -> None:
    SessionMachine.world = world
    SessionMachine.record = record = Record(SEED, STEPS)
    number = SEED
    while record.steps < STEPS and record.failure is None:
        record.seed = number
        run_stories(number)
        say(record, world)
        number += 1
    if record.failure is not None:
        # Told at once: a run that is repeated and passes would hide it.
        happened = what_happened(record, world)
        print(happened, file=sys.stderr, flush=True)
        pytest.fail(happened)
    # No disturbance explains these; a machine that stands still for seconds does.
    assert world.unexplained_fences <= 2 + record.steps // 1000, world.events


def run_stories(number: int) -> None:
    """One run of hypothesis over the world; a failure is in the record, as it first happened."""
    stories = settings(
        max_examples=STORIES,
        stateful_step_count=LENGTH,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        # Processes and time are no part of what hypothesis repeats: a failure is reported as it was.
        phases=[Phase.generate],
    )
    machine = seed(number)(type("SessionStories", (SessionMachine,), {}))
    try:
        run_state_machine_as_test(machine, settings=stories)
    except FlakyStrategyDefinition:
        # A beginning was told again and went on otherwise, as it may where time matters: the next seed's stories follow.
        SessionMachine.record.told_otherwise += 1
    except Exception as error:
        record = SessionMachine.record
        if record.failure is None and record.steps < record.goal:
            raise AssertionError(f"hypothesis cannot go on: {error}") from error


def say(record: Record, world: SessionWorld) -> None:
    seconds = time.monotonic() - record.began
    fired = ", ".join(
        f"{name} {times} ({record.seconds[name]:.1f} s)" for name, times in sorted(record.fired.items())
    )
    sys.stderr.write(
        f"session machine: {record.steps} steps in {seconds:.0f} s through seed {record.seed} ({fired}; "
        f"{record.idle} that could do nothing; resumed {dict(world.came_back)}; {world.unexplained_fences} unexplained fences)\n"
    )


def what_happened(record: Record, world: SessionWorld) -> str:
    assert record.failure is not None
    logs = "\n".join(
        f"-- the last of {name}\n{world.stack.log(name)[-3000:]}" for name in ("pool", *world.stack.nodes)
    )
    return "\n".join(
        (
            f"GPUPOOL_MACHINE_SEED={record.seed} tells this story, after {record.steps} steps:",
            *record.story,
            *traceback.format_exception(record.failure),
            logs,
        )
    )

"""The rules of the session machine: what can happen to sessions, in any order. See test_session_machine.py."""

from __future__ import annotations

import functools
import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar, Final

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.support.cut_wire import CutWire
from tests.support.device_session import (
    LARGE,
    MODULES,
    OUT_OF_MEMORY,
    SIZES,
    STEPS,
    DeviceSession,
    Refused,
    Step,
)
from tests.support.endless_kernels import ENDS, end_under_endless_kernel
from tests.support.session_record import Enough, Record, counted
from tests.support.session_world import SessionWorld

#: More sessions at a time do not make a story richer, only slower.
MOST_SESSIONS: Final = 6
#: Deaths of services, and what else takes a second, come this many steps after one another at least.
BETWEEN_DEATHS: Final = 60

#: So do moves of everything on a device.
BETWEEN_UPHEAVALS: Final = 15

#: And kernels that never end, which are given their time to end.
BETWEEN_ENDLESS: Final = 3

which = st.integers(0, 11)
numbers = st.integers(0, 2**32 - 1)
steps = st.lists(st.builds(Step, st.sampled_from(STEPS), which, which, numbers), min_size=1, max_size=6)
shares = st.sampled_from((50, 100, 200, 300, 350, 450, 550, 650, 1000))
very_rarely = st.integers(0, 9).map(lambda number: number == 9)
rarely = st.sampled_from((False, False, False, True))


class SessionMachine(RuleBasedStateMachine):
    """Needs `world` and `record`, which are shared by all stories of a run."""

    world: ClassVar[SessionWorld]
    record: ClassVar[Record]

    def __init__(self) -> None:
        super().__init__()
        if self.record.failure is not None:
            raise self.record.failure
        if self.record.steps >= self.record.goal:
            raise Enough
        self.age = 0
        self.last_death = -BETWEEN_DEATHS
        self.last_upheaval = 0
        self.last_endless = -BETWEEN_ENDLESS
        self.was_cut_off = False
        self.record.story.clear()
        self.world.events.clear()

    # ---- choosing

    def some(self, sessions: list[DeviceSession], number: int) -> DeviceSession:
        return sessions[number % len(sessions)]

    def has_attached(self) -> bool:
        return bool(self.world.attached)

    def has_parked(self) -> bool:
        return bool(self.world.parked)

    def has_any(self) -> bool:
        return bool(self.world.sessions)

    def has_place(self) -> bool:
        return len(self.world.sessions) < MOST_SESSIONS

    def may_die(self) -> bool:
        return self.age - self.last_death >= BETWEEN_DEATHS and self.has_any()

    @initialize(milli=st.tuples(shares, shares, shares), parked=st.integers(0, 2))
    @counted
    def begin(self, milli: tuple[int, ...], parked: int) -> None:
        """Some programs at work, some parked."""
        for number, share in enumerate(milli):
            self.world.attach(share, wire=CutWire() if number == 0 else None, movable=number < 2)
        for session in self.world.sessions[:parked]:
            self.world.detach(session, "release", drained=True)
        self.world.check_shares()

    # ---- what programs do

    def work_of(self, session: DeviceSession, work: Callable[[], Any]) -> bool:
        """False when it turned out that its lease had not outlived what befell its node."""
        try:
            work()
        except Refused as refusal:
            if refusal.answer.error == OUT_OF_MEMORY or not self.world.explains(session):
                raise
            return False
        return True

    @precondition(has_attached)
    @rule(number=which, steps=steps)
    @counted
    def work(self, number: int, steps: list[Step]) -> bool:
        session = self.some(self.world.attached, number)
        return self.work_of(session, lambda: session.work(steps))

    @precondition(has_attached)
    @rule(number=which, steps=steps)
    @counted
    def post_and_leave(self, number: int, steps: list[Step]) -> bool:
        """Nothing waits: what comes next meets work under way."""
        session = self.some(self.world.attached, number)
        posts = [step for step in steps if step.kind not in ("read", "sync")]
        return self.work_of(session, lambda: session.work(posts))

    @precondition(has_attached)
    @rule(steps=st.lists(steps, min_size=2, max_size=4))
    @counted
    def all_work(self, steps: list[list[Step]]) -> bool:
        for session, mine in zip(self.world.attached, steps, strict=False):
            if not self.work_of(session, functools.partial(session.work, mine)):
                return False
        return True

    @precondition(has_attached)
    @rule(number=which, size=st.sampled_from((*SIZES, *SIZES, LARGE)), seed=numbers, pool=rarely)
    @counted
    def allocate(self, number: int, size: int, seed: int, pool: bool) -> bool:
        session = self.some(self.world.attached, number)
        buffers = session.freeable()
        room = 4 * (sum(buffer.size for buffer in buffers) + size) + (len(buffers) + 8) * (2 << 20)
        if len(buffers) >= 8 or room > session.mib << 20:
            return False
        return self.work_of(session, lambda: session.allocate(size, seed, pool=pool))

    @precondition(has_attached)
    @rule(number=which)
    @counted
    def allocate_too_much(self, number: int) -> bool:
        """Fails by itself, and leaves everything as it was."""
        session = self.some(self.world.attached, number)

        def ask() -> None:
            try:
                session.allocate((session.mib + 2) << 18, 1)
            except Refused as refusal:
                if refusal.answer.error != OUT_OF_MEMORY:
                    raise
            else:
                raise AssertionError(f"{session.name} got more than its {session.mib} MiB")
            session.check_all()

        return self.work_of(session, ask)

    @precondition(has_any)
    @rule(number=which, buffer=which)
    @counted
    def free(self, number: int, buffer: int) -> bool:
        """Parked sessions may free, too."""
        session = self.some(self.world.sessions, number)
        buffers = [b for b in session.freeable() if session.attached or not b.pooled]
        if len(buffers) < 2 or session.memory.in_doubt:
            return False
        return self.work_of(session, lambda: session.free(buffers[buffer % len(buffers)]))

    @precondition(has_attached)
    @rule(number=which, module=st.integers(1, MODULES - 1), seed=numbers)
    @counted
    def load_or_unload_a_module(self, number: int, module: int, seed: int) -> bool:
        session = self.some(self.world.attached, number)
        if module in session.tables:
            return self.work_of(session, lambda: session.unload(module))
        return self.work_of(session, lambda: session.load(module, seed))

    @precondition(has_attached)
    @rule(number=which)
    @counted
    def read_everything(self, number: int) -> bool:
        session = self.some(self.world.attached, number)
        return self.work_of(session, session.check_all)

    @precondition(has_parked)
    @rule(number=which, steps=steps)
    @counted
    def work_without_a_share(self, number: int, steps: list[Step]) -> None:
        self.some(self.world.parked, number).try_in_vain(
            [step for step in steps if step.kind not in ("read", "sync")]
        )

    # ---- leases

    @precondition(has_place)
    @rule(milli=shares, wire=st.booleans(), movable=st.booleans())
    @counted
    def attach(self, milli: int, wire: bool, movable: bool) -> None:
        self.world.attach(milli, wire=CutWire() if wire else None, movable=movable)
        self.world.check_shares()

    @precondition(has_parked)
    @rule(number=which, milli=shares)
    @counted
    def resume(self, number: int, milli: int) -> None:
        self.world.resume(self.some(self.world.parked, number), milli)
        self.world.check_shares()

    @precondition(has_attached)
    @rule(number=which, reason=st.sampled_from(("release", "idle", "exit")), drained=st.booleans())
    @counted
    def detach(self, number: int, reason: str, drained: bool) -> None:
        self.world.detach(self.some(self.world.attached, number), reason, drained=drained)
        self.world.check_shares()

    @precondition(has_attached)
    @rule(number=which, told=st.booleans())
    @counted
    def reclaim(self, number: int, told: bool) -> None:
        self.world.reclaim(self.some(self.world.attached, number), told=told)
        self.world.check_shares()

    @precondition(has_attached)
    @rule(number=which, steps=steps)
    @counted
    def share_given_to_another(self, number: int, steps: list[Step]) -> bool:
        """A program that was told nothing goes on while somebody else has its share."""
        victim = self.some(self.world.attached, number)
        self.world.reclaim(victim, told=False)
        other = self.world.attach(victim.milli) if self.has_place() else None
        victim.try_in_vain([step for step in steps if step.kind not in ("read", "sync")])
        self.world.check_shares()
        if other is not None:
            other.check_all()
            self.world.close(other, killed=False)
        return True

    @precondition(lambda self: self.has_any() and self.age - self.last_upheaval >= BETWEEN_UPHEAVALS)
    @rule(number=which, steps=steps)
    @counted
    def whole_device_for_another(self, number: int, steps: list[Step]) -> bool:
        """All sessions of a device are parked, others take devices whole, give them back, and all go on."""
        self.last_upheaval = self.age
        device = self.some(self.world.sessions, number).device
        there = [session for session in self.world.sessions if session.device == device]
        milli = {session.name: session.milli for session in there}
        for session in there:
            self.world.detach(session, "release", drained=False)
        guests: list[DeviceSession] = []
        while len(guests) < 3 and self.world.free_milli()[device] == 1000:
            guest = self.world.attach(1000)
            if guest is None:
                return False
            guests.append(guest)
        self.world.check_shares()
        for guest in guests:
            guest.work(steps)
            guest.check_all()
        for session in there:
            session.try_in_vain([Step("fill"), Step("step")])
            # Somewhere else, if there is room; else when the guests are gone.
            self.world.resume(session, milli[session.name])
        for guest in guests:
            self.world.close(guest, killed=False)
        self.world.check_shares()
        for session in there:
            if not session.attached:
                self.world.resume(session, milli[session.name])
        return True

    def may_be_endless(self) -> bool:
        return self.age - self.last_endless >= BETWEEN_ENDLESS and len(self.world.sessions) > 2

    @precondition(lambda self: self.has_attached() and self.may_be_endless())
    @rule(number=which, how=st.sampled_from(ENDS))
    @counted
    def end_under_endless_kernel(self, number: int, how: str) -> None:
        self.last_endless = self.age
        end_under_endless_kernel(self.world, self.some(self.world.attached, number), how)
        self.world.check_shares()

    @precondition(has_attached)
    @rule(number=which, milli=shares)
    @counted
    def resize(self, number: int, milli: int) -> None:
        self.world.resize(self.some(self.world.attached, number), milli)
        self.world.check_shares()

    @precondition(lambda self: len(self.world.sessions) > 2)
    @rule(number=which, killed=st.booleans())
    @counted
    def close(self, number: int, killed: bool) -> None:
        self.world.close(self.some(self.world.sessions, number), killed=killed)
        self.world.check_shares()

    # ---- the network

    def has_wire(self) -> bool:
        return any(session.wire for session in self.world.sessions)

    @precondition(has_wire)
    @rule(number=which, steps=steps, seed=numbers, times=st.integers(1, 3))
    @counted
    def cut_network(self, number: int, steps: list[Step], seed: int, times: int) -> bool:
        """In the middle of work, if there is any: nothing is lost, and nothing is done twice."""
        session = self.some([session for session in self.world.sessions if session.wire], number)
        assert session.wire is not None
        if not session.attached:
            session.wire.disturb(seed, times)
            return True
        with ThreadPoolExecutor(1) as beside:
            working = beside.submit(self.work_of, session, lambda: session.work(steps * 8))
            session.wire.disturb(seed, times)
            return working.result()

    # ---- deaths

    @precondition(lambda self: len(self.world.sessions) > 2 and self.may_die())
    @rule(number=which, untold=rarely)
    @counted
    def kill_worker(self, number: int, untold: bool) -> None:
        self.last_death = self.age
        session = self.some(self.world.sessions, number)
        # Behind a proxy that answers for it a dead worker is found out only after a minute.
        told = not untold or session.wire is not None
        self.world.kill_worker(session, told=told)
        self.world.check_shares()

    @precondition(may_die)
    @rule(node=st.sampled_from(("a", "b")))
    @counted
    def kill_agent(self, node: str) -> None:
        self.last_death = self.age
        self.world.kill_agent(node)

    @precondition(may_die)
    @rule()
    @counted
    def kill_pool(self) -> None:
        self.last_death = self.age
        self.world.kill_pool()

    @precondition(may_die)
    @rule(number=which, milliseconds=st.integers(1, 300))
    @counted
    def freeze_worker(self, number: int, milliseconds: int) -> None:
        self.last_death = self.age
        self.world.freeze_worker(self.some(self.world.sessions, number), milliseconds / 1000)

    @precondition(lambda self: self.may_die() and not self.was_cut_off)
    @rule(node=st.sampled_from(("a", "b")), steps=steps, seed=numbers, really=very_rarely)
    @counted
    def cut_off_agent(self, node: str, steps: list[Step], seed: int, really: bool) -> bool:
        """Its workers fence themselves before the pool gives their shares away; the other node works on."""
        if not really or all(session.node != node for session in self.world.attached):
            return False
        self.last_death = self.age
        self.was_cut_off = True
        choice = random.Random(seed)

        def meanwhile() -> None:
            others = [session for session in self.world.attached if session.node != node]
            for _ in range(20):
                for session in others:
                    self.work_of(session, functools.partial(session.work, choice.sample(steps, 1)))

        self.world.cut_off_agent(node, meanwhile)
        self.world.check_shares()
        return True

    def teardown(self) -> None:
        """What is left is whole; then everything is given back."""
        if self.record.failure is not None or not hasattr(self, "age"):
            return
        began = time.monotonic()
        try:
            self.world.settle()
            for session in list(self.world.attached):
                # A worker may fence itself after the machine has settled, when its agent is slow to come back.
                self.work_of(session, session.check_all)
            self.world.close_all()
            self.world.check_shares()
        except BaseException as error:
            self.record.failed(error, self.world)
            raise
        self.record.fired["end"] += 1
        self.record.seconds["end"] += time.monotonic() - began

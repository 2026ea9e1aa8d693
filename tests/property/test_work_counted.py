"""Whatever programs run and however their leases and sessions end: what the history counts as used never goes back,
and is in the end the device time that workers had."""

from __future__ import annotations

import math

from gpupool.model import events
from gpupool.model.clock import Clock
from gpupool.model.history_amounts import Amounts
from gpupool.pool.reporting.use_meter import Bucket, UseMeter, merge
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.pool_world import PoolWorld, SimWorker

CLOCK = Clock(offset=0.0)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("run"), st.sampled_from((0.5, 3.0, 20.0, math.inf))),
        st.tuples(st.just("live"), st.sampled_from((1.0, 5.0, 30.0))),
        st.tuples(st.just("silence"), st.sampled_from((1.0, 8.0, 40.0))),
        st.tuples(st.sampled_from(("release", "reset", "resume", "reconnect")), st.just(0.0)),
    ),
    min_size=3,
    max_size=14,
)


class Counted:
    """A pool whose history is followed as the sampler does, and what its workers really did."""

    def __init__(self, stops: bool) -> None:
        self.world = PoolWorld(nodes={"node1": 1})
        self.world.connect()
        self.world.nodes["node1"].stops_kernels = stops
        self.meter = UseMeter(self.world.machine.state, self.now_ms())
        self.bucket: Bucket = {}
        self.workers: dict[int, SimWorker] = {}
        self.total = 0
        self._asked = 0

    def now_ms(self) -> int:
        return round(CLOCK.to_unix(self.world.now) * 1000)

    def look(self) -> None:
        """The history so far, which only grows."""
        for worker in self.world.nodes["node1"].workers.values():
            self.workers[id(worker)] = worker
        self.meter.look(self.world.machine.state, self.now_ms())
        merge(self.bucket, self.meter.until(self.now_ms() + 1))
        total = sum((amounts for amounts in self.bucket.values()), Amounts()).used_milli_ms
        assert total >= self.total
        self.total = total

    def attach(self, session_id: str = "") -> None:
        self._asked += 1
        self.world.request(f"k{self._asked}", 400, session_id=session_id)
        self.world.settle()
        self.look()

    def step(self, what: str, seconds: float) -> None:
        world, node = self.world, self.world.nodes["node1"]
        serving = [worker for worker in node.workers.values() if worker.serves(world.now)]
        live = [lease for lease in world.machine.state.leases.values() if lease.live]
        if what == "run" and serving:
            serving[0].runs(world.now, seconds)
        elif what == "live":
            for _ in range(math.ceil(seconds)):
                world.live(1.0)
                self.look()
        elif what == "silence":
            world.advance(seconds)
        elif what == "release" and live:
            world.release(live[0].id)
        elif what == "reset" and live:
            world.handle(events.SessionClosed(world.now, live[0].session_id, "reset"))
        elif what == "resume":
            parked = [
                s for s in world.machine.state.sessions.values() if s.state == "parked" and not s.lease_id
            ]
            self.attach(parked[0].id if parked else "")
        elif what == "reconnect":
            world.connect()
        world.settle()
        self.look()


@settings(max_examples=60, deadline=None)
@given(steps=STEPS, stops=st.booleans())
def test_what_is_counted_is_what_devices_did(steps: list[tuple[str, float]], stops: bool) -> None:
    pool = Counted(stops)
    pool.attach()
    pool.step("run", math.inf)
    for what, seconds in steps:
        pool.step(what, seconds)
    # All ends: what was under way is counted to its end.
    pool.world.connect()
    pool.world.settle()
    for session in list(pool.world.machine.state.sessions.values()):
        pool.world.handle(events.SessionClosed(pool.world.now, session.id, "reset"))
    pool.world.settle()
    pool.world.live(10.0)
    pool.look()
    did = sum(worker.device_seconds for worker in pool.workers.values())
    assert abs(pool.total / 1e6 - did) <= 0.02 * did + 0.001 * len(pool.workers)

"""Whatever is asked, given back, resized, emptied and cut off: what a project deserves is within its reach in the time of
a notice, none exceeds its limit, nothing protected is ever taken back, nothing is taken back without its notice or before
its time, no session is taken back twice for the same request, notices go when nobody needs them, and in the end everybody is
served."""

from __future__ import annotations

import os

from gpupool.model import events
from gpupool.model.instructions import TellRefused
from gpupool.model.state import LeaseRecord
from gpupool.pool.model.timers import Timers
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.support.pool_world import PoolWorld

NODES = ("node1", "node2")
PROJECTS = ("A", "B", "C/one", "C/two")
TIMERS = Timers(min_run=12.0, notice=10.0)
SIZES = st.sampled_from((100, 100, 200, 300, 500, 700, 1000))


class FairPool(RuleBasedStateMachine):
    @initialize(
        devices=st.sampled_from(((2, 1), (1, 1), (3, 0))),
        parts=st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(0, 4), st.integers(0, 4)),
        busy=st.lists(st.tuples(st.sampled_from(PROJECTS), SIZES), max_size=6),
        memory=st.sampled_from((0.25, 0.5, 1.0)),
        apart=st.sampled_from((0.0, 4.0)),
        above=st.tuples(*(st.sampled_from((None, None, 0, 300, 1000)) for _ in PROJECTS)),
    )
    def start(self, devices, parts, busy, memory, apart, above):
        self.world = PoolWorld(nodes=dict(zip(NODES, devices, strict=True)), timers=TIMERS)
        for node in self.world.nodes.values():
            node.park_memory_mib = 1_000_000
            node.fraction = memory
            if node.devices:
                self.world.connect(node.name)
        capacity = 10 * sum(devices)
        self.deserved = {}
        for path, part in zip(PROJECTS, parts, strict=True):
            self.deserved[path] = 100 * (capacity * part // max(sum(parts), 10))
        self.world.project("default", 0)
        self.world.project("C", self.deserved["C/one"] + self.deserved["C/two"])
        #: What a project never exceeds: so much above what it deserves.
        self.limits = {
            path: self.deserved[path] + more
            for path, more in zip(PROJECTS, above, strict=True)
            if more is not None
        }
        for path, deserved in self.deserved.items():
            self.world.project(path, deserved, limit=self.limits.get(path))
        self.asked = 0
        self.first_noticed: dict[str, float] = {}
        self.idle: set[str] = set()
        #: Of each ask, the sessions whose room was taken back for it while all nodes served.
        self.taken_for: dict[str, set[str]] = {}
        for project, milli in busy:
            self.request(project, milli)
            self.live(apart)
        self.live(TIMERS.min_run)

    # ---- what is watched

    def watch(self, happens) -> None:
        """Lets something happen step by step and checks each lease that it takes back."""
        original = self.world.machine.handle

        def handle(event):
            before = dict(self.world.machine.state.leases)
            protected = self.protected()
            done = original(event)
            for name, lease in before.items():
                now = self.world.machine.state.leases.get(name)
                if lease.live and now is not None and not now.live and now.reason in ("reclaim", "preempt"):
                    self.check_taken(lease, protected)
                if lease.live and now is not None and not now.live and now.reason == "consolidate":
                    assert lease.id not in protected or lease.kind != "guaranteed"
                    assert lease.id not in protected or lease.session_id in self.idle, (
                        "it computes, and has to move"
                    )
            self.check_notices()
            self.check_limits()
            return done

        self.world.machine.handle = handle
        try:
            happens()
        finally:
            self.world.machine.handle = original

    def protected(self) -> set[str]:
        """By the rule as people read it: the oldest of the highest priority, as far as the project deserves them."""
        found = set()
        live = [x for x in self.world.machine.state.leases.values() if x.live and not x.part]
        for path, deserved in self.deserved.items():
            here = [x for x in live if x.project == path]
            left = deserved - sum(self.milli(x) for x in here if x.kind == "guaranteed")
            for lease in sorted(here, key=lambda x: (-x.priority, x.granted_at, x.id)):
                if lease.kind == "guaranteed":
                    found.add(lease.id)
                elif lease.kind == "interactive" and self.milli(lease) <= left:
                    left -= self.milli(lease)
                    found.add(lease.id)
        return found

    def milli(self, lease: LeaseRecord) -> int:
        parts = self.world.machine.state.lease_parts(lease)
        return sum(share.milli for part in parts for share in part.taken())

    def check_taken(self, lease: LeaseRecord, protected: set[str]) -> None:
        now = self.world.now
        assert lease.id not in protected, f"lease {lease.id} was taken back, and is protected"
        assert lease.notice is not None, "taken back without a word"
        first = self.first_noticed[lease.gang or lease.id]
        assert now >= first + TIMERS.notice - 1e-6, "taken back before the notice was over"
        assert now >= lease.granted_at + TIMERS.min_run - 1e-6, "taken back before it had run its time"
        taken = self.taken_for.setdefault(lease.notice.for_request, set())
        assert lease.session_id not in taken, "what was taken back for a request went back to who had it"
        taken.add(lease.session_id)

    def check_notices(self) -> None:
        state = self.world.machine.state
        noticed = {x.gang or x.id for x in state.leases.values() if x.live and x.notice is not None}
        self.first_noticed = {name: self.first_noticed.get(name, self.world.now) for name in noticed}
        for lease in state.leases.values():
            if lease.live and lease.notice is not None and lease.notice.for_request:
                assert lease.notice.for_request in state.requests, "a notice for a request that is gone"

    def check_limits(self) -> None:
        for path, limit in self.limits.items():
            held = sum(self.milli(x) for x in self.leases() if x.live and not x.part and x.project == path)
            assert held <= limit, f"{path} holds {held} of at most {limit}"

    def live(self, seconds: float) -> None:
        self.watch(lambda: self.world.live(seconds))

    # ---- what happens

    def request(self, project, milli, **more) -> str:
        self.asked += 1
        key = f"k{self.asked}"
        more.setdefault("user", f"u-{project}")
        self.watch(lambda: self.world.request(key, milli, project=project, wait=None, **more))
        self.watch(self.world.settle)
        return key

    @rule(
        project=st.sampled_from(PROJECTS),
        milli=SIZES,
        kind=st.sampled_from(("interactive", "interactive", "preemptible", "guaranteed")),
        priority=st.sampled_from((None, None, 10, 200)),
        duration=st.sampled_from((0.0, 0.0, 15.0)),
        count=st.sampled_from((1, 1, 1, 2)),
    )
    def ask(self, project, milli, kind, priority, duration, count):
        self.request(project, milli, kind=kind, priority=priority, duration=duration, count=count)

    @rule(index=st.integers(0, 20))
    def somebody_gives_back(self, index):
        live = [x for x in self.world.machine.state.leases.values() if x.live]
        if live:
            self.watch(lambda: self.world.release(live[index % len(live)].id))
            self.watch(self.world.settle)

    @rule(index=st.integers(0, 20))
    def somebody_leaves_the_queue(self, index):
        requests = list(self.world.machine.state.requests.values())
        if requests:
            request = requests[index % len(requests)]
            self.watch(lambda: self.world.handle(events.Cancelled(self.world.now, request.user, request.key)))

    @rule(index=st.integers(0, 20), milli=SIZES)
    def somebody_resizes(self, index, milli):
        live = [x for x in self.world.machine.state.leases.values() if x.state == "attached"]
        if live:
            name = live[index % len(live)].id
            self.watch(lambda: self.world.handle(events.Resized(self.world.now, name, milli, None)))
            self.watch(self.world.settle)

    @rule(index=st.integers(0, 20))
    def a_parked_session_goes_on(self, index):
        parked = [x for x in self.world.machine.state.sessions.values() if x.state == "parked" and not x.part]
        if parked:
            session = parked[index % len(parked)]
            if not any(
                request.session_id == session.id for request in self.world.machine.state.requests.values()
            ):
                self.asked += 1
                self.watch(
                    lambda: self.world.request(
                        f"k{self.asked}", 200, user=session.user, session_id=session.id, wait=None
                    )
                )
                self.watch(self.world.settle)

    @rule(index=st.integers(0, 3))
    def most_stop_to_compute(self, index):
        for node in self.world.nodes.values():
            for number, worker in enumerate(node.workers.values()):
                worker.idle_since = None if number == index else worker.idle_since or self.world.now
                (self.idle.discard if number == index else self.idle.add)(worker.session)

    @rule()
    def all_who_lost_their_room_ask_again(self):
        """As holders do: for what they had."""
        state = self.world.machine.state
        asked = {request.session_id for request in state.requests.values()}
        sessions = {name for taken in self.taken_for.values() for name in taken} - asked
        for session in [state.sessions[name] for name in sorted(sessions)]:
            if session.state == "parked" and not session.part:
                last = [x for x in state.leases.values() if x.session_id == session.id and not x.live][-1]
                self.request(
                    last.project,
                    last.shares[0].milli,
                    user=session.user,
                    session_id=session.id,
                    kind=last.kind,
                )

    @rule(seconds=st.sampled_from((1.0, 5.0, 12.0, 30.0)))
    def time_passes(self, seconds):
        self.live(seconds)

    @rule(evict=st.booleans(), name=st.sampled_from(NODES))
    def a_node_is_emptied_for_a_while(self, evict, name):
        world = self.world
        self.taken_for.clear()
        for drained in (True, False):
            self.watch(
                lambda drained=drained: world.handle(
                    events.NodeDrained(world.now, name, drained, "", "root", evict and drained)
                )
            )
            self.live(4.0)

    @rule(name=st.sampled_from(NODES))
    def a_node_is_cut_off_for_a_moment(self, name):
        self.taken_for.clear()
        if self.world.nodes[name].devices:
            self.watch(lambda: self.world.disconnect(name))
            self.live(3.0)
            self.watch(lambda: self.world.connect(name))
            self.watch(self.world.settle)

    # ---- what is promised in the end

    def teardown(self):
        if not hasattr(self, "world"):
            return
        self.everybody_leaves_the_queue()
        self.live(TIMERS.suspect)
        for path in PROJECTS:
            self.reaches_what_it_deserves(path)
        self.nobody_starves()

    def everybody_leaves_the_queue(self):
        for request in list(self.world.machine.state.requests.values()):
            self.watch(
                lambda request=request: self.world.handle(
                    events.Cancelled(self.world.now, request.user, request.key)
                )
            )
        assert not any(x.live and x.notice is not None and x.notice.for_request for x in self.leases())

    def leases(self):
        return self.world.machine.state.leases.values()

    def reaches_what_it_deserves(self, path):
        """In shares of the smallest size, so that it is a matter of quota and not of where they lie."""
        held = sum(share.milli for x in self.leases() if x.live and x.project == path for share in x.taken())
        keys = [self.request(path, 100) for _ in range((self.deserved[path] - held) // 100)]
        self.live(max(TIMERS.notice, TIMERS.min_run) + 8.0)
        waiting = {request.key for request in self.world.machine.state.requests.values()}
        assert not waiting & set(keys), f"{path} does not get what it deserves"

    def nobody_starves(self):
        """Large requests and small ones, of all projects: when every lease ends, each is served."""
        keys = [self.request(p, m, duration=20.0) for m in (1000, 300, 100) for p in PROJECTS]
        refused = {x.key for x in self.world.told if isinstance(x, TellRefused)}
        for _ in range(40):
            for lease in [x for x in self.leases() if x.live and x.ends_at is None and not x.part]:
                self.watch(lambda lease=lease: self.world.release(lease.id))
            self.live(21.0)
            waiting = {request.key for request in self.world.machine.state.requests.values()} & set(
                keys
            ) - refused
            if not waiting:
                return
        raise AssertionError(f"never served: {sorted(waiting)}")


TestFairPool = FairPool.TestCase
TestFairPool.settings = settings(
    max_examples=int(os.environ.get("GPUPOOL_FAIR_STORIES", "3")),
    stateful_step_count=12,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate] if os.environ.get("GPUPOOL_FAIR_STORIES") else list(Phase),
)

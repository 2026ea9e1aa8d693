"""The pool's own machine, driven through a trace in virtual time.

It is the machine that serves real pools, with nodes that obey at once (`replay_nodes`) and holders that give back what they
have when their time is over. A holder whose lease was taken back asks again with its session, as real holders do, and
goes on with what is left of its work. No clock is read, so a replay says the same each time.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from gpupool.model import events, instructions
from gpupool.model.state import LimitRecord, ProjectRecord, State, key_of
from gpupool.pool.lifecycle.machine import Machine
from gpupool.pool.model.consolidation import Consolidation
from gpupool.pool.model.step import Ids
from gpupool.pool.model.timers import Timers
from gpupool.scheduler.model import Quota
from gpupool.scheduler.placement import DEFAULT_POLICY
from gpupool.scheduler.pool_view import Promise
from gpupool.simulation.replay_growth import Elastic, Growth
from gpupool.simulation.replay_meter import Meter
from gpupool.simulation.replay_nodes import NodeShape, ReplayNodes
from gpupool.simulation.replay_trace import Task

#: Nobody is ever late in a replay: agents and holders are heard all the time, without a word of theirs being simulated.
_NEVER = 1e12
#: The machine's time when the trace begins.
_START = 1000.0


def replay_timers() -> Timers:
    """The pool's timers, without those that watch over processes, or tell places to people who are not there."""
    plain = Timers()
    return Timers(
        holder=_NEVER, claim=_NEVER, suspect=_NEVER, fence=_NEVER, reuse=2 * _NEVER, start=_NEVER, transfer=_NEVER,
        park=_NEVER, client_gone=_NEVER, image_kept=_NEVER, stall=_NEVER, remember=0.0,
        notice=plain.notice, min_run=plain.min_run, keep_place=plain.keep_place, half_life=plain.half_life,
        park_retry=plain.park_retry, tick=_NEVER,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Rules:
    """What a pool decides by.

    Attributes:
        policy: the placement policy.
        consolidate: which leases go on elsewhere for a request that fits nowhere. Nobody is idle in a replay.
        hints: every holder says how long it will take, as with ``--for``.
        patience: seconds after which a waiting holder gives up; None: never.
        tick: seconds of virtual time between two looks at the timers while somebody waits.
        elastic: nodes that may be borrowed; None: none.
        says: whether somebody reads why tasks wait; a long replay takes a fifth less without words.
    """

    policy: str = DEFAULT_POLICY
    consolidate: Consolidation = Consolidation.IDLE
    quotas: Mapping[str, Quota] = field(default_factory=dict)
    projects: tuple[ProjectRecord, ...] = ()
    limits: tuple[LimitRecord, ...] = ()
    timers: Timers = field(default_factory=replay_timers)
    hints: bool = False
    patience: float | None = None
    tick: float = 30.0
    elastic: Elastic | None = None
    says: bool = True


@dataclass(slots=True)
class Fate:
    """What became of a task. Times are the trace's.

    Attributes:
        waited: seconds until its first shares; None: it never got any.
        refused: reason id; empty: it was not.
        waited_again: seconds that it waited after a lease was taken back.
        taken_back: how often that happened.
        lease_id: what it holds now.
        since: when it was granted that, or began to ask.
    """

    task: Task
    left: float
    waited: float | None = None
    refused: str = ""
    explanation: str = ""
    waited_again: float = 0.0
    taken_back: int = 0
    lease_id: str = ""
    session_id: str = ""
    since: float = 0.0
    requests: int = 0


class Replay:
    """One pool and one trace; :meth:`run` once."""

    def __init__(
        self, shapes: Sequence[NodeShape], tasks: Sequence[Task], rules: Rules, meter: Meter
    ) -> None:
        sessions, leases = itertools.count(1), itertools.count(1)
        ids = Ids(
            lambda: f"s{next(sessions)}", lambda: f"l{next(leases)}", lambda: "00" * 32, itertools.count(1)
        )
        # Nobody reads what would help.
        self.machine = Machine(
            State(), rules.timers, ids, rules.quotas, rules.policy, rules.consolidate,
            advises=False, says=rules.says,
        )  # fmt: skip
        self.fates = [Fate(task, task.seconds) for task in tasks]
        self.meter = meter
        #: Lines of the journal by kind, and the reasons of leases that ended.
        self.happened: Counter[str] = Counter()
        self.handled = 0
        self._rules = rules
        self._nodes = ReplayNodes(tuple(shapes))
        self._waiting: dict[str, Fate] = {}
        self._holding: dict[str, Fate] = {}
        self._finishes: list[tuple[float, int, str]] = []
        self._wakes: list[float] = []
        self._order = itertools.count()
        self._now = 0.0
        self._ticked = 0.0
        self._asking_again: deque[Fate] = deque()
        self.growth = None if rules.elastic is None else Growth(rules.elastic, self)

    def run(self) -> None:
        """Until every task has had its shares or was refused; those that still run then are left running."""
        self._start()
        arrivals = deque(self.fates)
        while arrivals or self._waiting:
            at = min(
                arrivals[0].task.at if arrivals else _NEVER,
                self._finishes[0][0] if self._finishes else _NEVER,
                self._wakes[0] if self._wakes else _NEVER,
                self._ticked + self._rules.tick if self._waiting else _NEVER,
                self._look_at(),
            )
            if at >= _NEVER:
                raise RuntimeError(f"{len(self._waiting)} tasks wait, and nothing will ever happen")
            self._advance(max(at, self._now))
            while self._finishes and self._finishes[0][0] <= self._now:
                self._finish(heapq.heappop(self._finishes)[2])
            while arrivals and arrivals[0].task.at <= self._now:
                self._ask(arrivals.popleft())
            self._settle()
            if self.growth is not None and self._look_at() <= self._now:
                self.growth.look()
                self._settle()

    def _look_at(self) -> float:
        """When borrowed nodes are looked after next: while somebody waits for some, or has them."""
        if self.growth is None or not (self._waiting or self.growth.living):
            return _NEVER
        return self.growth.next_at - _START

    def _start(self) -> None:
        self._handle(events.Restarted(self._time()))
        for hello in self._nodes.hellos(self._time()):
            self._handle(hello)
        for project in self._rules.projects:
            self._handle(events.ProjectSet(self._time(), project, "replay"))
        for limit in self._rules.limits:
            self._handle(events.LimitSet(self._time(), limit, "replay"))

    def _time(self) -> float:
        return _START + self._now

    def _advance(self, at: float) -> None:
        borrowed = 0 if self.growth is None else self.growth.devices
        self.meter.advance(self._now, at, len(self._waiting), borrowed)
        self._now = at
        woken = False
        while self._wakes and self._wakes[0] <= at:
            heapq.heappop(self._wakes)
            woken = True
        # As `run` works it out: the difference may be less than the tick by a rounding, and then nothing would ever happen.
        if woken or at >= self._ticked + self._rules.tick:
            self._ticked = at
            self._handle(events.Tick(self._time()))

    # ---- what borrowed nodes need: `replay_growth.GrowingReplay`

    @property
    def state(self) -> State:
        return self.machine.state

    def now(self) -> float:
        return self._time()

    def apply(self, event: events.Event) -> None:
        self._handle(event)

    def promise(self, promised: Sequence[Promise]) -> None:
        self.machine.view.promised = tuple(promised)
        self.machine.queue.changed()

    def comes(self, shape: NodeShape) -> None:
        self._handle(self._nodes.add(shape, self._time()))

    def goes(self, node: str) -> None:
        self._handle(events.NodeDisconnected(self._time(), node, self._nodes.remove(node)))
        # It has nothing left, and the engine's word is true here: nobody need wait until it is lost.
        self.machine.state.nodes[node] = replace(self.machine.state.nodes[node], lost=True)
        self.machine.state.commit()

    # ---- holders

    def _ask(self, fate: Fate) -> None:
        task = fate.task
        fate.requests += 1
        fate.since = self._now
        key = f"{task.name}#{fate.requests}"
        self._waiting[key_of(task.user, key)] = fate
        self._handle(
            events.Requested(
                self._time(), task.user, key, task.milli, task.mib, task.count, fate.session_id,
                wait=self._rules.patience, duration=fate.left if self._rules.hints else 0.0,
                project=task.project, kind=task.kind, priority=task.priority,
            )
        )  # fmt: skip

    def _granted(self, told: instructions.TellGranted) -> None:
        fate = self._waiting.pop(key_of(told.user, told.key), None)
        if fate is None:
            return
        waited = self._now - fate.since
        if fate.waited is None:
            fate.waited = waited
        else:
            fate.waited_again += waited
        fate.since = self._now
        fate.lease_id = told.lease_id
        fate.session_id = self.machine.state.leases[told.lease_id].session_id
        self._holding[told.lease_id] = fate
        heapq.heappush(self._finishes, (self._now + fate.left, next(self._order), told.lease_id))

    def _refused(self, told: instructions.TellRefused) -> None:
        fate = self._waiting.pop(key_of(told.user, told.key), None)
        if fate is not None:
            fate.refused, fate.explanation = told.reason, told.explanation

    def _finish(self, lease_id: str) -> None:
        fate = self._holding.pop(lease_id, None)
        if fate is None:
            return  # it was taken back before
        fate.left, fate.lease_id = 0.0, ""
        self._handle(events.Released(self._time(), lease_id, "exit", close_session=True))

    def _ended(self, lease_id: str, reason: str) -> None:
        """A lease is over without its holder having given it back: the holder asks again, if it has work left."""
        fate = self._holding.pop(lease_id, None)
        if fate is None:
            return
        fate.left -= self._now - fate.since
        fate.lease_id = ""
        if fate.left <= 0:
            return
        fate.taken_back += 1
        self.happened[f"taken back: {reason}"] += 1
        self._asking_again.append(fate)

    # ---- the machine

    def _settle(self) -> None:
        """Holders whose leases were taken back ask again, in that order."""
        while self._asking_again:
            self._ask(self._asking_again.popleft())

    def _handle(self, event: events.Event) -> None:
        """One event, and the answers of the nodes to what it brought about."""
        todo = deque([event])
        while todo:
            done = self.machine.handle(todo.popleft())
            self.handled += 1
            self._see_changes()
            self.machine.state.commit()
            for item in done:
                match item:
                    case instructions.Journal():
                        self.happened[item.kind] += 1
                        if item.kind == "notice":
                            todo.append(events.Renewed(self._time(), (item.lease_id,)))
                    case instructions.TellGranted():
                        self._granted(item)
                    case instructions.TellRefused():
                        self._refused(item)
                    case _:
                        answer = self._nodes.obey(item, self._time())
                        if answer is not None:
                            todo.append(answer)

    def _see_changes(self) -> None:
        """What the step has done to leases and sessions, before it is forgotten."""
        for lease_id, (before, lease) in self.machine.state.leases.changes().items():
            held = lease.taken() if lease is not None and lease.holds else ()
            self.meter.hold(lease_id, held)
            if lease is not None and lease.notice is not None and (before is None or before.notice is None):
                heapq.heappush(self._wakes, lease.notice.until - _START)
            if before is not None and before.live and (lease is None or not lease.live):
                self._ended(lease_id, before.reason if lease is None else lease.reason)
        for before_session, session in self.machine.state.sessions.changes().values():
            if (
                session is not None
                and session.kept_place
                and not (before_session and before_session.kept_place)
            ):
                heapq.heappush(self._wakes, session.kept_until - _START)

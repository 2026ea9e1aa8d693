"""The life cycle of the pool as a pure state machine: events in, instructions out, no I/O, no clock.

States of a lease::

    starting ──worker serves──► attached ──release, deadline, lost──► releasing ──► ended
        └──────cancelled, worker failed──────────────────────────────────┘

`releasing` ends when the worker confirms or exits, or when the fence time has passed for sure; only then
is the share free. States of a session: `starting → attached → parked → starting → …`, `lost` while its node
is, and `closed` for good.

Where the memory of a parked session lies is beside that: `device ──room is needed──► host ──► image`, and back when
it goes on, on the same or on another device (`parking_rules`). A session whose lease is `starting` on another
node is on its way there (`lease_rules.attach`).

Shares on several nodes are several leases and sessions, tied together by `gang_rules`.
"""

from __future__ import annotations

from collections.abc import Mapping

from gpupool.model import events
from gpupool.model.instructions import Instruction
from gpupool.model.state import State
from gpupool.pool.leases import (
    budget_rules,
    gang_rules,
    lease_rules,
    leaving_rules,
    notice_rules,
    parking_rules,
    resize_rules,
    timer_rules,
)
from gpupool.pool.model.consolidation import Consolidation
from gpupool.pool.model.live_view import LiveView
from gpupool.pool.model.queue_memory import QueueMemory
from gpupool.pool.model.step import Ids, Step
from gpupool.pool.model.timers import Timers
from gpupool.pool.nodes import node_rules
from gpupool.pool.projects import accounts, limit_rules, project_rules
from gpupool.pool.queue import queue_rules, request_rules
from gpupool.records import replace
from gpupool.scheduler.model import Quota
from gpupool.scheduler.placement import DEFAULT_POLICY, Policy
from gpupool.sentences import say


class Machine:
    """Owns the state; :meth:`handle` is the only way to change it.

    After each :meth:`handle` the caller stores the step (``state`` tables know their changes) and calls
    ``state.commit()``, or ``state.rollback()`` when it could not be stored: then nothing happened.
    """

    def __init__(
        self,
        state: State,
        timers: Timers,
        ids: Ids,
        quotas: Mapping[str, Quota] | None = None,
        policy: str = DEFAULT_POLICY,
        consolidate: Consolidation = Consolidation.IDLE,
        *,
        advises: bool = True,
        says: bool = True,
    ) -> None:
        self.state = state
        self.view = state.live_view = LiveView(state, timers, policy)
        self.timers = timers
        self.ids = ids
        self.quotas: Mapping[str, Quota] = dict(quotas or {})
        self.consolidate = consolidate
        self._advises, self._says = advises, says
        self.queue = QueueMemory()
        self.last_tick: float | None = None
        #: How long everything stood still before, seconds: a tick that made up for it could not be stored. A stall often
        #: comes with a ledger that does not answer.
        self.owed = 0.0
        self._made_up = 0.0

    @property
    def policy(self) -> Policy:
        """Where shares are placed; it may have learned something new after each event."""
        return self.view.policy

    def handle(self, event: events.Event) -> list[Instruction]:
        """Applies one event and returns what must be done, in order."""
        self.view.learn()
        step = self.step(event.now)
        if isinstance(event, events.FromNode) and not self._is_current(event):
            return []
        match event:
            case events.Requested():
                request_rules.requested(step, event)
            case events.Cancelled():
                request_rules.cancelled(step, event)
            case events.Renewed():
                self._renewed(step, event)
            case events.Released():
                self._released(step, event)
            case events.Resized():
                resize_rules.resized(step, event)
            case events.SessionClosed():
                session = self.state.sessions.get(event.session_id)
                if session is not None:
                    lease_rules.close_session(step, session, event.reason)
            case events.Tick():
                self._tick(step)
            case events.Restarted():
                timer_rules.restarted(step, event.served_until)
            case events.NodeHello():
                node_rules.hello(step, event)
            case events.NodeHeartbeat():
                node_rules.heartbeat(step, event)
            case events.NodeLeaving():
                leaving_rules.told(step, event)
            case events.NodeDisconnected():
                node_rules.disconnected(step, event)
            case events.WorkerStarted():
                node_rules.worker_started(step, event)
            case events.WorkerFailed():
                node_rules.worker_failed(step, event)
            case events.WorkerExited():
                node_rules.worker_exited(step, event)
            case events.LeaseApplied():
                node_rules.lease_applied(step, event)
            case events.MemoryParked():
                parking_rules.answered(step, event)
            case events.LimitSet():
                limit_rules.limit_set(step, event)
            case events.LimitRemoved():
                limit_rules.limit_removed(step, event)
            case events.NodeDrained():
                notice_rules.node_drained(step, event)
            case events.NodeForgotten():
                timer_rules.node_forgotten(step, event)
            case events.PoolGrows():
                queue_rules.grows(step, event)
            case events.QuotasNear():
                _quotas_near(step, event)
            case events.ProjectSet():
                project_rules.project_set(step, event)
            case events.ProjectRemoved():
                project_rules.project_removed(step, event)
            case _:
                raise TypeError(f"the machine knows no event {type(event).__name__}")
        gang_rules.settle(step)
        if step.reschedule:
            queue_rules.schedule(step)
        if isinstance(event, events.Tick):
            self._end_of_notices(step)
        accounts.follow(step)
        if isinstance(event, events.Tick):
            accounts.forget_unused(step)
        return step.out

    def step(self, now: float) -> Step:
        """What rules work with at `now`; :meth:`handle` makes its own."""
        return Step(
            self.state,
            self.timers,
            self.quotas,
            self.ids,
            now,
            queue=self.queue,
            consolidate=self.consolidate,
            advises=self._advises,
            says=self._says,
        )

    def stored(self) -> None:
        """What was handled is in the ledger."""
        self._made_up = 0.0

    def taken_back(self) -> None:
        """What was handled since :meth:`stored` is not in the ledger, and the state is as before."""
        self.owed, self._made_up = self.owed + self._made_up, 0.0

    def _end_of_notices(self, step: Step) -> None:
        """Whose notice is over is judged once more, then taken back."""
        if not notice_rules.any_due(step):
            return
        queue_rules.schedule(step)
        notice_rules.expire(step)
        gang_rules.settle(step)
        queue_rules.schedule(step)

    def _is_current(self, event: events.FromNode) -> bool:
        """A superseded stream may still deliver; what it says is out of date."""
        node = self.state.nodes.get(event.node)
        return node is not None and node.connection == event.connection

    def _tick(self, step: Step) -> None:
        last, self.last_tick = self.last_tick, step.now
        still, self.owed = self.owed, 0.0
        if last is not None and step.now - last > self.timers.stall:
            still += step.now - last
        if still:
            timer_rules.stood_still(step, still)
            self._made_up += still
        timer_rules.tick(step)
        budget_rules.tick(step)
        leaving_rules.tick(step)
        step.reschedule = step.reschedule or queue_rules.looks_again(step)

    def _renewed(self, step: Step, event: events.Renewed) -> None:
        """Extends attached leases; one that is over stays over."""
        for lease_id in event.lease_ids:
            lease = self.state.leases.get(lease_id)
            if lease is not None and lease.state == "attached" and lease.part == 0:
                renew_by = None if lease.reservation else step.now + self.timers.holder
                self.state.leases[lease_id] = replace(lease, renew_by=renew_by)
                notice_rules.heard(step, lease)

    def _released(self, step: Step, event: events.Released) -> None:
        lease = self.state.leases.get(event.lease_id)
        if lease is not None:
            why = f"the holder gave it back ({event.reason})"
            # A holder that waits for its start is not to ask for another: it was ended on purpose.
            lease_rules.begin_release(
                step, lease, event.reason, why, close=event.close_session, refusal="released"
            )


def _quotas_near(step: Step, event: events.QuotasNear) -> None:
    """Nothing follows from it but that it is said."""
    for kind, alerts in (("alert", event.near), ("alert-over", event.over)):
        for alert in alerts:
            user = alert.name if alert.subject == "user" else ""
            said = alert.said() if kind == "alert" else say("alert.over", of=alert.said())
            step.journal(kind, said, user=user, data=alert.data())

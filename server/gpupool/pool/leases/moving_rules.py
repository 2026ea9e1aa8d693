"""Sessions between two nodes: the lease is `starting` on the new one, the session still is of the old one.

The new worker has fetched nothing, something or all of the session, and nobody was told of it. So until its node says
that it runs (`lease_rules.attach` then makes it the session's), whatever goes wrong leaves the session parked where
it was. When the old worker ends meanwhile, the new one may have everything already: only its own failure loses the
session. After the take-over the old worker is `left`: it is ended, and what it keeps counts until that is confirmed.
"""

from __future__ import annotations

from dataclasses import replace

from gpupool.model import events
from gpupool.model.state import LeaseRecord, LeftWorker, SessionRecord
from gpupool.pool.leases import lease_rules
from gpupool.pool.model import messages
from gpupool.pool.model.exits import how_ended
from gpupool.pool.model.step import Step


def moving_lease(step: Step, session: SessionRecord) -> LeaseRecord | None:
    """The lease of a session that is on its way to another node, or that is being taken back there."""
    lease = step.state.lease_of_session(session)
    if lease is None or lease.new_session or lease.node == session.node:
        return None
    return lease


def is_new_worker(step: Step, session: SessionRecord, node: str, epoch: int) -> bool:
    """Whether this is the worker that is to take over the session."""
    lease = moving_lease(step, session)
    return lease is not None and lease.state == "starting" and (lease.node, lease.epoch) == (node, epoch)


def new_worker_ended(step: Step, session: SessionRecord, node: str, epoch: int | None, why: str) -> bool:
    """The worker that was to take over did not start, or has ended; whether it was that one."""
    lease = moving_lease(step, session)
    if lease is None or lease.node != node or epoch not in (None, lease.epoch):
        return False
    if lease.live:
        lease_rules.start_failed(step, lease, why, confirmed=True)
    elif lease.holds:
        lease_rules.end(step, lease, why)
    return True


def worker_exited(step: Step, session: SessionRecord, event: events.WorkerExited) -> bool:
    """One of the two workers of a session between two nodes has ended; False: it has but one."""
    if session.left is not None and session.left.node == event.node:
        step.state.sessions[session.id] = replace(session, left=None)
        step.reschedule = True
        step.journal(
            "left-ended", f"the worker that session {session.id} left on node {event.node} has ended",
            user=session.user, session_id=session.id, node=event.node,
        )  # fmt: skip
        return True
    detail = f" ({event.reason})" if event.reason else ""
    why = f"the new worker of session {session.id} ended on node {event.node} {how_ended(event.exit_status)}{detail}"
    if new_worker_ended(step, session, event.node, None, why):
        return True
    return session.node == event.node and source_ended(step, session)


def source_ended(step: Step, session: SessionRecord) -> bool:
    """The old worker is gone; whether a new one is being started that may have everything already."""
    lease = moving_lease(step, session)
    if lease is None or not lease.live:
        return False
    if not session.source_gone:
        step.state.sessions[session.id] = replace(session, source_gone=True)
        step.journal(
            "source-ended", f"the old worker of session {session.id} ended while it moves to node {lease.node}",
            user=session.user, session_id=session.id, node=session.node,
        )  # fmt: skip
    return True


def hello(step: Step, node: str, reported: dict[str, events.ReportedWorker], same_agent: bool) -> None:
    """A node is there again: workers on it of sessions that were on their way to it, or have left it.

    Takes those that need nothing more out of `reported`; the rest are strays, to be ended.
    """
    state = step.state
    here = {lease.session_id for lease in state.leases_of_node(node)}
    here.update(session.id for session in state.index.sessions_left_on.of(node))
    here.update(name for name in reported if name in state.sessions)
    for session in [state.sessions[name] for name in sorted(here, key=state.sessions.place)]:
        worker = reported.get(session.id)
        lease = moving_lease(step, session)
        if lease is not None and lease.node == node:
            if lease.state == "starting" and worker is not None and worker.epoch == lease.epoch:
                del reported[session.id]
                lease_rules.attach(step, session, lease, worker.address)
            elif lease.state == "starting" and worker is None and same_agent:
                # The order may have been lost with the old stream; an agent that has obeyed knows the worker.
                number = messages.start_worker(step, session, lease)
                step.state.leases[lease.id] = replace(lease, covered_at=step.now, confirm_request=number)
            elif lease.state == "starting":
                why = f"the agent of node {node} ended while it fetched session {session.id}"
                lease_rules.start_failed(step, lease, why, confirmed=False)
        elif session.node != node and session.state != "closed" and not session.worker_gone:
            _left(step, session, node, worker)


def _left(step: Step, session: SessionRecord, node: str, worker: events.ReportedWorker | None) -> None:
    if worker is not None and session.left is None:
        mib = tuple(-(-used // (1024 * 1024)) for used in worker.usage.memory_used)
        left = LeftWorker(node, worker.place, worker.device_ids, mib)
        step.state.sessions[session.id] = replace(session, left=left)
    elif worker is None and session.left is not None and session.left.node == node:
        step.state.sessions[session.id] = replace(session, left=None)

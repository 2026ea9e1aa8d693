"""What the passing of time does: silent nodes, holders that went away, deadlines, fences."""

from __future__ import annotations

from dataclasses import replace

from gpupool.model import events
from gpupool.model.instructions import DropNode
from gpupool.model.state import LeaseRecord, NodeRecord, Notice, SessionRecord, key_of
from gpupool.pool.leases import lease_rules, parking_rules
from gpupool.pool.model.holds import holds_of_session
from gpupool.pool.model.step import Step
from gpupool.pool.projects import accounts, live_holdings


def restarted(step: Step, served_until: float | None = None) -> None:
    """Starts all timers anew after a restart of the pool.

    The last heartbeat may have been answered just before the pool died, so every share that is held
    counts as covered now: that can only keep it longer than needed. Whoever waited for a lease that was
    starting has lost the connection and must ask again, for a reservation too. Those that wait in the queue keep their
    places; the queue is looked at when the nodes of before are back, or had the time to come (`queue_rules`).

    Args:
        step: the step of the machine that this is part of.
        served_until: see `events.Restarted`; from then on nobody has used anything.
    """
    state = step.state
    step.queue.began_at = step.now
    _no_times_ahead(step)
    if served_until is not None:
        for lease in state.index.holding.records():
            accounts.not_served(step, lease, served_until)
    for node in list(state.nodes.values()):
        state.nodes[node.name] = replace(node, connection=None, last_answered=step.now)
    for lease in state.index.holding.records():
        state.leases[lease.id] = replace(
            lease,
            covered_at=step.now,
            since=step.now,
            renew_by=step.now + step.timers.holder if _needs_its_holder(lease) else None,
            notice=None if lease.notice is None else _heard_again(step, lease.notice),
        )
    for session in [s for s in state.sessions.values() if s.state == "lost"]:
        state.sessions[session.id] = replace(session, gone_since=step.now)


def _no_times_ahead(step: Step) -> None:
    """What happened before happened by now. The clock may have been ahead when it was written, on another machine, say.

    A lease of the future would be protected until then, a request would wait behind all others, and a window would last.
    """
    state, now = step.state, step.now
    for account in [a for a in state.accounts.values() if max(a.as_of, a.window_from or 0.0) > now]:
        begins = _by(now, account.window_from)
        state.accounts[account.id] = replace(account, window_from=begins, as_of=min(account.as_of, now))
    for lease in [x for x in state.leases.values() if max(x.granted_at, x.ended_at or 0.0) > now]:
        ahead = max(0.0, lease.granted_at - now)
        ends_at = None if lease.ends_at is None else lease.ends_at - ahead
        ended_at = _by(now, lease.ended_at)
        state.leases[lease.id] = replace(
            lease, granted_at=lease.granted_at - ahead, ends_at=ends_at, ended_at=ended_at
        )
    for request in [x for x in state.requests.values() if x.since > now]:
        give_up_at = None if request.give_up_at is None else request.give_up_at - (request.since - now)
        state.requests[request.id] = replace(request, since=now, give_up_at=give_up_at)
    for session in [x for x in state.sessions.values() if max(x.parked_at or 0.0, x.closed_at or 0.0) > now]:
        parked_at, closed_at = _by(now, session.parked_at), _by(now, session.closed_at)
        state.sessions[session.id] = replace(session, parked_at=parked_at, closed_at=closed_at)


def _by(now: float, moment: float | None) -> float | None:
    return None if moment is None else min(moment, now)


def _heard_again(step: Step, notice: Notice) -> Notice:
    """A holder that could not hear of its end while nobody served has a moment to hear of it."""
    return replace(notice, until=max(notice.until, step.now + step.timers.return_))


def _needs_its_holder(lease: LeaseRecord) -> bool:
    """Of a gang the first part answers to the holder for all."""
    return lease.part == 0 and (lease.state == "starting" or (lease.live and not lease.reservation))


def stood_still(step: Step, gap: float) -> None:
    """The pool itself did not run for `gap` seconds: nobody could renew, so nobody is late."""
    state = step.state
    for node in list(state.nodes.values()):
        state.nodes[node.name] = replace(node, last_answered=node.last_answered + gap)
    for lease in [lease for lease in state.index.holding.records() if lease.live]:
        renew_by = None if lease.renew_by is None else lease.renew_by + gap
        notice = None if lease.notice is None else replace(lease.notice, until=lease.notice.until + gap)
        state.leases[lease.id] = replace(lease, renew_by=renew_by, since=lease.since + gap, notice=notice)
    step.journal("stall", f"the pool stood still for {gap:.1f} s; holders get that time on top")


def tick(step: Step) -> None:
    """Whatever is due by now, in a fixed order: nodes, leases, sessions, then what is forgotten."""
    state = step.state
    for node in list(state.nodes.values()):
        _node_time(step, node)
    for lease in state.index.holding.records():
        if lease.live:
            _lease_time(step, lease)
    for lease in state.index.holding.records():
        if (
            lease.state == "releasing"
            and step.now >= lease.covered_at + step.timers.reuse
            and not _drains(step, lease)
        ):
            lease_rules.fenced(step, lease)
    parking_rules.tick(step)
    for session in state.index.unattached.records():
        if _client_is_gone(step, session):
            lease_rules.close_session(step, session, "lost")
    if state.index.give_up.until(step.now):
        step.reschedule = True
    _forget(step)
    state.index.follow()
    live_holdings.of(state).follow()


def _node_time(step: Step, node: NodeRecord) -> None:
    """After `reuse` seconds of silence the node is lost; its workers have fenced themselves by then."""
    silent = step.now - node.last_answered
    if silent > step.timers.suspect and not node.lost:
        step.reschedule = True
    if node.lost or silent < step.timers.reuse:
        return
    state = step.state
    state.nodes[node.name] = replace(node, lost=True, connection=None)
    if node.connection is not None:
        step.do(DropNode(node.name, node.connection))
    why = f"node {node.name} has not answered for {silent:.0f} s"
    step.journal("node-lost", why, node=node.name)
    for lease in state.leases_of_node(node.name):
        lease_rules.begin_release(step, lease, "lost", why)
    for session in [s for s in state.sessions.values() if s.left is not None and s.left.node == node.name]:
        # Nothing is placed on a lost node; should it come back, it says whether that worker still runs.
        state.sessions[session.id] = replace(session, left=None)
    for session in [s for s in state.index.sessions_of_node.of(node.name) if s.state != "closed"]:
        on_its_way = state.lease_of_session(session)
        if on_its_way is not None and on_its_way.live:
            continue  # on its way to another node, which may have everything already
        # A node that comes back within `client_gone` may still bring the worker, memory and all.
        state.sessions[session.id] = replace(session, state="lost", reason="lost", gone_since=step.now)
    step.reschedule = True


def _lease_time(step: Step, lease: LeaseRecord) -> None:
    if lease.ends_at is not None and step.now >= lease.ends_at and lease.state == "attached":
        lease_rules.begin_release(step, lease, "deadline", "the time that was asked for is over")
    elif lease.renew_by is not None and step.now >= lease.renew_by:
        why = "the holder has not renewed the lease in time"
        lease_rules.begin_release(step, lease, "lost", why)
    elif (
        lease.state == "starting"
        and not lease.ready
        and step.now - lease.since > (limit := _start_limit(step, lease))
    ):
        why = f"the worker did not take the lease within {limit:.0f} s"
        lease_rules.begin_release(step, lease, "lost", why, refusal="worker-failed")


def _drains(step: Step, lease: LeaseRecord) -> bool:
    """Whether the worker, as far as it can be heard, says that work goes on under a lease that is over."""
    session = step.state.sessions[lease.session_id]
    node = step.state.nodes.get(lease.node)
    return (
        session.node == lease.node
        and session.usage.work == "draining"
        and not session.worker_gone
        and node is not None
        and node.connection is not None
        and not node.lost
    )


def _client_is_gone(step: Step, session: SessionRecord) -> bool:
    """For so long that a session is given up: at all parts of a gang, or where the node is lost."""

    def gone(part: SessionRecord) -> bool:
        patience = step.timers.image_kept if part.place == "image" else step.timers.client_gone
        return part.gone_since is not None and step.now - part.gone_since > patience

    return gone(session) and (session.state == "lost" or all(map(gone, step.state.session_parts(session))))


def _start_limit(step: Step, lease: LeaseRecord) -> float:
    """Memory that has to come from the host, from disk or from another node takes its time."""
    session = step.state.sessions[lease.session_id]
    at_hand = lease.new_session or (session.place == "device" and lease.node == session.node)
    return step.timers.start if at_hand else step.timers.transfer


def _forget(step: Step) -> None:
    """Drops what ended long ago; the journal keeps its history."""
    state = step.state
    horizon = step.now - step.timers.remember

    def over(lease: LeaseRecord) -> bool:
        return lease.ended_at is not None and lease.ended_at < horizon

    old = state.index.ended.before(horizon)
    for lease in [lease for lease in old if all(map(over, state.lease_parts(lease)))]:
        del state.leases[lease.id]
        name = key_of(lease.user, lease.key)
        if state.keys.get(name) == lease.id:
            del state.keys[name]
    for session in state.index.closed.before(horizon):
        parts = state.session_parts(session)
        if not any(state.index.leases_of_session.count(part.id) for part in parts):
            del state.sessions[session.id]
    for node in list(state.nodes.values()):
        if node.given_back or node.last_answered < horizon:
            _forget_node(step, node)


def node_forgotten(step: Step, event: events.NodeForgotten) -> None:
    """A node that will not come back is not waited for as long as others are; its leases and sessions are, as ever."""
    node = step.state.nodes.get(event.node)
    if node is not None and node.connection is None:
        step.state.nodes[node.name] = node = replace(node, given_back=True)
        _forget_node(step, node)


def _forget_node(step: Step, node: NodeRecord) -> None:
    """Drops a lost node of which nothing is left.

    Closed sessions are remembered for retries. They need no node once nothing is counted there for them, as it is for one
    whose end the node has not confirmed.
    """
    state = step.state
    needed = any(
        session.state != "closed" or any(holds_of_session(state, session, step.now))
        for session in state.index.sessions_of_node.of(node.name)
    )
    if not node.lost or needed or state.leases_of_node(node.name):
        return
    step.queue.changed()
    del state.nodes[node.name]
    for device in state.index.devices_of_node.of(node.name):
        del state.devices[device.id]

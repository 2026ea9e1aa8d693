"""What nodes say: hello, heartbeats, and how their workers fare."""

from __future__ import annotations

from typing import Final

from gpupool.model import events
from gpupool.model.instructions import AnswerHeartbeat, DropNode, LiveLease
from gpupool.model.state import DeviceRecord, NodeRecord, SessionRecord, Usage
from gpupool.pool.leases import lease_rules, moving_rules, resize_rules
from gpupool.pool.model import messages
from gpupool.pool.model.exits import how_ended, reason_of_exit
from gpupool.pool.model.step import Step
from gpupool.pool.model.view import kept_mib
from gpupool.records import reader_of, replace
from gpupool.sentences import param, say

#: What a worker counts from its session's start.
_COUNTERS: Final = (
    "device_seconds", "kernels", "calls", "posts", "asks", "ask_seconds", "bytes_to_device", "bytes_from_device",
)  # fmt: skip
_counters_of: Final = reader_of(_COUNTERS)


def hello(step: Step, event: events.NodeHello) -> None:
    """A node is there (again): its devices, and its workers against what the pool believes."""
    state = step.state
    old = state.nodes.get(event.node)
    if old is not None and old.connection is not None and old.connection != event.connection:
        step.do(DropNode(event.node, old.connection))
    state.nodes[event.node] = NodeRecord(
        name=event.node,
        instance=event.instance,
        advertise_host=event.advertise_host,
        connection=event.connection,
        last_answered=step.now,
        park_memory_mib=event.park_memory_mib,
        park_disk_mib=event.park_disk_mib,
        worker_ports=event.worker_ports,
        pool=event.pool,
        labels=event.labels,
        sharing=event.sharing,
        drained=old is not None and old.drained,
        drain_reason=old.drain_reason if old is not None else "",
    )
    same_agent = old is not None and old.instance == event.instance
    if old is None or not same_agent or old.lost:
        step.journal(
            "node-hello", f"node {event.node} offers {len(event.devices)} device(s)", node=event.node,
            data={"instance": event.instance, "workers": len(event.workers)},
        )  # fmt: skip
    _take_devices(step, event)
    for lease in state.leases_of_node(event.node):
        if lease.ready and lease.state == "starting":
            # Its worker may have ended unheard of; if it lives, what follows finds it.
            state.leases[lease.id] = replace(lease, ready=False, address="")
    reported = {worker.session_id: worker for worker in event.workers}
    for session in state.index.sessions_of_node.of(event.node):
        worker = reported.pop(session.id, None)
        # The answer to an order of before may be lost; whoever needs the room asks again.
        state.sessions[session.id] = session = replace(session, parking=None)
        if worker is None:
            _missing_worker(step, session, same_agent, in_image=session.id in event.images)
        else:
            _found_worker(step, session, worker)
    moving_rules.hello(step, event.node, reported, same_agent)
    for session_id in reported:
        messages.stop_worker(step, event.node, session_id, "lost")
        step.journal(
            "stray-worker", f"node {event.node} runs a worker of session {session_id}, which it should not",
            session_id=session_id, node=event.node,
        )  # fmt: skip
    for session_id in sorted(event.images):
        # Of a session that has long ended, closed while the node was away. A known one may just be brought back from it.
        if session_id not in state.sessions:
            messages.stop_worker(step, event.node, session_id, "lost")
            step.journal(
                "stray-image", f"node {event.node} keeps an image of session {session_id}, which is not known",
                session_id=session_id, node=event.node,
            )  # fmt: skip
    step.reschedule = True


def heartbeat(step: Step, event: events.NodeHeartbeat) -> None:
    """Answers with the leases that still live: the agent extends these workers, and no others."""
    state = step.state
    node = state.nodes[event.node]
    if node.lost:
        # Its leases have ended; only a hello can sort out what its workers still hold.
        step.do(DropNode(event.node, event.connection))
        return
    was_silent = step.now - node.last_answered > step.timers.suspect
    state.nodes[event.node] = replace(node, last_answered=step.now)
    for worker in event.workers:
        session = state.sessions.get(worker.session_id)
        if session is not None and moving_rules.is_new_worker(step, session, event.node, worker.epoch):
            continue
        if session is None or session.node != event.node or session.state == "closed":
            messages.stop_worker(step, event.node, worker.session_id, "release")
        else:
            take_report(step, session, worker)
            _end_if_fenced(step, session, worker)
    live = []
    for lease in state.leases_of_node(event.node):
        if lease.live:
            state.leases[lease.id] = replace(lease, covered_at=step.now)
            shares = lease.shares if lease.resize is None else ()
            live.append(LiveLease(lease.session_id, lease.epoch, shares))
            if lease.resize is not None and not lease.resize.request:
                resize_rules.tell_again(step, state.leases[lease.id])
    step.do(AnswerHeartbeat(event.node, event.connection, event.number, tuple(live)))
    step.reschedule = step.reschedule or was_silent
    if _has_a_device_to_measure(step, event.node):
        # Only a hello says how large it is, and an agent says one when its stream ends.
        step.do(DropNode(event.node, event.connection))


def _has_a_device_to_measure(step: Step, node: str) -> bool:
    """Whether a device shrank there of which nobody holds a share of its larger size any more."""
    shrunk = {device.id for device in step.state.index.devices_of_node.of(node) if device.shrunk}
    return bool(shrunk) and not shrunk <= _held_on(step, node)


def _held_on(step: Step, node: str) -> set[str]:
    """Devices of which leases hold shares."""
    return {share.device_id for lease in step.state.leases_of_node(node) for share in lease.taken()}


def disconnected(step: Step, event: events.NodeDisconnected) -> None:
    """The stream of a node ended. Nothing is lost by that: it is fenced only after the time of `timers`."""
    state = step.state
    state.nodes[event.node] = replace(state.nodes[event.node], connection=None)
    step.journal("node-disconnected", f"the stream of node {event.node} ended", node=event.node)
    step.reschedule = True


def worker_started(step: Step, event: events.WorkerStarted) -> None:
    """The worker of a lease serves: its holder is told, unless the lease has ended meanwhile."""
    session = step.state.sessions.get(event.session_id)
    if session is not None and moving_rules.is_new_worker(step, session, event.node, event.epoch):
        lease_rules.attach(step, session, step.state.leases[session.lease_id], event.address)
        return
    if session is None or session.node != event.node or session.state == "closed":
        messages.stop_worker(step, event.node, event.session_id, "release")
        return
    lease = step.state.lease_of_session(session)
    if lease is None or lease.state != "starting" or lease.epoch != event.epoch or lease.node != event.node:
        return
    lease_rules.attach(step, session, lease, event.address)


def worker_failed(step: Step, event: events.WorkerFailed) -> None:
    """A worker did not come up."""
    session = step.state.sessions.get(event.session_id)
    if session is None:
        return
    why = f"the worker could not start on node {event.node}: {event.message}"
    if moving_rules.new_worker_ended(step, session, event.node, event.epoch, why):
        return
    if session.node != event.node or session.worker_gone:
        return
    lease = step.state.lease_of_session(session)
    if session.place == "image":
        if lease is not None and lease.state == "starting" and lease.epoch == event.epoch:
            lease_rules.start_failed(step, lease, why, confirmed=True)
        return
    if session.epoch != event.epoch:
        return
    lease_rules.worker_gone(step, session, "lost", why, confirmed=True)


def worker_exited(step: Step, event: events.WorkerExited) -> None:
    """A worker ended: its share comes free, and its session is lost unless it was to end or lies on disk."""
    session = step.state.sessions.get(event.session_id)
    if session is None:
        return
    lease = step.state.lease_of_session(session)
    if moving_rules.worker_exited(step, session, event):
        return
    if session.node != event.node:
        return
    if session.worker_gone and lease is None:
        _at_the_end(step, session, event)  # its end is told late, and with it what it counted last
        return
    if session.place == "image" and session.state != "closed":
        return  # its worker has ended because the session lies on disk
    reason = reason_of_exit(event.exit_status)
    if lease is not None and not lease.live and reason in ("exit", "lost"):
        reason = lease.reason
    session = _at_the_end(step, session, event)
    detail = f" ({event.reason})" if event.reason else ""
    why = f"the worker of session {session.id} ended {how_ended(event.exit_status)}{detail}"
    lease_rules.worker_gone(step, session, reason, why, confirmed=True)


def _at_the_end(step: Step, session: SessionRecord, event: events.WorkerExited) -> SessionRecord:
    """The session with what its worker counted last, work under way included; nothing of it computes any more."""
    usage = session.usage
    if event.worker is not None:
        usage = grown(usage, event.worker.usage)
    session = replace(session, usage=replace(usage, work="", busy=0.0, in_flight=False))
    step.state.sessions[session.id] = session
    return session


def grown(before: Usage, now: Usage) -> Usage:
    """What a worker reports, whose counters never go back: one that took a session over may not have its figures yet."""
    reported = _counters_of(now)
    most = tuple(map(max, _counters_of(before), reported))
    return now if most == reported else replace(now, **dict(zip(_COUNTERS, most, strict=True)))


def lease_applied(step: Step, event: events.LeaseApplied) -> None:
    """The worker's answer to a grant, a resize or a revocation; anything else is out of date."""
    session = step.state.sessions.get(event.session_id)
    lease = step.state.lease_of_session(session) if session is not None else None
    if session is None or session.node != event.node:
        return
    if event.worker is not None and session.state != "closed":
        take_report(step, session, event.worker)
        session = step.state.sessions[session.id]
    if lease is None or lease.epoch != event.epoch or lease.node != event.node:
        return
    if lease.resize is not None and lease.resize.request == event.request:
        resize_rules.answered(step, lease, event)
    elif lease.confirm_request != event.request:
        return
    elif lease.state == "releasing" and event.ok:
        lease_rules.end(step, lease, "the worker confirmed that the lease is over")
    elif lease.state == "starting" and event.ok:
        lease_rules.attach(step, session, lease, "")
    elif lease.state == "starting":
        refusal, why = "worker-failed", say("worker.refused", why=param.text(event.message))
        if event.used_mib:
            refusal, why = "bad-share", say("worker.keeps", mib=param.mib(event.used_mib))
        lease_rules.begin_release(step, lease, "release", why, refusal=refusal)
    elif lease.state == "attached" and not event.ok:
        why = say("worker.refused", why=param.text(event.message))
        lease_rules.begin_release(step, lease, "lost", why)


def take_report(step: Step, session: SessionRecord, worker: events.ReportedWorker) -> None:
    """Keeps the counters, where the memory lies, and since when the session's client has been gone."""
    gone_since = session.gone_since
    if worker.usage.client_connected:
        gone_since = None
    elif gone_since is None:
        gone_since = step.now
    lease = step.state.lease_of_session(session)
    place, device_ids = worker.place, worker.device_ids or session.device_ids
    if lease is not None and lease.state == "attached" and lease.node == session.node:
        # It serves, so its memory is on the devices of its lease, whatever a report of a moment ago says.
        place, device_ids = "device", session.device_ids
    if (place, device_ids) != (session.place, session.device_ids):
        step.reschedule = True
    step.state.sessions[session.id] = replace(
        session,
        usage=grown(session.usage, worker.usage),
        gone_since=gone_since,
        # Its start may have been told when its lease was over already.
        address=session.address or worker.address,
        place=place,
        device_ids=device_ids,
        park_obstacle=worker.park_obstacle,
        move_obstacle=worker.move_obstacle,
        enforcement=worker.enforcement,
    )


def _take_devices(step: Step, event: events.NodeHello) -> None:
    state = step.state
    held = _held_on(step, event.node)
    lived_on = {
        device_id
        for session in state.index.sessions_of_node.of(event.node)
        if session.state != "closed"
        for device_id in session.device_ids
    }
    offered = set()
    for device in event.devices:
        device_id = f"{event.node}/{device.ordinal}"
        offered.add(device_id)
        record = DeviceRecord(
            id=device_id,
            node=event.node,
            ordinal=device.ordinal,
            name=device.name,
            uuid=device.uuid,
            software=device.software,
            total_mib=device.total_mib,
            profile=device.profile,
            healthy=device.healthy,
            health_reason=device.health_reason,
            driver=device.driver,
        )
        old = state.devices.get(device_id)
        if old is not None and device_id in held and old.total_mib > device.total_mib:
            # Shares were cut from the larger size: they must end before the new size counts.
            why = f"its memory shrank from {old.total_mib} to {device.total_mib} MiB while shares are held"
            record = replace(old, healthy=False, health_reason=why, present=True, shrunk=True)
        if record != old:
            state.devices[device_id] = record
    for old in [d for d in state.index.devices_of_node.of(event.node) if d.id not in offered]:
        if old.id in held or old.id in lived_on:
            state.devices[old.id] = replace(old, present=False, shrunk=False)
        else:
            del state.devices[old.id]


def _found_worker(step: Step, session: SessionRecord, worker: events.ReportedWorker) -> None:
    if session.state == "closed":
        messages.stop_worker(step, session.node, session.id, session.reason)
        return
    lease = step.state.lease_of_session(session)
    started_anew = lease is not None and lease_rules.starts_worker(session, lease)
    take_report(step, session, worker)
    session = step.state.sessions[session.id]
    if worker.address and worker.address != session.address:
        session = replace(session, address=worker.address)
    if session.state == "lost":
        session = replace(session, state="parked")
        step.journal(
            "found", f"node {session.node} is back and session {session.id} with it",
            user=session.user, session_id=session.id, node=session.node,
        )  # fmt: skip
    step.state.sessions[session.id] = session
    if lease is None or lease.node != session.node:
        if worker.state == "attached":
            messages.revoke_lease(step, session, worker.epoch)
    elif lease.state == "releasing":
        number = messages.revoke_lease(step, session, lease.epoch)
        step.state.leases[lease.id] = replace(lease, confirm_request=number)
    elif lease.state == "starting" and started_anew and worker.epoch == lease.epoch:
        lease_rules.attach(step, session, lease, worker.address)
    elif lease.resize is not None and worker.state != "fenced":
        resize_rules.tell_again(step, lease)
    elif not _end_if_fenced(step, session, worker):
        number = messages.apply_lease(step, session, lease.epoch, lease.shares)
        step.state.leases[lease.id] = replace(lease, confirm_request=number, covered_at=step.now)


def _end_if_fenced(step: Step, session: SessionRecord, worker: events.ReportedWorker) -> bool:
    """A worker that has fenced itself never serves that epoch again: its lease is over, its memory is not."""
    lease = step.state.lease_of_session(session)
    if worker.state != "fenced" or lease is None or lease.state != "attached" or lease.epoch != worker.epoch:
        return False
    why = "the worker fenced itself: no heartbeat of its node was answered in time"
    return lease_rules.begin_release(step, lease, "lost", why)


def _missing_worker(step: Step, session: SessionRecord, same_agent: bool, *, in_image: bool) -> None:
    """A session of this node that its hello does not name as a worker."""
    lease = step.state.lease_of_session(session)
    starting = lease is not None and lease.state == "starting" and lease.node == session.node
    if session.state == "closed" and session.place == "image" and in_image:
        messages.stop_worker(step, session.node, session.id, session.reason)
        return
    if in_image and session.state != "closed" and (session.place == "image" or lease is None):
        # Its agent may have ended between writing it and saying so.
        state = "parked" if session.state == "lost" else session.state
        parked_mib = session.parked_mib if session.place == "image" else kept_mib(session)
        session = replace(
            session,
            state=state,
            place="image",
            address="",
            parked_mib=parked_mib,
            # It is not stored; a pool that is often restarted must not begin to count each time.
            gone_since=session.gone_since or session.parked_at or step.now,
        )
        step.state.sessions[session.id] = session
        if lease is None or not starting:
            return
    if starting and lease is not None and same_agent and lease_rules.starts_worker(session, lease):
        # The order to start it may have been lost with the old stream. An agent that still runs would know
        # a worker that it started, so saying it again cannot make two. A new agent may not.
        messages.start_worker(step, session, lease)
        step.state.leases[lease.id] = replace(lease, covered_at=step.now, since=step.now)
    elif starting and lease is not None and in_image:
        why = f"the agent of node {session.node} ended while session {session.id} was being resumed"
        lease_rules.start_failed(step, lease, why, confirmed=False)
    elif moving_rules.source_ended(step, session):
        return
    elif not session.worker_gone:
        why = f"node {session.node} came back without the worker of session {session.id}"
        lease_rules.worker_gone(step, session, "lost", why, confirmed=False)

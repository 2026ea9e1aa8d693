"""How leases begin and end, and sessions with them."""

from __future__ import annotations

from typing import Final

from gpupool.model.instructions import TellGranted, TellRefused, TellResized
from gpupool.model.state import LeaseRecord, LeftWorker, RequestRecord, SessionRecord, key_of
from gpupool.pool.model import messages
from gpupool.pool.model.step import Step
from gpupool.pool.model.view import kept_mib
from gpupool.records import replace
from gpupool.scheduler.model import PlacedShare
from gpupool.sentences import Sentence, param, plain, say

#: Why a reservation ends without its holder's doing, who is not there to ask again.
_FOR_GOOD: Final = ("deadline", "budget", "reclaim", "preempt", "drain")


def grant(
    step: Step,
    request: RequestRecord,
    shares: tuple[PlacedShare, ...],
    said: Sentence,
    session: SessionRecord | None,
    part: int | None = None,
    first: LeaseRecord | None = None,
) -> LeaseRecord:
    """Turns a decision, or what it says of one node, into a lease that waits for its worker.

    Args:
        step: the step of the machine that this is part of.
        request: the request that is served; it leaves the queue.
        shares: what is granted on this node.
        said: the sentence for the journal.
        session: the one that goes on; None: a new one.
        part: the place in a gang; None: it is the whole.
        first: the first part's lease, for the others.
    """
    state = step.state
    new_session = session is None
    lease_id = step.ids.lease()
    key = request.key if not part else f"{request.key}\n{part}"  # no caller's key has a line break
    if session is None:
        name = step.ids.session()
        gang = "" if part is None else name
        session = SessionRecord(
            id=name,
            user=request.user,
            label=request.label,
            holder=request.holder,
            node=state.devices[shares[0].device_id].node,
            device_ids=tuple(share.device_id for share in shares),
            secret=step.ids.token(),
            strict=request.strict,
            gang=gang if first is None else first.session_id,
            part=part or 0,
            isolated=request.isolated,
        )
    session = replace(
        session,
        state="starting",
        reason="",
        epoch=session.epoch + 1,
        lease_id=lease_id,
        label=request.label or session.label,
        holder=request.holder or session.holder,
        project=request.project,
        kept_place=(),
        kept_until=0.0,
    )
    lease = LeaseRecord(
        id=lease_id,
        session_id=session.id,
        user=request.user,
        key=key,
        label=session.label,
        holder=session.holder,
        epoch=session.epoch,
        shares=shares,
        state="starting",
        granted_at=step.now,
        new_session=new_session,
        reservation=request.reservation,
        ends_at=step.now + request.duration if request.duration > 0 else None,
        covered_at=step.now,
        since=step.now,
        gang="" if part is None else (lease_id if first is None else first.id),
        part=part or 0,
        project=request.project,
        kind=request.kind,
        priority=request.priority,
        filters=request.filters,
    )
    if starts_worker(session, lease):
        number = messages.start_worker(step, session, lease)
    else:
        number = messages.apply_lease(step, session, lease.epoch, lease.shares)
    state.sessions[session.id] = session
    state.leases[lease_id] = replace(lease, confirm_request=number)
    state.keys[key_of(request.user, key)] = lease_id
    step.reschedule = True
    step.journal(
        "grant",
        said,
        user=request.user,
        lease_id=lease_id,
        session_id=session.id,
        node=session.node,
        data={"epoch": lease.epoch, "waited_seconds": round(step.now - request.since, 3), "key": key},
    )
    return state.leases[lease_id]


def starts_worker(session: SessionRecord, lease: LeaseRecord) -> bool:
    """Whether `lease` begins with a new worker: of a new session, or of one that is elsewhere or on disk."""
    return lease.new_session or lease.node != session.node or session.place == "image"


def attach(step: Step, session: SessionRecord, lease: LeaseRecord, address: str) -> None:
    """The worker serves `lease`. A part of a gang waits for the others (`gang_rules.settle`)."""
    if not lease.gang:
        serve(step, session, lease, address)
        return
    state = step.state
    state.leases[lease.id] = replace(lease, ready=True, address=address)
    if address and lease.node == session.node:
        state.sessions[session.id] = replace(session, address=address)


def serve(step: Step, session: SessionRecord, lease: LeaseRecord, address: str) -> None:
    """The holder learns of `lease` and must renew it from now on; of a gang only the first part.

    A starting lease has a deadline only when nobody waits for it; then nobody learns of it either,
    and the deadline stays: a reservation would otherwise be held for ever.

    A worker on another node than the session's has fetched the session from there: from here on it is the
    session's, and the old one is ended.
    """
    moved = not lease.new_session and lease.node != session.node
    if moved:
        session = _leave(step, session, lease)
    ends_at = None if lease.ends_at is None else step.now + (lease.ends_at - lease.granted_at)
    renew_by = lease.renew_by
    if renew_by is None and not lease.reservation and lease.part == 0:
        renew_by = step.now + step.timers.holder
    step.state.leases[lease.id] = replace(
        lease,
        state="attached",
        since=step.now,
        ends_at=ends_at,
        renew_by=renew_by,
    )
    step.state.sessions[session.id] = replace(
        session,
        state="attached",
        reason="",
        address=address or session.address,
        device_ids=tuple(share.device_id for share in lease.shares),
        place="device",
        parked_mib=(),
        source_gone=False,
    )
    step.journal(
        "moved" if moved else "attached",
        f"session {session.id} is attached with epoch {lease.epoch}",
        user=lease.user,
        lease_id=lease.id,
        session_id=session.id,
        node=session.node,
    )
    step.do(TellGranted(lease.user, lease.key, lease.id))


def _leave(step: Step, session: SessionRecord, lease: LeaseRecord) -> SessionRecord:
    """Ends the worker that the session was fetched from; what it keeps counts until it has ended."""
    home = step.state.nodes.get(session.node)
    left = None
    if not session.source_gone and home is not None and not home.lost:
        left = LeftWorker(session.node, session.place, session.device_ids, kept_mib(session))
        messages.stop_worker(step, session.node, session.id, "release")
    return replace(session, node=lease.node, left=left)


def start_failed(step: Step, lease: LeaseRecord, why: Sentence | str, *, confirmed: bool) -> None:
    """A worker that was to take over a session did not come up: the session stays parked where it is.

    Args:
        step: the step of the machine that this is part of.
        lease: the lease that waited for the worker.
        why: what went wrong.
        confirmed: there is no process of it. Otherwise its share stays taken until it is fenced for sure.
    """
    begin_release(step, lease, "release", why, refusal="worker-failed")
    lease = step.state.leases[lease.id]
    if confirmed and lease.holds:
        end(step, lease, why)


def begin_release(
    step: Step,
    lease: LeaseRecord,
    reason: str,
    why: Sentence | str,
    *,
    close: bool = False,
    refusal: str = "lease-ended",
) -> bool:
    """Ends `lease` for its holder. Its share stays taken until the worker confirms, exits or is fenced.

    Returns False, and changes nothing but a wish to close, when the lease was over already.

    Args:
        step: the step of the machine that this is part of.
        lease: the lease, or one part of a gang.
        reason: the id of why it ends.
        why: the same for people.
        close: the session closes, too.
        refusal: the reason that a holder is told who still waits for this lease to start.
    """
    state = step.state
    session = state.sessions[lease.session_id]
    if not lease.live:
        if close and session.state != "closed":
            close_session(step, session, reason)
        return False
    was_starting = lease.state == "starting"
    # A first start that is called off leaves nothing worth parking.
    close = close or lease.close_session or (was_starting and lease.new_session)
    # A reservation whose time is over and that no program uses: nobody will ask for its session again.
    close = close or (lease.reservation and reason in _FOR_GOOD and not session.usage.client_connected)
    elsewhere = lease.node != session.node
    if elsewhere and session.source_gone:
        # Its old worker has ended, and the new one never took over.
        close, reason = True, "lost"
        state.sessions[session.id] = session = replace(session, worker_gone=True)
    if lease.resize is not None:
        step.do(TellResized(lease.id, "lease-ended", say("resize.ended", reason=param.text(reason))))
    number = 0
    if close:
        state.sessions[session.id] = session = replace(
            session, state="closed", reason=reason, closed_at=step.now
        )
        messages.stop_worker(step, session.node, session.id, reason)
        refuse_requests_of_session(step, session)
    else:
        home = state.nodes.get(session.node)
        lost = home is not None and home.lost
        state.sessions[session.id] = replace(
            session,
            state="lost" if lost else "parked",
            reason=reason,
            parked_at=step.now,
            gone_since=step.now if lost else session.gone_since,
        )
        if not elsewhere:
            number = messages.revoke_lease(step, session, lease.epoch)
    if elsewhere:
        # Nobody was told of this worker, so nothing happened in it: it is ended, not parked.
        messages.stop_worker(step, lease.node, session.id, reason)
    state.leases[lease.id] = replace(
        lease,
        state="releasing",
        reason=reason,
        since=step.now,
        renew_by=None,
        close_session=close,
        confirm_request=number,
    )
    if was_starting:
        step.do(TellRefused(lease.user, lease.key, refusal, plain(why)))
    step.reschedule = True
    step.journal(
        "release",
        why,
        user=lease.user,
        lease_id=lease.id,
        session_id=session.id,
        node=session.node,
        data={"reason": reason, "close_session": close},
    )
    return True


def fenced(step: Step, lease: LeaseRecord) -> None:
    """No heartbeat has covered the worker for so long that it serves nobody.

    If it was never heard of, nobody knows what it keeps in memory: its whole share, until it is heard of.
    """
    session = step.state.sessions[lease.session_id]
    if not session.usage.memory_used and session.node == lease.node:
        kept = tuple(share.mib * 1024 * 1024 for share in lease.shares)
        step.state.sessions[session.id] = replace(session, usage=replace(session.usage, memory_used=kept))
    end(step, lease, "the worker is fenced: no heartbeat has covered it since the release")


def end(step: Step, lease: LeaseRecord, why: Sentence | str) -> None:
    """The share is free: the worker confirmed, is gone, or is fenced for sure."""
    state = step.state
    state.leases[lease.id] = replace(
        lease,
        state="ended",
        ended_at=step.now,
        since=step.now,
        resize=None,
        renew_by=None,
        confirm_request=0,
    )
    session = state.sessions[lease.session_id]
    if session.lease_id == lease.id:
        state.sessions[session.id] = replace(session, lease_id="")
    step.reschedule = True
    step.journal(
        "ended",
        why,
        user=lease.user,
        lease_id=lease.id,
        session_id=lease.session_id,
        node=session.node,
        data={
            "reason": lease.reason,
            "held_seconds": round(step.now - lease.granted_at, 3),
            "milli": sum(share.milli for share in lease.shares),
            "device_seconds": session.usage.device_seconds,
        },
    )


def close_session(step: Step, session: SessionRecord, reason: str) -> bool:
    """Ends a session and all it holds; False when it was closed already."""
    if session.state == "closed":
        return False
    lease = step.state.lease_of_session(session)
    if lease is not None and lease.live:
        return begin_release(step, lease, reason, f"the session is closed ({reason})", close=True)
    step.state.sessions[session.id] = session = replace(
        session, state="closed", reason=reason, closed_at=step.now, parking=None
    )
    messages.stop_worker(step, session.node, session.id, reason)
    refuse_requests_of_session(step, session)
    step.reschedule = True
    step.journal(
        "closed",
        f"session {session.id} is closed ({reason})",
        user=session.user,
        session_id=session.id,
        node=session.node,
        data={"reason": reason, "device_seconds": session.usage.device_seconds},
    )
    return True


def worker_gone(
    step: Step, session: SessionRecord, reason: str, why: Sentence | str, *, confirmed: bool
) -> None:
    """The session's state is lost with its worker.

    Args:
        step: the step of the machine that this is part of.
        session: whose worker it is.
        reason: the id of why it is gone.
        why: the same for people.
        confirmed: the agent saw the process end (or never begin). Otherwise the worker is only
            missing from a report, and its share stays taken until it is fenced for sure.
    """
    state = step.state
    lease = state.lease_of_session(session)
    if session.state != "closed":
        session = replace(session, state="closed", reason=reason, closed_at=step.now)
        step.journal(
            "closed", why, user=session.user, session_id=session.id, node=session.node,
            data={"reason": reason, "device_seconds": session.usage.device_seconds},
        )  # fmt: skip
    state.sessions[session.id] = replace(session, worker_gone=True, parking=None)
    refuse_requests_of_session(step, session)
    step.reschedule = True
    if lease is None:
        return
    if lease.live:
        if lease.state == "starting":
            step.do(TellRefused(lease.user, lease.key, "worker-failed", plain(why)))
        if lease.resize is not None:
            step.do(TellResized(lease.id, "lease-ended", plain(why)))
        lease = replace(lease, state="releasing", reason=reason, since=step.now, renew_by=None)
        state.leases[lease.id] = lease
    if confirmed and lease.node == session.node:
        end(step, lease, why)


def refuse_requests_of_session(step: Step, session: SessionRecord) -> None:
    """Requests that wait to resume a session that has closed can never be granted."""
    for request in step.state.index.requests_of_session.of(session.id):
        del step.state.requests[request.id]
        said = say("session-is-closed", session=param.text(session.id), reason=param.text(session.reason))
        refused = TellRefused(request.user, request.key, "unknown-session", said)
        step.do(refused)
        messages.journal_refusal(step, refused, session.id)

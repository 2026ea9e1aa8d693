"""Notices: the word that a lease will end, and that end itself.

It ends for another's request, or because its node is emptied or its user has had enough.

A notice names the request it is for. Every look at the queue (`queue_pass`, `taking_rules`) judges it again, by the same
rules as when it was given: it is withdrawn when the request has left, has found room elsewhere, or may not have it any
more, and when one of the leases is not needed because another has ended by itself. So what is taken back in the end is
taken back rightly, and never in vain. The room stays kept for the request from the notice until it has it.

A notice counts only when its holder has heard of it, with the answer to a renewal: the holder must stop in time.

A session whose lease ended keeps its memory; its holder asks again and waits its turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpupool.model import events
from gpupool.model.state import LeaseRecord, Notice, RequestRecord
from gpupool.pool.leases import lease_rules
from gpupool.pool.model.step import Step
from gpupool.pool.projects import standing_view
from gpupool.records import replace
from gpupool.scheduler.fairshare.position import Standing
from gpupool.scheduler.model import PlacedShare
from gpupool.sentences import Sentence, clauses, param, say

#: A holder that hears of an end late still has this part of a notice. Holders rest for as large a part before an end
#: (`client/returning.py`).
_LATE_PART = 1 / 3


def owed(step: Step) -> dict[str, frozenset[str]]:
    """Devices that are kept from everybody else for a request, by its id, because room on them is being made for it.

    From the notice, or the word that parked memory has to leave, until the request has it: whoever comes before it in the
    order meanwhile has no part in that.
    """
    return {request.id: frozenset(request.wants) for request in step.state.index.owed.records()}


def taken_for(step: Step) -> frozenset[str]:
    """Asks for which somebody else was told to go: what they are owed does not come by itself."""
    notices = (lease.notice for lease in step.state.index.noticed.records())
    return frozenset(notice.for_request for notice in notices if notice is not None)


def give(
    step: Step,
    parts: Sequence[LeaseRecord],
    request: RequestRecord,
    milli: int,
    until: float,
    standing: Standing,
) -> None:
    """Tells the holder of a lease that it ends for a request.

    Args:
        step: the step of the machine that this is part of.
        parts: the lease; of a gang, all parts.
        request: the request that gets the room.
        milli: what is asked.
        until: when the lease ends, boot-time clock.
        standing: of the lease's project, this lease still included.
    """
    lease = parts[0]
    if lease.project == request.project:
        reason = "preempt"
        why = say(
            "notice.preempt",
            user=param.user(request.user),
            milli=param.milli(milli),
            priority=param.count(request.priority),
            own=param.count(lease.priority),
        )
    else:
        reason = "reclaim"
        why = say(
            "notice.reclaim",
            project=param.project(request.project),
            user=param.user(request.user),
            milli=param.milli(milli),
            own=param.project(lease.project),
            held=param.milli(standing.allocated),
            deserved=param.milli(standing.deserved),
        )
    _note(step, parts, Notice(reason, until, clauses(why, say("notice.parks")), request.id))


def give_move(
    step: Step,
    parts: Sequence[LeaseRecord],
    request: RequestRecord,
    milli: int,
    until: float,
    target: PlacedShare,
) -> None:
    """Tells the holder of a lease that it goes on elsewhere, so that a request fits; said again only if that has changed."""
    known = parts[0].notice
    if known is not None and known.for_request == request.id and known.target == (target,):
        return
    goes_to = param.device(target.device_id)
    why = say("notice.move", user=param.user(request.user), milli=param.milli(milli), device=goes_to)
    _note(step, parts, Notice("consolidate", until, clauses(why, say("notice.moves")), request.id, (target,)))


def give_end(step: Step, parts: Sequence[LeaseRecord], reason: str, until: float, why: Sentence) -> None:
    """Tells the holder of a lease that it ends, for nobody else's sake."""
    _note(step, parts, Notice(reason, until, why))


def withdraw(step: Step, leases: Iterable[Sequence[LeaseRecord]], why: Sentence) -> None:
    """Takes notices back: these leases go on."""
    for parts in leases:
        for part in parts:
            step.state.leases[part.id] = replace(step.state.leases[part.id], notice=None)
        first = parts[0]
        step.journal(
            "notice-withdrawn", say("notice.withdrawn", lease=param.text(first.id), why=why),
            user=first.user, lease_id=first.id, session_id=first.session_id, node=first.node,
        )  # fmt: skip


def any_for_requests(step: Step) -> bool:
    """Whether a lease has a notice for a request; the request itself may be gone."""
    noticed = step.state.index.noticed.records()
    return any(lease.live and lease.notice and lease.notice.for_request for lease in noticed)


def heard(step: Step, lease: LeaseRecord) -> None:
    """Its holder renews `lease`, the first part of what it holds, and is told of the notice with the answer.

    From then on it needs a moment: what it sends to a worker without a lease is lost.
    """
    if lease.notice is None or lease.notice.heard:
        return
    until = max(lease.notice.until, step.now + step.timers.notice * _LATE_PART)
    for part in step.state.lease_parts(lease):
        if part.notice is not None:
            told = replace(part.notice, heard=True, until=until)
            step.state.leases[part.id] = replace(part, notice=told)


def any_due(step: Step) -> bool:
    """Whether the time of some notice is over."""
    return any(_is_due(step, lease) for lease in step.state.index.noticed.records())


def expire(step: Step) -> None:
    """Ends leases whose notice is over. To be called right after a look at the queue, which has judged them again."""
    for lease in [lease for lease in step.state.index.noticed.records() if _is_due(step, lease)]:
        lease = step.state.leases[lease.id]
        if lease.live and lease.notice is not None:  # another part may have ended it
            lease_rules.begin_release(step, lease, lease.notice.reason, lease.notice.said)
            session = step.state.sessions[lease.session_id]
            if lease.notice.target and session.state == "parked":
                until = step.now + step.timers.keep_place
                step.state.sessions[session.id] = replace(
                    session, kept_place=lease.notice.target, kept_until=until
                )


def node_drained(step: Step, event: events.NodeDrained) -> None:
    """A node takes no new leases, or takes them again; with `evict` those that it serves end after a notice."""
    state = step.state
    node = state.nodes.get(event.node)
    if node is None:
        return
    state.nodes[node.name] = replace(
        node, drained=event.drained, drain_reason=event.reason if event.drained else ""
    )
    step.reschedule = True
    because = "-because" if event.reason else ""
    who = {"node": param.node(node.name), "user": param.user(event.by), "why": param.text(event.reason)}
    kind = "drained" if event.drained else "undrained"
    step.journal(
        f"node-{kind}", say(f"node.{kind}{because}", **who), node=node.name,
        data={"by": event.by, "reason": event.reason, "evict": event.evict},
    )  # fmt: skip
    if event.drained and not event.evict:
        return
    if not event.drained:
        withdraw(
            step,
            [whole for whole in _served(step, node.name) if _is_of_drain(whole[0])],
            say("node.takes-again", node=param.node(node.name)),
        )
    else:
        give_all(step, node.name, step.now + step.timers.notice, say(f"notice.drain{because}", **who))


def give_all(step: Step, node: str, until: float, why: Sentence) -> None:
    """Tells all holders of leases on a node that is emptied; who has been told before gets no more time by it."""
    said = clauses(why, say("notice.drain-parks"))
    for whole in _served(step, node):
        former = whole[0].notice
        # Said once more, it ends nothing later: whoever drains a node again means what it got meanwhile.
        if former is None:
            _note(step, whole, Notice("drain", until, said))
        elif former.reason != "drain" or until < former.until:
            _note(step, whole, Notice("drain", min(former.until, until), said))


def _served(step: Step, node: str) -> list[list[LeaseRecord]]:
    """The leases that a node serves, with the parts of the same gangs on others."""
    state = step.state
    served = [lease for lease in state.leases_of_node(node) if lease.live]
    parts = {part.id: part for lease in served for part in state.lease_parts(lease) if part.live}
    in_order = sorted(parts.values(), key=lambda part: state.leases.place(part.id))
    return list(standing_view.wholes(in_order).values())


def _note(step: Step, parts: Iterable[LeaseRecord], notice: Notice) -> None:
    whole = list(parts)
    for part in whole:
        step.state.leases[part.id] = replace(step.state.leases[part.id], notice=notice)
    first = whole[0]
    step.journal(
        "notice", notice.said, user=first.user, lease_id=first.id, session_id=first.session_id,
        node=first.node,
        data={
            "reason": notice.reason, "seconds": round(notice.until - step.now, 3),
            "milli": sum(share.milli for part in whole for share in part.taken()), **_for_whom(step, notice),
        },
    )  # fmt: skip


def _for_whom(step: Step, notice: Notice) -> dict[str, object]:
    request = step.state.requests.get(notice.for_request)
    return (
        {}
        if request is None
        else {"for_user": request.user, "for_project": request.project, "for_key": request.key}
    )


def _is_of_drain(lease: LeaseRecord) -> bool:
    return lease.notice is not None and lease.notice.reason == "drain"


def _is_due(step: Step, lease: LeaseRecord) -> bool:
    if not lease.live or lease.notice is None or step.now < lease.notice.until:
        return False
    # Nothing is taken unheard. A holder that is silent for too long loses the lease all the same (`timer_rules`).
    first = step.state.lease_parts(lease)[0]
    return lease.notice.heard or first.renew_by is None or first.state != "attached"

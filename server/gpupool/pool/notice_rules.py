"""Taking back: leases end for an ask that is entitled to their room, after a notice.

A notice names the ask it is for. Every look at the queue (`queue_pass`) judges it again, by the same rules as when it
was given: it is withdrawn when the ask has left, has found room elsewhere, or may not have it any more, and when one of
the leases is not needed because another has ended by itself. So what is taken back in the end is taken back rightly,
and never in vain. The room stays kept for the ask from the notice until its leases have ended.

A session whose lease ended keeps its memory; its holder asks again and waits its turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from gpupool.pool import events, lease_rules, standing_view
from gpupool.pool.project_rules import project_tree
from gpupool.pool.state import AskRecord, LeaseRecord, Notice
from gpupool.pool.step import Step
from gpupool.pool.view import kept_mib, session_mib
from gpupool.scheduler import reclaim
from gpupool.scheduler.explain import gpu
from gpupool.scheduler.fairshare.standings import Standings
from gpupool.scheduler.model import Ask, Decision, Held, Outcome, PlacedShare, PoolView
from gpupool.scheduler.reclaim import Candidate, Search

#: Shown by name in an explanation, no more.
_MAX_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Wanted:
    """An ask that does not fit, and what it takes to look for room for it.

    Attributes:
        milli: what it takes.
        view: the pool as it sees it: devices kept for others are reserved.
        decide: the scheduler's word on it.
    """

    ask: AskRecord
    wish: Ask
    milli: int
    view: PoolView
    decide: Callable[[PoolView], Decision]


def make_room(step: Step, standings: Standings, wanted: Wanted) -> Decision | None:
    """Waits for leases that are on their way back, or has more of them taken back; None: no room comes about by that."""
    whole = standing_view.wholes(lease for lease in step.state.leases.values() if lease.holds)
    mine = [parts for parts in whole.values() if parts[0].live and _is_for(parts[0], wanted.ask)]
    leaving = [_candidate(step, parts) for parts in whole.values() if not parts[0].live]
    base = reclaim.after(wanted.view, leaving)
    if leaving:
        decision = wanted.decide(base)
        if reclaim.serves(decision):
            _withdraw(step, mine, "other leases are being given back, which is enough")
            standings.granted(standing_view.expected_lease(wanted.ask, wanted.milli, step.now))
            return _waits_for_leaving(wanted, decision)
    search = Search(wanted.wish, wanted.decide, lambda victims: _allowed(standings, wanted, victims))
    found = _as_planned(step, base, search, mine)
    if found is None:
        possible = _possible(step, standings, wanted, whole)
        found = reclaim.plan(base, search, possible) if possible else None
    if found is not None and not found.victims:
        found = None
    chosen = {victim.id for victim in found.victims} if found is not None else set()
    ends = {name: _ends_at(step, wanted.ask, whole[name][0]) for name in chosen}
    give_up_at = wanted.ask.give_up_at
    if found is None or (give_up_at is not None and give_up_at < max(ends.values())):
        _withdraw(step, mine, "nothing can be made of it for the ask that it was for")
        return None
    _withdraw(step, [parts for parts in mine if parts[0].id not in chosen], "it is not needed any more")
    for name, until in sorted(ends.items()):
        if whole[name][0].notice is None:
            _give(step, wanted, whole[name], until, standings)
    standings.without(chosen)
    standings.granted(standing_view.expected_lease(wanted.ask, wanted.milli, step.now))
    return _waits_for_notice(step, wanted, found.decision, [whole[name] for name in sorted(chosen)])


def owed(step: Step) -> dict[str, frozenset[str]]:
    """Devices that are kept from everybody else for an ask, by its id, because room on them is being made for it.

    From the notice, or the word that parked memory has to leave, until the ask has it: whoever comes before it in the
    order meanwhile has no part in that.
    """
    return {ask.id: frozenset(ask.wants) for ask in step.state.asks.values() if is_owed(ask.decision)}


def is_owed(decision: Decision | None) -> bool:
    return decision is not None and (decision.reason == "notice" or bool(decision.evict))


def withdraw_orphans(step: Step) -> None:
    """Notices whose ask is gone: it was granted, or has left."""
    whole = standing_view.wholes(
        lease for lease in step.state.leases.values() if lease.live and lease.notice is not None
    )
    asks = step.state.asks
    gone = [
        parts for parts in whole.values()
        if (notice := parts[0].notice) is not None and notice.for_ask and notice.for_ask not in asks
    ]  # fmt: skip
    _withdraw(step, gone, "the ask that it was for has left the queue")


def any_due(step: Step) -> bool:
    return any(_is_due(step, lease) for lease in step.state.leases.values())


def expire(step: Step) -> None:
    """Ends leases whose notice is over. To be called right after a look at the queue, which has judged them again."""
    for lease in [lease for lease in step.state.leases.values() if _is_due(step, lease)]:
        lease = step.state.leases[lease.id]
        if lease.live and lease.notice is not None:  # another part may have ended it
            lease_rules.begin_release(step, lease, lease.notice.reason, lease.notice.explanation)


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
    because = f" ({event.reason})" if event.reason else ""
    does = "takes no new leases" if event.drained else "takes leases again"
    step.journal(
        "node-drained" if event.drained else "node-undrained", f"node {node.name} {does}, by {event.by}{because}",
        node=node.name, data={"by": event.by, "reason": event.reason, "evict": event.evict},
    )  # fmt: skip
    whole = standing_view.wholes(lease for lease in state.leases.values() if lease.live)
    here = [parts for parts in whole.values() if any(part.node == node.name for part in parts)]
    if not event.drained:
        _withdraw(
            step, [parts for parts in here if _is_of_drain(parts[0])], f"node {node.name} takes leases again"
        )
    elif event.evict:
        until = step.now + step.timers.notice
        text = (
            f"node {node.name} is being emptied by {event.by}{because}; the session is parked, and goes on "
            "elsewhere when there is room"
        )
        for parts in here:
            _note(step, parts, Notice("admin", until, text))


def _as_planned(
    step: Step, base: PoolView, search: Search, mine: Sequence[Sequence[LeaseRecord]]
) -> reclaim.Plan | None:
    """The plan of last time, less what it does not need any more; None: there is none, or it has come to nothing."""
    victims = tuple(_candidate(step, parts) for parts in mine)
    if not victims or not search.allowed(victims):
        return None
    decision = search.decide(reclaim.after(base, victims))
    if not reclaim.serves(decision):
        return None
    return reclaim.without_spare(base, search, reclaim.Plan(victims, decision))


def _possible(
    step: Step, standings: Standings, wanted: Wanted, whole: Mapping[str, Sequence[LeaseRecord]]
) -> list[Candidate]:
    """Leases that may be taken back for an ask, those that have not begun to serve and those promised to others left out."""
    ask = wanted.ask
    found = []
    for held in standings.takeable(ask.project, wanted.milli, priority=ask.priority):
        parts = whole.get(held.id, ())
        if not parts or any(part.state != "attached" for part in parts):
            continue
        if parts[0].notice is None or _is_for(parts[0], ask):
            found.append(_candidate(step, parts))
    return found


def _allowed(standings: Standings, wanted: Wanted, victims: Sequence[Candidate]) -> bool:
    names = [victim.id for victim in victims]
    verdict = standings.may_take_from(wanted.ask.project, wanted.milli, names, priority=wanted.ask.priority)
    return verdict.admitted


def _candidate(step: Step, parts: Sequence[LeaseRecord]) -> Candidate:
    """A lease as the search sees it: those that need not be waited for first, then low priority, then the newest."""
    first = parts[0]
    state = step.state
    kept = []
    for part in parts:
        session = state.sessions[part.session_id]
        mib = kept_mib(session)
        if session.state == "closed" or not any(mib) or part.node != session.node:
            continue
        why = _keeps_it(step, part)
        held = Held(
            "", part.user, 0, 0, session_id=session.id, session_mib=session_mib(session), since=step.now, stays=why
        )  # fmt: skip
        placed = [
            PlacedShare(share.device_id, 0, size)
            for share, size in zip(part.shares, mib, strict=False)
            if size
        ]
        kept.append((held, tuple(placed)))
    late = max(0.0, first.granted_at + _min_run(step, first) - step.now - step.timers.notice)
    shares = tuple(share for part in parts for share in part.taken())
    return Candidate(
        tuple(part.id for part in parts),
        shares,
        (late, float(first.priority), -first.granted_at),
        tuple(kept),
    )


def _keeps_it(step: Step, part: LeaseRecord) -> str:
    session = step.state.sessions[part.session_id]
    if session.park_obstacle:
        return f"{session.park_obstacle} keeps it there"
    return ""


def _min_run(step: Step, lease: LeaseRecord) -> float:
    return project_tree(step.state).min_run(lease.project, step.timers.min_run)


def _ends_at(step: Step, ask: AskRecord, lease: LeaseRecord) -> float:
    """When a lease would end for an ask: after the notice, and not before it has run a while."""
    if lease.notice is not None and _is_for(lease, ask):
        return lease.notice.until
    return max(step.now + step.timers.notice, lease.granted_at + _min_run(step, lease))


def _give(
    step: Step, wanted: Wanted, parts: Sequence[LeaseRecord], until: float, standings: Standings
) -> None:
    ask, lease = wanted.ask, parts[0]
    size = f"{gpu(wanted.milli)} GPU"
    if lease.project == ask.project:
        reason = "preempt"
        why = f"{ask.user} asks for {size} with priority {ask.priority}, above the {lease.priority} of this lease"
    else:
        standing = standings.standing(lease.project)
        reason = "reclaim"
        why = (
            f"project {ask.project} ({ask.user}) is entitled to {size}, and project {lease.project} holds "
            f"{gpu(standing.allocated)} and deserves {gpu(standing.deserved)}"
        )
    text = f"{why}; the session is parked with its memory, and goes on when it is its turn again"
    _note(step, parts, Notice(reason, until, text, ask.id))


def _note(step: Step, parts: Iterable[LeaseRecord], notice: Notice) -> None:
    whole = list(parts)
    for part in whole:
        step.state.leases[part.id] = replace(step.state.leases[part.id], notice=notice)
    first = whole[0]
    step.journal(
        "notice", notice.explanation, user=first.user, lease_id=first.id, session_id=first.session_id,
        node=first.node,
        data={
            "reason": notice.reason, "seconds": round(notice.until - step.now, 3),
            "milli": sum(share.milli for part in whole for share in part.taken()), **_for_whom(step, notice),
        },
    )  # fmt: skip


def _for_whom(step: Step, notice: Notice) -> dict[str, object]:
    ask = step.state.asks.get(notice.for_ask)
    return {} if ask is None else {"for_user": ask.user, "for_project": ask.project, "for_key": ask.key}


def _withdraw(step: Step, leases: Iterable[Sequence[LeaseRecord]], why: str) -> None:
    for parts in leases:
        for part in parts:
            step.state.leases[part.id] = replace(step.state.leases[part.id], notice=None)
        first = parts[0]
        step.journal(
            "notice-withdrawn", f"lease {first.id} is not taken back: {why}", user=first.user, lease_id=first.id,
            session_id=first.session_id, node=first.node,
        )  # fmt: skip


def _waits_for_leaving(wanted: Wanted, decision: Decision) -> Decision:
    devices = ", ".join(reclaim.places(decision))
    text = f"{gpu(wanted.milli)} GPU is asked; leases on {devices} are being given back, which takes a moment"
    return Decision(
        Outcome.QUEUE, "notice", text, wants=reclaim.places(decision), facts={"asked_milli": wanted.milli}
    )


def _waits_for_notice(
    step: Step, wanted: Wanted, decision: Decision, whole: Sequence[Sequence[LeaseRecord]]
) -> Decision:
    leases = [[step.state.leases[part.id] for part in parts] for parts in whole]
    ends = [parts[0].notice.until for parts in leases if parts[0].notice is not None]
    seconds = max(0.0, max(ends, default=step.now) - step.now)
    asked_back = [_asked_back(parts) for parts in leases]
    if len(asked_back) > _MAX_SHOWN:
        asked_back = [*asked_back[:_MAX_SHOWN], f"{len(asked_back) - _MAX_SHOWN} more"]
    text = (
        f"{gpu(wanted.milli)} GPU is asked; asked back from {', '.join(asked_back)}, free in {seconds:.0f} s"
    )
    milli = sum(share.milli for parts in leases for part in parts for share in part.taken())
    facts: dict[str, int | str] = {
        "asked_milli": wanted.milli,
        "taken_back_milli": milli,
        "notice_seconds": round(seconds),
    }
    return Decision(Outcome.QUEUE, "notice", text, wants=reclaim.places(decision), facts=facts)


def _asked_back(parts: Sequence[LeaseRecord]) -> str:
    milli = sum(share.milli for part in parts for share in part.taken())
    return f"project {parts[0].project} (user {parts[0].user}, {gpu(milli)})"


def _is_for(lease: LeaseRecord, ask: AskRecord) -> bool:
    return lease.notice is not None and lease.notice.for_ask == ask.id


def _is_of_drain(lease: LeaseRecord) -> bool:
    return lease.notice is not None and lease.notice.reason == "admin"


def _is_due(step: Step, lease: LeaseRecord) -> bool:
    return lease.live and lease.notice is not None and step.now >= lease.notice.until

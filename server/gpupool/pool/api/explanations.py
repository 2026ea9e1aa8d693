"""Why a request waits or was refused, and what a lease may expect, as messages: the same for the command line and the sidebar."""

from __future__ import annotations

from collections.abc import Sequence

from gpupool.model.instructions import TellRefused
from gpupool.model.state import DEFAULT_PROJECT, PRIORITIES, LeaseRecord, RequestRecord, State
from gpupool.pool.leases import gang_view
from gpupool.pool.model.consolidation import Consolidation
from gpupool.pool.model.timers import Timers
from gpupool.proto.gpupool.v1 import pool_pb2 as pb
from gpupool.proto.sentences import to_message
from gpupool.request.forms import message_fields
from gpupool.request.gpu_request import GpuRequest
from gpupool.scheduler import explain
from gpupool.scheduler.model import Decision, Help, PlacedShare, Request
from gpupool.sentences import Sentence, clauses, param, say
from gpupool.shares import Share


def of_decision(
    decision: Decision, request: RequestRecord, state: State, *, place: int = 0, eta: float | None = None
) -> pb.Explanation:
    """What the scheduler said of a request. Advice about leases is given to those only whose they are."""
    helps = [help for help in decision.helps if _is_for(help, request.user, state)]
    return pb.Explanation(
        reason=decision.reason,
        said=to_message(decision.said),
        facts={name: str(value) for name, value in decision.facts.items()},
        helps=[
            pb.Help(action=h.action, said=to_message(h.said), request=_request(h.request, request))
            for h in helps
        ],
        project=request.project,
        place=place,
        eta_seconds=-1.0 if eta is None else eta,
    )


def of_request(request: RequestRecord, state: State) -> pb.Explanation | None:
    """Why it waits; None: it has not been looked at yet."""
    if request.decision is None:
        return None
    return of_decision(request.decision, request, state, place=request.place, eta=request.eta)


def of_refusal(told: TellRefused, state: State) -> pb.Explanation:
    """Why a request was refused; of who gave up waiting, why it waited to the end."""
    if told.request is None or told.decision is None:
        return of_sentence(told.reason, told.said)
    said = of_decision(told.decision, told.request, state)
    said.reason = told.reason
    said.said.CopyFrom(to_message(told.said))
    return said


def of_sentence(reason: str, said: Sentence, project: str = "") -> pb.Explanation:
    """What was said without the scheduler."""
    return pb.Explanation(reason=reason, said=to_message(said), project=project, eta_seconds=-1.0)


def of_lease(
    lease: LeaseRecord,
    state: State,
    timers: Timers,
    now: float,
    *,
    protected: bool,
    min_run: float,
    consolidate: Consolidation = Consolidation.IDLE,
) -> pb.Explanation:
    """What its holder may expect.

    Args:
        lease: the lease; of a gang, its first.
        state: the pool as it is.
        timers: how long everything lasts.
        now: the pool's boot-time clock, seconds.
        protected: as things stand it is not taken back for others.
        min_run: seconds that it is left alone in any case.
        consolidate: who goes on elsewhere for requests that fit nowhere.
    """
    parts = state.lease_parts(lease)
    shares = gang_view.shares(parts)
    facts = {
        "milli": str(sum(share.milli for share in shares)),
        "mib": str(sum(share.mib for share in shares)),
        "held_seconds": f"{now - lease.granted_at:.0f}",
        "kind": lease.kind,
        "priority": str(lease.priority),
    }
    said = [
        say(
            "lease.holds",
            user=param.user(lease.user),
            shares=explain.shares_on(shares),
            project=param.project(lease.project),
            seconds=param.seconds(now - lease.granted_at),
        )
    ]
    if not lease.live:
        code = "lease.over-unconfirmed" if lease.holds else "lease.over"
        said.append(say(code, reason=param.text(lease.reason)))
    elif lease.notice is not None:
        left = max(0.0, lease.notice.until - now)
        facts["notice_seconds"] = f"{left:.0f}"
        code = "lease.budget" if lease.notice.reason == "budget" else "lease.noticed"
        said.append(say(code, seconds=param.seconds(left), why=lease.notice.said))
    elif protected:
        code = _protected(lease, shares, consolidate)
        said.append(say(code, idle=param.seconds(max(timers.min_run, min_run))))
    else:
        rest = max(0.0, lease.granted_at + min_run - now)
        facts["safe_seconds"] = f"{rest:.0f}"
        code = "lease.takeable-not-yet" if rest else "lease.takeable"
        said.append(say(code, notice=param.seconds(timers.notice), rest=param.seconds(rest)))
    if lease.live and lease.ends_at is not None:
        facts["ends_seconds"] = f"{max(0.0, lease.ends_at - now):.0f}"
        said.append(say("lease.ends", seconds=param.seconds(max(0.0, lease.ends_at - now))))
    why = to_message(clauses(*said))
    return pb.Explanation(reason=lease.reason, said=why, facts=facts, project=lease.project, eta_seconds=-1.0)


def _protected(lease: LeaseRecord, shares: Sequence[PlacedShare], consolidate: Consolidation) -> str:
    """Of a lease that is not taken back: whether it may have to go on elsewhere. Several devices never move."""
    if lease.kind == "guaranteed" or len(shares) > 1 or consolidate is Consolidation.OFF:
        return "lease.protected"
    return "lease.protected-moves-idle" if consolidate is Consolidation.IDLE else "lease.protected-moves"


def _is_for(help: Help, user: str, state: State) -> bool:
    """Requests of several users that are alike are decided once; their own leases are not alike."""
    return all((lease := state.leases.get(name)) is not None and lease.user == user for name in help.releases)


def _request(other: Request | None, request: RequestRecord) -> pb.RequestLease | None:
    """What would be granted now, with the terms of the request that was not."""
    if other is None or other.parked is not None or other.parts:
        return None
    granted = GpuRequest(
        Share(other.milli, other.mib),
        count=other.count,
        nodes=other.nodes if other.count > 1 else "auto",
        strict=request.strict,
        project="" if request.project == DEFAULT_PROJECT else request.project,
        kind=request.kind,
        priority=0 if request.priority == PRIORITIES[request.kind] else request.priority,
        filters=tuple(str(wish) for wish in other.filters),
        pools=other.pools,
        no_isolation=not other.isolated,
    )
    return pb.RequestLease(**message_fields(granted, pb.RequestLease.DESCRIPTOR.fields_by_name))

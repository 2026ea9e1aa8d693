"""Leases of several nodes: a gang is granted, served and ended as a whole, or not at all.

A process with shares on several nodes has a session, a worker and a lease on each: a part. To its worker, its node and
its parked memory a part is a lease and a session like any other, and the rules for these know nothing of gangs. What
ties parts together is here, and :func:`settle`, which runs at the end of every step:

- No part is `attached` before the workers of all parts are ready; then all are, in one step, and the holder is told.
- When the lease of one part is over, for whatever reason, so are the others', for the same reason.
- When one part's session is closed, so are the others'.

Towards the holder the first part stands for the whole: its lease and session ids, its key, its renewals.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TypeVar

from gpupool.model.instructions import TellRefused
from gpupool.model.state import LeaseRecord, RequestRecord, SessionRecord, node_of_device
from gpupool.pool.leases import lease_rules
from gpupool.pool.model.step import Step
from gpupool.scheduler.model import Decision
from gpupool.sentences import plain

Part = TypeVar("Part", LeaseRecord, SessionRecord)


def grant(step: Step, request: RequestRecord, decision: Decision) -> None:
    """Turns a decision into a lease, or into one for each node."""
    state = step.state
    del state.requests[request.id]
    session = state.sessions.get(request.session_id) if request.session_id else None
    parts = [tuple(shares) for _, shares in groupby(decision.shares, lambda s: node_of_device(s.device_id))]
    if len(parts) == 1:
        lease_rules.grant(step, request, parts[0], decision.said, session)
        return
    sessions: Sequence[SessionRecord | None] = [None] * len(parts)
    if session is not None:
        sessions = state.session_parts(session)
    first: LeaseRecord | None = None
    for part, (shares, one) in enumerate(zip(parts, sessions, strict=True)):
        lease = lease_rules.grant(step, request, shares, decision.said, one, part, first)
        first = first or lease


def settle(step: Step) -> None:
    """Makes wholes of the gangs that this step has touched."""
    state = step.state
    for session in _one_of_each([now for _, now in state.sessions.changes().values() if now is not None]):
        _close_all(step, state.session_parts(session))
    for lease in _one_of_each([now for _, now in state.leases.changes().values() if now is not None]):
        parts = state.lease_parts(lease)
        if any(not part.live for part in parts):
            _release_all(step, parts)
        elif all(part.state == "starting" and part.ready for part in parts):
            for part in parts:
                lease_rules.serve(step, state.sessions[part.session_id], part, part.address)


def _one_of_each(records: Sequence[Part]) -> list[Part]:
    """A part of each gang that is among them."""
    return list({record.gang: record for record in records if record.gang}.values())


def _close_all(step: Step, parts: Sequence[SessionRecord]) -> None:
    closed = next((part for part in parts if part.state == "closed"), None)
    if closed is None:
        return
    why = f"session {closed.id}, which is a part of it on node {closed.node}, is closed ({closed.reason})"
    for part in parts:
        if part.state == "closed":
            continue
        lease = step.state.lease_of_session(part)
        if lease is not None and lease.live:
            _release(step, lease, closed.reason, why, close=True)
        else:
            lease_rules.close_session(step, part, closed.reason)


def _release_all(step: Step, parts: Sequence[LeaseRecord]) -> None:
    over = next(part for part in parts if not part.live)
    for part in parts:
        if part.live:
            _release(step, part, over.reason, f"its part on node {over.node} is over ({over.reason})")


def _release(step: Step, part: LeaseRecord, reason: str, why: str, *, close: bool = False) -> None:
    """Ends a part because another has ended; whoever still waits for the whole is told what that one said."""
    keys = {other.key for other in step.state.lease_parts(part)}
    said = [x for x in step.out if isinstance(x, TellRefused) and x.user == part.user and x.key in keys]
    refusal, told = (said[0].reason, said[0].said) if said else ("lease-ended", plain(why))
    lease_rules.begin_release(step, part, reason, told, close=close, refusal=refusal)

"""When a request that waits has room, as far as that is known: when notices or deadlines of leases are over."""

from __future__ import annotations

from gpupool.model.state import RequestRecord
from gpupool.pool.model.step import Step
from gpupool.pool.queue.request_view import resumed_by, wish_of
from gpupool.scheduler import decide
from gpupool.scheduler.model import Decision, Outcome
from gpupool.scheduler.pool_view import PoolView


def eta_of(step: Step, view: PoolView, request: RequestRecord, decision: Decision) -> float | None:
    """Seconds until a request has room; None: nobody knows.

    Args:
        step: the step of the machine that this is part of.
        view: the pool as it is.
        request: the one that waits.
        decision: what it was told.
    """
    if decision.reason == "notice":
        noticed = step.state.index.noticed.records()
        ends = [x.notice.until for x in noticed if x.notice and x.notice.for_request == request.id]
        return max(0.0, max(ends) - step.now) if ends else None
    return _by_deadlines(step, view, request) if decision.reason == "full" else None


def _by_deadlines(step: Step, view: PoolView, request: RequestRecord) -> float | None:
    """Seconds until deadlines of leases make room for a request; None when no deadline does."""
    ends = step.state.index.ending.all()
    if not ends:
        return None
    resuming, wish = view.resuming(resumed_by(step, request)), wish_of(step, request)

    def fits(count: int) -> bool:
        gone = {lease_id for _, lease_id in ends[:count]}
        return decide(resuming.without(gone), wish, helps=False, words=False).outcome is Outcome.GRANT

    if not fits(len(ends)):
        return None
    low, high = 0, len(ends)  # room after `high` of them, none after `low`
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return max(0.0, ends[high - 1][0] - step.now)

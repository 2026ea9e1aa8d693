"""A request that is the only one: it is granted without a look at all that is held, if there is room.

In a pool of thousands of leases such a look costs a hundred times as much as the grant. It is needed to compare those who
wait, and to find out who would have to go; here nobody is compared, and nobody goes. Whatever stands in the way is left
to the look (`queue_pass`), which then says so.
"""

from __future__ import annotations

from gpupool.model.state import RequestRecord
from gpupool.pool.leases import budget_rules
from gpupool.pool.model.step import Step
from gpupool.pool.projects import limit_rules, standing_view
from gpupool.pool.projects.project_rules import project_tree
from gpupool.pool.queue.request_view import (
    current_view,
    least_milli_in,
    resumed_by,
    session_obstacle,
    wish_of,
)
from gpupool.scheduler import decide
from gpupool.scheduler.model import Decision, Outcome


def granted_alone(step: Step, request: RequestRecord) -> Decision | None:
    """What the look would decide, if that is to grant; None: only the look can tell.

    Precondition: nobody else waits, nobody has a notice for a request, and nothing else has changed in this step.
    """
    if request.kind == "guaranteed" or session_obstacle(step, request) is not None:
        return None  # what is guaranteed must fit beside all that is
    if standing_view.kept_places(step.state, step.now):
        return None  # they count against limits
    view = current_view(step)
    milli = least_milli_in(view, request.milli, request.mib, request.count)
    if not _allowed(step, request, milli):
        return None
    seen = view.resuming(resumed_by(step, request))
    decision = decide(seen, wish_of(step, request), helps=False, words=False, told=step.says)
    if decision.outcome is not Outcome.GRANT:
        return None
    placed = sum(share.milli for share in decision.shares)
    return decision if placed == milli or _allowed(step, request, placed) else None


def _allowed(step: Step, request: RequestRecord, milli: int) -> bool:
    """Whether no limit of the user or of the projects is in the way."""
    return (
        limit_rules.too_large(step.state, request.user, milli) is None
        and budget_rules.refused(step, request.user, milli, request.duration) is None
        and standing_view.within_limits(step.state, project_tree(step.state), request.project, milli)
    )

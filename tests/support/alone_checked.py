"""What is granted to a request that is the only one is what a look at everything would grant."""

from __future__ import annotations

from gpupool.model.state import RequestRecord
from gpupool.pool.model.step import Step
from gpupool.pool.queue import queue_rules
from gpupool.pool.queue.alone import granted_alone
from gpupool.pool.queue.queue_pass import QueuePass
from gpupool.scheduler.model import Decision, Outcome


def checked(step: Step, request: RequestRecord) -> Decision | None:
    """For :func:`granted_alone`; a look that grants changes nothing before it is gone by."""
    decision = granted_alone(step, request)
    if decision is not None:
        look = QueuePass(step, queue_rules._usage(step))
        (only,) = look.in_order(step)
        assert only == request.id
        said = look.offer(step, request).bare
        assert said.outcome is Outcome.GRANT, said
        assert (said.shares, said.said) == (decision.shares, decision.said)
    return decision

"""What a project deserved, while the pool grows and shrinks."""

from __future__ import annotations

from collections import Counter

from gpupool.ledger.usage import Step
from gpupool.pool.reporting.entitlement import capacity_times, deserved_milli_ms
from gpupool.scheduler.fairshare.tree import Project, ProjectTree

HOUR = 3_600_000


def test_time_is_counted_by_period_and_by_what_there_was() -> None:
    steps = [Step(10, HOUR + 10, 1000), Step(HOUR + 10, HOUR + 30, 3000)]
    assert capacity_times(steps, "") == {0: Counter({1000: HOUR, 3000: 20})}
    assert capacity_times(steps, "hour") == {
        0: Counter({1000: HOUR - 10}),
        HOUR: Counter({1000: 10, 3000: 20}),
    }


def test_a_project_deserves_of_what_there_is_at_each_moment() -> None:
    tree = ProjectTree([Project("a", deserved=1500), Project("default", deserved=None)])
    times = {2000: 100, 1000: 50}  # half of the time only one device was there
    assert deserved_milli_ms(tree, "a", times) == 1500 * 100 + 1000 * 50
    assert deserved_milli_ms(tree, "default", times) == 500 * 100
    assert deserved_milli_ms(tree, "gone", times) == 0

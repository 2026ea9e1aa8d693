"""What projects deserved over a time, from how much there was of the pool: exact, moment by moment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from gpupool.ledger.usage import PERIODS, Step
from gpupool.scheduler.fairshare.tree import ProjectTree


def capacity_times(steps: Iterable[Step], period: str) -> dict[int, Counter[int]]:
    """Of each period (its beginning; 0 without): how many milliseconds the pool had which capacity in milli-GPU."""
    times: dict[int, Counter[int]] = {}
    length = PERIODS.get(period)
    for step in steps:
        since = step.since
        while since < step.until:
            begin = since // length * length if length else 0
            until = min(step.until, begin + length) if length else step.until
            times.setdefault(begin, Counter())[step.milli] += until - since
            since = until
    return times


def deserved_milli_ms(tree: ProjectTree, path: str, times: Mapping[int, int]) -> int:
    """Milli-GPU-milliseconds that `path` deserved, given how long there was which capacity; 0 when it is gone."""
    if path not in tree:
        return 0
    return sum(tree.deserved(path, capacity) * milliseconds for capacity, milliseconds in times.items())

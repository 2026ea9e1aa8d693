"""Counters of what was decided, from the lines that the journal gained since they were last looked at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from sqlalchemy import Connection

from gpupool.ledger import audit
from gpupool.ledger.histogram import WAIT_SECONDS, Histogram

_OUTCOMES: Final = {"grant": "granted", "queue": "queued", "refuse": "refused", "cancelled": "cancelled"}


class JournalCounters:
    """Counts from the server's start on. A lease on several nodes counts once as a grant, on each node when it ends.

    Args:
        after: the number of the latest line that does not count.
    """

    def __init__(self, after: int) -> None:
        self._after = after
        self._decisions: Counter[tuple[str, str]] = Counter()
        self._ended: Counter[str] = Counter()
        self._notices: Counter[str] = Counter()
        self._lines: Counter[str] = Counter()
        self._waits = Histogram(WAIT_SECONDS)

    def read(self, connection: Connection) -> None:
        """Counts the lines that were written since the last time."""
        while True:
            lines = audit.page(connection, audit.Filter(), self._after)
            for line in lines:
                self._after = line.number
                self._count(line.kind, line.data)
            if len(lines) < audit.PAGE:
                return

    def metrics(self) -> Iterator[Metric]:
        decisions = CounterMetricFamily(
            "gpupool_decisions",
            "requests decided, by outcome and by the reason's id",
            labels=["outcome", "reason"],
        )
        for (outcome, reason), count in sorted(self._decisions.items()):
            decisions.add_metric([outcome, reason], count)
        yield decisions
        yield _counted("gpupool_leases_ended", "leases that are over, by reason", "reason", self._ended)
        yield _counted("gpupool_notices", "notices that a lease will be taken back", "reason", self._notices)
        yield _counted("gpupool_journal_lines", "lines of the journal, by kind", "kind", self._lines)
        waits = HistogramMetricFamily("gpupool_wait_seconds", "how long granted requests had waited")
        waits.add_metric([], self._waits.buckets(), self._waits.sum)
        yield waits

    def _count(self, kind: str, data: Mapping[str, Any]) -> None:
        self._lines[kind] += 1
        reason = str(data.get("reason", ""))
        if kind == "grant" and audit.is_part(data):
            return
        if kind in _OUTCOMES:
            self._decisions[_OUTCOMES[kind], reason] += 1
        if kind == "grant":
            self._waits.observe(float(data.get("waited_seconds", 0.0)))
        elif kind == "ended":
            self._ended[reason] += 1
        elif kind == "notice":
            self._notices[reason] += 1


def _counted(name: str, text: str, label: str, counts: Mapping[str, int]) -> Metric:
    family = CounterMetricFamily(name, text, labels=[label])
    for value in sorted(counts):
        family.add_metric([value], counts[value])
    return family

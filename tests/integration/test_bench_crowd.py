"""`gpupool bench crowd` fills a real pool server: every worker is attached, and every agent is heard."""

from __future__ import annotations

from benchmarks import crowd


def test_all_are_attached_and_heard() -> None:
    figures = crowd.measure(agents=3, workers=2, seconds=6.0)
    assert figures["workers"] == 6 and figures["lost"] == 0
    assert figures["heartbeats"] > 0
    assert 0 < figures["attach_p50_s"] <= figures["attach_p99_s"] <= figures["attach_all_s"]
    report = crowd.report(figures)
    assert all(meaning in report for _, meaning, _, _ in crowd.TARGETS)

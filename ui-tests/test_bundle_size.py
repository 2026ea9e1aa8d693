"""What every page of JupyterLab loads for this extension stays small."""

from __future__ import annotations

from benchmarks.notebook.bundle import bundle


def test_the_front_end_without_the_chart_library_has_at_most_185_kb() -> None:
    sizes = bundle([])
    assert 0 < sizes["own_kb"] <= 185, sizes

"""The report of ``gpupool bench park``: every target is shown, and a missed one is called missed."""

from __future__ import annotations

import pytest

from benchmarks import park
from benchmarks.park_session import memcpy_seconds_per_gib

MET = {
    "park_ratio": 1.5,
    "resume_ratio": 1.5,
    "reattach_ms": 20.0,
    "first_kernel_ms": 150.0,
    "how": park.HOW,
    "park_s_per_gib": 0.2,
    "resume_s_per_gib": 0.01,
    "first_read_more_s_per_gib": 0.1,
    "memcpy_s_per_gib": 0.2,
    "memcpy_untouched_s_per_gib": 0.6,
    "machine": {"cpu": "cpu", "cores": 2, "kernel": "6.1", "date": "2026-01-01T00:00:00+00:00"},
}


def test_figures_exactly_at_their_bounds_are_met() -> None:
    report = park.report(MET)
    assert "missed" not in report
    assert all(meaning in report for _, meaning, _, _ in park.TARGETS)


@pytest.mark.parametrize(("key", "meaning"), [(key, meaning) for key, meaning, _, _ in park.TARGETS])
def test_a_figure_beyond_its_bound_is_called_missed(key: str, meaning: str) -> None:
    missed = [
        line
        for line in park.report(MET | {key: float(str(MET[key])) * 1.02}).splitlines()
        if line.endswith("missed")
    ]
    assert [line.startswith(meaning) for line in missed] == [True]


def test_the_keys_are_those_that_the_project_publishes() -> None:
    assert [key for key, *_ in park.TARGETS] == [
        "park_ratio",
        "resume_ratio",
        "reattach_ms",
        "first_kernel_ms",
    ]


def test_it_says_what_was_done_with_the_memory() -> None:
    assert "none is copied" in park.report(MET)


def test_the_copy_it_is_held_against_takes_time() -> None:
    untouched, warm = memcpy_seconds_per_gib(4 << 20, rounds=1)
    assert untouched > 0
    assert warm > 0


def test_without_native_parts_it_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GPUPOOL_NATIVE_DIR", str(tmp_path))
    assert park.main(json=True) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("gpupool bench park: ")

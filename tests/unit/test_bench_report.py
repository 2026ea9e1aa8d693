"""The report of ``gpupool bench wire``: every target is shown, and a missed one is called missed."""

from __future__ import annotations

import pytest

from benchmarks import results, wire

MET = {
    "ask_ratio": 1.2,
    "post_us": 0.4,
    "alloc_free_us": 0.8,
    "event_us": 0.6,
    "post_per_s": 1e6,
    "h2d_ratio": 0.95,
    "d2h_ratio": 0.95,
    "shm_ask_us": 6.0,
    "shm_copy_ratio": 0.8,
    "shm_h2d_mb_s": 8000.0,
    "shm_d2h_mb_s": 8000.0,
    "shm_memcpy_mb_s": 10000.0,
    "tls_ask_us": 30.0,
    "tls_h2d_mb_s": 1000.0,
    "tls_d2h_mb_s": 1000.0,
    "ping_pong_us": 20.0,
    "ask_us": 30.0,
    "ask_call": "cuCtxSynchronize",
    "raw_up_mb_s": 2000.0,
    "raw_down_mb_s": 2000.0,
    "device": "Software GPU (gpupool)",
    "machine": {"cpu": "cpu", "cores": 2, "kernel": "6.1", "date": "2026-01-01T00:00:00+00:00"},
}


def test_figures_exactly_at_their_bounds_are_met() -> None:
    report = wire.report(MET)
    assert "missed" not in report
    assert all(meaning in report for _, meaning, _, _ in wire.TARGETS)


@pytest.mark.parametrize(("key", "relation"), [(key, relation) for key, _, relation, _ in wire.TARGETS])
def test_a_figure_beyond_its_bound_is_called_missed(key: str, relation: str) -> None:
    worse = MET | {key: float(str(MET[key])) * (1.02 if relation == "<=" else 0.98)}
    missed = [line for line in wire.report(worse).splitlines() if line.endswith("missed")]
    assert len(missed) == 1
    assert missed[0].startswith(next(meaning for name, meaning, _, _ in wire.TARGETS if name == key))


def test_the_keys_are_those_that_the_project_publishes() -> None:
    published = ["ask_ratio", "post_us", "alloc_free_us", "event_us", "post_per_s", "h2d_ratio", "d2h_ratio"]
    published += ["shm_ask_us", "shm_copy_ratio"]
    assert [key for key, *_ in wire.TARGETS] == published


def test_the_machine_is_named() -> None:
    machine = results.machine()
    assert machine["cpu"]
    assert machine["cores"] >= 1
    assert machine["date"].endswith("+00:00")


def test_without_native_parts_it_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GPUPOOL_NATIVE_DIR", str(tmp_path))
    assert wire.main(json=True) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("gpupool bench wire: ")
    assert "make build" in said.err

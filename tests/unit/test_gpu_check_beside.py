"""The check for machines with a GPU: programs that run side by side, and what they say of it."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest
from gpupool.client.child_environment import software_gpu_environment
from gpupool.client.native import native_directory

from benchmarks import park_session
from tests.gpu_check import beside, moment, parking
from tests.gpu_check.beside import Neighbour
from tests.gpu_check.comparisons import Bench
from tests.gpu_check.programs_run import Found
from tests.gpu_check.time_left import LeftOut
from tests.support.gpu_check_ways import ReadyWay, bench_of
from tests.support.pool_node import native_worker_is_built


class SoftwareWay(ReadyWay):
    """A way to a software GPU for each program, as a rehearsal has without a pool."""

    @contextlib.contextmanager
    def share(self, _share: str) -> Iterator[tuple[list[str], dict[str, str]]]:
        variables = {**os.environ, **park_session.python_path(), "GPUPOOL_SOFTGPU_MEMORY_MIB": "512"}
        yield [], software_gpu_environment(native_directory(), variables)


def says(monkeypatch: pytest.MonkeyPatch, found: dict[str, Found]) -> None:
    """Programs that run side by side find this."""

    def together(_bench: Bench, neighbours: Sequence[Neighbour], *_times: float) -> dict[str, Found]:
        return {one.name: found[one.name] for one in neighbours}

    monkeypatch.setattr(beside, "together", together)


TRAINER = """
import json, pathlib, sys, time
ready, start = map(pathlib.Path, sys.argv[1:3])
ready.touch()
while not start.exists(): time.sleep(0.01)
figures = {"steps": 5, "seconds": 0.05, "device_seconds": 0.02}
print(json.dumps({"result": "0.7" not in ready.name, "figures": figures}))
"""


def trained(steps: int, device_seconds: float | None = None, seconds: float = 15.0) -> Found:
    """What a program says that has trained."""
    figures: Found = {"steps": steps, "seconds": seconds, "device_seconds": device_seconds}
    return {"result": True, "figures": figures}


class TestSideBySide:
    @pytest.fixture
    def trainer(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """The file of the program that trains."""
        (tmp_path / "frameworks").mkdir()
        monkeypatch.setattr(beside, "HERE", tmp_path)
        monkeypatch.setattr(beside, "need", lambda *_: None)
        return tmp_path / "frameworks" / "beside.py"

    def test_two_begin_together_after_one_alone(self, tmp_path: Path, trainer: Path) -> None:
        trainer.write_text(TRAINER)
        found = beside.beside(bench_of(ReadyWay(), tmp_path), 0.0)
        assert found["made"] == {"0.3": 0.5, "0.7": 0.5}
        assert found["alone_steps_per_s"] == 100.0
        assert set(found["programs"]) == {"alone", "0.3", "0.7"}
        assert not found["ok"]
        assert "0.7 was late" in found["said"]
        assert "0.3 was late" not in found["said"]

    def test_one_that_fails_beside_another_is_not_waited_for(self, tmp_path: Path, trainer: Path) -> None:
        trainer.write_text("raise SystemExit('no memory')\n")
        found = beside.beside(bench_of(ReadyWay(), tmp_path), 0.0)
        assert not found["ok"]
        assert all("no memory" in one["error"] for one in found["programs"].values())
        assert found["said"].count("no memory") == 3

    @pytest.mark.parametrize(
        ("one", "other", "why"),
        [
            (trained(300, 4.5), trained(700, 10.4), ""),
            (trained(260, 4.5), trained(740, 10.4), ""),
            (trained(450, 7.4), trained(550, 7.4), "0.3 is further than 0.05 from its share"),
            (trained(200, 3.0), trained(800, 11.9), "0.3 is further than 0.05 from its share"),
            # Where the host is the limit, each makes as many steps as it can.
            (trained(900, 5.0), trained(1100, 6.0), ""),
            (trained(450), trained(550), ""),
            (trained(210, 4.5), trained(490, 10.4), "less than 0.8 of the steps"),
            (trained(0, 0.1), trained(1000, 14.0), "0.3 made no step"),
        ],
    )
    def test_steps_are_as_shares_where_the_device_is_the_limit(
        self, one: Found, other: Found, why: str
    ) -> None:
        alone, both = trained(1000), {"0.3": one, "0.7": other}
        found = beside.training_verdict(alone, both, 15.0, judge=True)
        assert found["ok"] is not bool(why)
        assert why in found["said"]
        if "made no step" not in why:
            assert beside.training_verdict(alone, both, 15.0, judge=False)["ok"]

    def test_what_both_made_is_compared_with_one_alone(self) -> None:
        both = {"0.3": trained(300, 4.5), "0.7": trained(600, 10.4)}
        found = beside.training_verdict(trained(400, seconds=5.0), both, 15.0, judge=True)
        assert found["alone_steps_per_s"] == 80.0
        assert found["together_to_alone"] == 0.75

    def test_parts_of_two_need_the_pool(self, tmp_path: Path) -> None:
        way = ReadyWay()
        way.pool = False
        for part in beside.PARTS.values():
            with pytest.raises(LeftOut, match="needs the pool"):
                part(bench_of(way, tmp_path))

    @pytest.mark.parametrize(
        ("change", "why"),
        [
            ({}, ""),
            ({"taken_mib": 3600}, "full-0 was out of memory before the end of its share"),
            ({"taken_mib": 4352}, "full-0 had more than its share"),
            ({"both_full": False}, "full-0 was not full at the same time"),
            ({"same": False}, "full-0 read something else"),
            ({"error": "the last allocation returned 719"}, "full-0: the last allocation returned 719"),
            ({"result": False}, "full-0 was late"),
        ],
    )
    def test_two_that_are_full_have_their_shares(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Found, why: str
    ) -> None:
        def full(**changed: object) -> Found:
            found: Found = {"result": True, "both_full": True, "same": True, "error": ""}
            figures: Found = {"total_mib": 4200, "free_mib": 4198, "taken_mib": 4096, "piece_mib": 256}
            return {
                **{name: changed.get(name, value) for name, value in found.items()},
                "figures": {name: changed.get(name, value) for name, value in figures.items()},
            }

        says(monkeypatch, {"full-0": full(**change), "full-1": full()})
        found = beside.both_full(bench_of(ReadyWay(), tmp_path))
        assert found["ok"] is not bool(why)
        assert why in found["said"]

    @pytest.mark.parametrize(
        ("longest", "usual", "ok"), [(2.1, 0.004, True), (3.0, 0.004, False), (2.1, 0.5, False)]
    )
    def test_waits_beside_a_long_kernel_have_a_limit(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, longest: float, usual: float, ok: bool
    ) -> None:
        figures = {"kernels": 500, "first_s": 1.9, "longest_s": longest, "median_of_the_rest_s": usual}
        ticks: Found = {"result": True, "figures": figures}
        says(monkeypatch, {"long-kernel": {"result": True}, "long-ticks": ticks})
        found = beside.beside_long(bench_of(ReadyWay(), tmp_path))
        assert found["ok"] is ok
        assert f"at most {longest:.2f} s" in found["said"]

    def test_the_slowdown_beside_uploads_is_reported(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        rates = {"upload-alone": {"rounds_per_s": 30.0}, "upload-work": {"rounds_per_s": 20.0}}
        figures = {**rates, "upload-copies": {"gib_per_s": 9.5}}
        says(monkeypatch, {name: {"result": True, "figures": of} for name, of in figures.items()})
        found = beside.beside_upload(bench_of(ReadyWay(), tmp_path))
        assert (found["ok"], found["slowdown"]) == (True, 1.5)
        assert "9.5 GiB/s" in found["said"]

    @pytest.mark.skipif(not native_worker_is_built(), reason="needs the native build (`make build`)")
    @pytest.mark.parametrize(
        ("part", "figure"),
        [
            (beside.both_full, "taken_mib"),
            (lambda bench: beside.beside_long(bench, 2.0), "kernels"),
            (lambda bench: beside.beside_upload(bench, 0.5), "gib_per_s"),
        ],
        ids=list(beside.PARTS),
    )
    def test_their_programs_run_on_software_gpus(
        self, tmp_path: Path, part: Callable[[Bench], Found], figure: str
    ) -> None:
        found = part(replace(bench_of(SoftwareWay(), tmp_path), small=True))
        assert [one.get("error", "") for one in found["programs"].values()] == [""] * len(found["programs"])
        assert any(one["figures"].get(figure, 0) > 0 for one in found["programs"].values())


def test_a_program_knows_what_it_has_used_of_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    said: Found = {"worker": {"device_seconds": 2.5}}

    def counters(text: Any, _size: object, _reset: int) -> int:
        text.value = json.dumps(said).encode()
        return 0

    monkeypatch.setattr("ctypes.CDLL", lambda _name: SimpleNamespace(gpupool_counters=counters))
    assert moment.since(1.0) == 1.5
    assert moment.since(None) is None
    said["worker"] = None  # it did not answer in time
    assert moment.since(1.0) is None
    monkeypatch.setattr("ctypes.CDLL", lambda _name: SimpleNamespace())
    assert moment.device_seconds() is None  # NVIDIA's own library


class TestPartsOfMps:
    def test_both_ratios_are_told(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        asked: list[str] = []

        class Program:
            """A client whose part of the device is in its environment."""

            def __init__(self, environment: dict[str, str], arguments: list[str]) -> None:
                self.part = int(environment["part"])
                asked.append(Path(arguments[0]).name)

            def __enter__(self) -> Self:
                return self

            def __exit__(self, *_: object) -> None:
                pass

            def do(self, _command: str) -> Found:
                return {"fill": 0.1, "compute": 10.0 / self.part}

        @contextlib.contextmanager
        def daemon() -> Iterator[dict[str, str]]:
            yield {"CUDA_MPS_PIPE_DIRECTORY": str(tmp_path)}

        @contextlib.contextmanager
        def session(_place: object, _mib: int, more: dict[str, str]) -> Iterator[object]:
            part = more["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"]
            yield SimpleNamespace(environment=lambda _more: {"part": part})

        monkeypatch.setattr(parking, "_mps_daemon", daemon)
        monkeypatch.setattr(parking, "find_daemon", lambda pipes: SimpleNamespace(pipes=pipes))
        monkeypatch.setattr(parking, "_session", session)
        monkeypatch.setattr(parking, "Client", Program)
        found = parking.parts_of_mps(parking.Place(tmp_path, tmp_path))
        assert (found["fill_ratio"], found["compute_ratio"]) == (1.0, 4.0)
        assert (found["compute_seconds_1000"], found["compute_seconds_250"]) == (0.1, 0.4)
        assert asked == ["mps_rates.py"] * 2
        assert Path(parking.__file__).with_name("mps_rates.py").exists()

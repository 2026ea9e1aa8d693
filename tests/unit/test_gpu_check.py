"""The check for machines with a GPU, as far as it can be tried without one: what counts as equal, what failures say, what
is left of the time, and what a machine without a compiler does."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest
from gpupool.client.child_environment import software_gpu_environment
from gpupool.client.native import NATIVE_VARIABLE, native_directory

from benchmarks import park_session, worker_process
from benchmarks.park_session import Client
from benchmarks.worker_process import WorkerError
from tests.gpu_check import beside, bundle, comparisons, moment, parking
from tests.gpu_check.beside import Neighbour
from tests.gpu_check.check import ORDER, carry_out, put_away, why_no_pool
from tests.gpu_check.comparisons import FRAMEWORKS, PROGRAMS, Bench, Program
from tests.gpu_check.parking import PARTS
from tests.gpu_check.programs_run import Found, ratios, run, same
from tests.gpu_check.report import Report, lines
from tests.gpu_check.time_left import NO_TIME, LeftOut, TimeLeft
from tests.gpu_check.ways import end_all, wait_for_node
from tests.support.pool_node import native_worker_is_built

ROOT = Path(bundle.ROOT)


@pytest.mark.parametrize(
    ("one", "other", "tolerance", "equal"),
    [
        ({"a": [1.0, 2.0]}, {"a": [1.0, 2.0]}, 0.0, True),
        ({"a": [1.0, 2.0]}, {"a": [1.0, 2.0001]}, 1e-3, True),
        ({"a": [1.0, 2.0]}, {"a": [1.0, 2.01]}, 1e-3, False),
        ({"a": 1.0}, {"b": 1.0}, 1.0, False),
        ([1.0], [1.0, 1.0], 1.0, False),
        (float("nan"), 1.0, 1.0, False),
        (True, 1, 1.0, False),
        ("x", "x", 0.0, True),
        (None, {"a": 1}, 1.0, False),
    ],
)
def test_what_is_equal(one: object, other: object, tolerance: float, equal: bool) -> None:
    assert same(one, other, tolerance) is equal


def test_ratios_are_of_figures_that_both_have() -> None:
    alone = {"figures": {"steps/s": 4.0, "only here": 1.0, "text": "x", "nothing": 0}}
    assert ratios(alone, {"figures": {"steps/s": 3.0, "text": "y", "nothing": 1}}) == {"steps/s": 0.75}
    assert ratios(alone, {"error": "it failed"}) == {}


def is_alive(pid: int) -> bool:
    """A zombie whose parent is gone for good is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class TestAProgram:
    def test_that_fails_says_why(self, tmp_path: Path) -> None:
        program = tmp_path / "program.py"
        program.write_text("raise SystemExit('no memory')\n")
        assert "no memory" in run(program, [], os.environ, log=tmp_path / "log")["error"]
        assert "no memory" in (tmp_path / "log").read_text()

    def test_that_prints_no_result_has_an_error(self, tmp_path: Path) -> None:
        program = tmp_path / "program.py"
        program.write_text("print('hello')\n")
        assert "status 0" in run(program, [], os.environ)["error"]

    def test_that_does_not_end_is_ended_with_what_it_started(self, tmp_path: Path) -> None:
        program = tmp_path / "program.py"
        program.write_text(
            "import pathlib, subprocess, sys, time\n"
            "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
            "pathlib.Path(sys.argv[1]).write_text(str(child.pid))\n"
            "print('it said this', file=sys.stderr, flush=True)\ntime.sleep(600)\n"
        )
        found = run(program, [], os.environ, str(tmp_path / "pid"), seconds=4.0, log=tmp_path / "log")
        assert "not done after 4 s" in found["error"]
        assert (tmp_path / "log").exists()
        if (tmp_path / "pid").exists():  # the machine may be too busy to start it in time
            pid = int((tmp_path / "pid").read_text())
            while is_alive(pid):  # killed, and not gone yet
                time.sleep(0.05)


class TestAClient:
    def test_that_gives_no_answer_is_not_waited_for(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(park_session, "ANSWER_SECONDS", 0.2)
        silent = "import sys, time; print('{}', flush=True); sys.stdin.readline(); sys.stdin.readline()"
        with (
            pytest.raises(WorkerError, match=r"no answer in 0\.2 s"),
            Client(os.environ, ["-c", silent]) as client,
        ):
            client.do("read")

    def test_that_ends_says_all_of_why(self) -> None:
        program = "import sys; print('first line\\nsecond line', file=sys.stderr)"
        with pytest.raises(WorkerError, match="first line\nsecond line"):
            Client(os.environ, ["-c", program])


def test_a_worker_keeps_the_folders_that_are_not_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(NATIVE_VARIABLE, str(tmp_path))
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{tmp_path / 'client'}:/usr/local/nvidia/lib64")
    monkeypatch.setenv("LD_PRELOAD", "libours.so")
    environment = worker_process._environment({"ADDED": "1"})
    assert environment["LD_LIBRARY_PATH"] == "/usr/local/nvidia/lib64"
    assert environment["ADDED"] == "1"
    assert "LD_PRELOAD" not in environment


class ReadyWay:
    """A way that gives this process itself, or raises what it is told."""

    pool = True

    def __init__(self, error: Exception | None = None) -> None:
        self.errors = [error] if error else []
        self.stops = 0

    @contextlib.contextmanager
    def share(self, _share: str) -> Iterator[tuple[list[str], dict[str, str]]]:
        if self.errors:
            raise self.errors.pop()
        yield [], dict(os.environ)

    def stop(self) -> None:
        self.stops += 1


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


def bench_of(way: ReadyWay, folder: Path, seconds: float = 600.0) -> Bench:
    return Bench(way, dict(os.environ), {}, folder, TimeLeft(seconds))


@pytest.fixture
def report(tmp_path: Path) -> Report:
    return Report(tmp_path / "report.json", {"commit": "a"})


def parts_in(folder: Path) -> Found:
    found: Found = json.loads((folder / "report.json").read_text())["parts"]
    return found


def nothing_kept(_name: str) -> list[str]:
    return []


class TestParts:
    def test_every_program_is_one(self) -> None:
        there = {path.stem for path in comparisons.HERE.glob("*/*.py")} - {"models", "beside"}
        named = {program.name for program in (*PROGRAMS, *FRAMEWORKS)}
        assert there == named
        of_their_own = {"beside", *beside.PARTS, "long_kernels"}
        assert {*named, *of_their_own, *(f"parking.{name}" for name in PARTS)} == {*ORDER}
        assert len(ORDER) == len({*ORDER})

    def test_one_that_cannot_begin_hides_no_other(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, report: Report
    ) -> None:
        (tmp_path / "programs").mkdir()
        for name in ("one", "two"):
            (tmp_path / "programs" / f"{name}.py").write_text("print('{\"result\": 1}')\n")
        monkeypatch.setattr(comparisons, "HERE", tmp_path)
        bench = bench_of(ReadyWay(KeyError("port")), tmp_path)
        needs: dict[str, tuple[str, ...]] = {"one": (), "two": (), "three": ("no_such.package",)}
        failed: list[str] = []

        def put(name: str) -> list[str]:
            failed.append(name)
            return ["worker.log"]

        def part(name: str) -> Callable[[], Found]:
            return lambda: comparisons.compare(Program(name, needs[name]), bench)

        carry_out({name: part(name) for name in needs}, report, bench.time, put)
        found = parts_in(tmp_path)
        assert not found["one"]["ok"]
        assert found["one"]["said"] == "KeyError: 'port'"
        assert found["one"]["logs"] == ["worker.log"]
        assert found["two"]["same"]
        assert found["three"]["left_out"] == "this Python has no no_such.package"
        assert report.failed == failed == ["one"]

    def test_none_begins_when_a_second_is_left(self, tmp_path: Path, report: Report) -> None:
        def begins() -> Found:
            raise AssertionError("it begins")

        carry_out({"one": begins}, report, TimeLeft(1.0), nothing_kept)
        assert parts_in(tmp_path) == {"one": {"left_out": NO_TIME}}
        assert report.failed == []

    def test_one_that_the_end_of_the_time_has_ended_is_no_failure(
        self, tmp_path: Path, report: Report, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("tests.gpu_check.check.LEAST", 0.0)
        left = TimeLeft(0.1)

        def late() -> Found:
            while left.left() > 0:
                time.sleep(0.01)
            return {"ok": False, "said": "not done"}

        carry_out({"one": late}, report, left, nothing_kept)
        assert parts_in(tmp_path)["one"]["left_out"] == NO_TIME
        with pytest.raises(LeftOut):
            left.of(5.0)

    def test_both_sides_compile_into_folders_of_their_own(self, tmp_path: Path) -> None:
        local, remote = comparisons.caches(tmp_path / "local"), comparisons.caches(tmp_path / "remote")
        assert len({*local.values(), *remote.values()}) == 2 * len(local) == 10


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


class TestTheReport:
    def test_keeps_the_parts_of_earlier_runs_of_the_same(self, tmp_path: Path) -> None:
        Report(tmp_path / "report.json", {"commit": "a"}).record("one", {"ok": True})
        Report(tmp_path / "report.json", {"commit": "a"}).record("two", {"left_out": "no MPS"})
        assert set(parts_in(tmp_path)) == {"one", "two"}
        Report(tmp_path / "report.json", {"commit": "b"}).record("three", {"ok": False})
        assert set(parts_in(tmp_path)) == {"three"}

    def test_shows_both_results_of_a_difference(self) -> None:
        part: Found = {"ok": False, "same": False, "limit": "", "ratios": {}}
        part |= {"local": {"result": 1, "seconds": 1}, "remote": {"error": "it ended", "seconds": 2}}
        said = "\n".join(lines("one", part))
        assert "FAILED" in said
        assert "it ended" in said
        assert '"local": 1' in said

    def test_names_what_failed_on_both_sides(self) -> None:
        side: Found = {"result": {}, "problems": {"LSTM": "RuntimeError: no"}, "seconds": 1}
        part: Found = {"ok": True, "same": True, "limit": "", "ratios": {}, "local": side, "remote": side}
        said = list(lines("layers", part))
        assert sum("LSTM" in line and "RuntimeError: no" in line for line in said) == 2

    def test_says_of_what_is_only_a_report_that_it_is_one(self) -> None:
        (rates,) = [program for program in FRAMEWORKS if program.name == "rates"]
        part: Found = {"ok": True, "same": True, "limit": "", "note": rates.note, "ratios": {"steps/s": 0.2}}
        side: Found = {"result": [], "seconds": 1}
        (said,) = lines("rates", part | {"local": side, "remote": side})
        assert "a report, right at any ratio: local 1 s" in said
        assert "steps/s x0.2" in said

    def test_logs_are_kept_when_homes_go(self, tmp_path: Path) -> None:
        homes = tmp_path / "homes"
        (homes / "pool1" / "workers").mkdir(parents=True)
        (homes / "pool1" / "workers" / "worker.log").write_text("the driver said no")
        way = ReadyWay()
        kept = put_away(way, homes, tmp_path / "logs" / "one")
        assert [Path(path).read_text() for path in kept] == ["the driver said no"]
        assert way.stops == 1
        assert not homes.exists()


def test_a_pool_that_cannot_be_imported_says_why(tmp_path: Path) -> None:
    (tmp_path / "grpc_health").mkdir()
    (tmp_path / "grpc_health" / "__init__.py").write_text("raise ImportError('no wheel of it')\n")
    path = os.pathsep.join((str(tmp_path), *(entry for entry in sys.path if entry)))
    assert "no wheel of it" in why_no_pool({**os.environ, "PYTHONPATH": path}, 600.0)
    assert why_no_pool(os.environ, 0.0)


class TestWaitingForTheNode:
    @staticmethod
    def pool(folder: Path, nodes: str) -> list[str]:
        """A `gpupool` whose nodes are these."""
        program = folder / "gpupool.py"
        program.write_text(f"import json\nprint(json.dumps({{'nodes': {nodes}}}))\n")
        return [sys.executable, str(program)]

    @pytest.fixture
    def service(self, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
        (tmp_path / "services.log").write_text("the name is not valid\n")
        process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, process_group=0)
        yield process
        end_all([process])
        assert process.returncode is not None

    @pytest.mark.parametrize("nodes", ["[]", "[{'connected': False}]"])
    def test_none_is_an_error(self, nodes: str, tmp_path: Path, service: subprocess.Popen[bytes]) -> None:
        gpupool = self.pool(tmp_path, nodes)
        with pytest.raises(RuntimeError, match="no node was connected in 1 s"):
            wait_for_node(gpupool, os.environ, [service], tmp_path / "services.log", 1.0)

    def test_one_that_is_connected_is_enough(self, tmp_path: Path, service: subprocess.Popen[bytes]) -> None:
        gpupool = self.pool(tmp_path, "[{'connected': False}, {'connected': True}]")
        wait_for_node(gpupool, os.environ, [service], tmp_path / "services.log", 60.0)

    def test_a_service_that_ended_is_told_with_its_log(
        self, tmp_path: Path, service: subprocess.Popen[bytes]
    ) -> None:
        service.kill()
        service.wait()
        with pytest.raises(RuntimeError, match="ended: the name is not valid"):
            wait_for_node(self.pool(tmp_path, "[]"), os.environ, [service], tmp_path / "services.log", 600.0)


class Machine:
    """A checkout of `run.sh` alone, with programs in PATH that say what they were asked.

    The Python finds whatever it is asked for, installs nothing, and runs the check by printing its arguments.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.worker = root / "server/gpupool/_native/bin/gpupool-worker"
        (root / "tests/gpu_check").mkdir(parents=True)
        shutil.copy(ROOT / "tests/gpu_check/run.sh", root / "tests/gpu_check")
        for folder in ("bin", "empty"):
            (root / folder).mkdir()
        self.program("cmake", "echo no compiler; exit 1")
        self.program(
            "python",
            f'case "$*" in *tarfile*|*zipfile*) exec {sys.executable} "$@";; *"-m pip"*) exit "${{PIP:-1}}";;\n'
            '*find_gpu*) exit "${GPU:-0}";; *grpc_tools*) exit 1;; *) echo "check: $*";; esac',
        )

    def program(self, name: str, does: str) -> None:
        file = self.root / "bin" / name
        file.write_text(f"#!/bin/bash\n{does}\n")
        file.chmod(0o755)

    def has_native(self) -> None:
        self.worker.parent.mkdir(parents=True)
        self.worker.touch(mode=0o755)

    def has_bundle(self, content: str) -> None:
        folder = self.root / "build/gpu-check-bundle"
        (folder / "wheels").mkdir(parents=True, exist_ok=True)
        made = self.root / "made"
        made.write_text(content)
        made.chmod(0o755)
        with tarfile.open(folder / "product.tar.gz", "w:gz") as archive:
            archive.add(made, self.worker.relative_to(self.root))
        with contextlib.suppress(FileExistsError):
            shutil.make_archive(str(folder / "wheels" / "one"), "zip", self.root / "tests")
            (folder / "wheels" / "one.zip").rename(folder / "wheels" / "one.whl")

    def check(self, **variables: str) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": f"{self.root / 'bin'}:/usr/bin:/bin", "HOME": str(self.root)}
        environment["GPU_CHECK_PYTHON"] = str(self.root / "bin" / "python")
        return subprocess.run(
            ["bash", str(self.root / "tests/gpu_check/run.sh"), "--only", "one"],
            env=environment | variables,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )


class TestAMachine:
    @pytest.fixture
    def machine(self, tmp_path: Path) -> Machine:
        return Machine(tmp_path)

    def test_with_native_parts_needs_no_compiler(self, machine: Machine) -> None:
        machine.has_native()
        done = machine.check()
        assert done.returncode == 0, done.stderr
        assert "-m tests.gpu_check.check --driver nvidia --spent" in done.stdout
        assert "--only one" in done.stdout
        assert machine.check(GPU_CHECK_BUILD="always").returncode == 1

    def test_without_any_compiles_them(self, machine: Machine) -> None:
        done = machine.check()
        assert done.returncode == 1
        assert "no compiler" in done.stdout

    def test_with_a_bundle_needs_no_compiler_and_no_pip(self, machine: Machine) -> None:
        machine.has_bundle("first")
        assert machine.check().returncode == 0
        assert machine.worker.read_text() == "first"
        assert (machine.root / "build/gpu-check/site/gpu_check/run.sh").exists()
        machine.has_bundle("second")
        assert machine.check().returncode == 0
        assert machine.worker.read_text() == "second"

    def test_leaves_what_was_built_there_alone(self, machine: Machine) -> None:
        machine.has_native()
        machine.has_bundle("bundled")
        assert machine.check().returncode == 0
        assert machine.worker.read_text() == ""

    def test_without_a_gpu_has_nothing_to_check(self, machine: Machine) -> None:
        machine.has_native()
        assert machine.check(GPU="1").returncode == 0
        assert machine.check(GPU="1", GPU_CHECK_REQUIRE="1").returncode == 1


class TestTheBundle:
    def test_has_what_runs_on_a_gpu(self, tmp_path: Path) -> None:
        native = tmp_path / "server/gpupool/_native"
        for name in (
            *(
                "bin/gpupool-worker",
                "bin/gpupool-bench-wire",
                "client/libcuda.so.1",
                "cudart/libcudart.so.13",
            ),
            *("libraries/libcublas.so.13", "tls/libgpupool_tls.so", "softgpu/libcuda.so.1", "compat/libx.so"),
        ):
            (native / name).parent.mkdir(parents=True, exist_ok=True)
            (native / name).write_text(name)
        messages = tmp_path / bundle.MESSAGES
        messages.mkdir(parents=True)
        for name in ("pool_pb2.py", "pool_pb2_grpc.py", "pool_pb2.pyi"):
            (messages / name).touch()
        bundle.product(tmp_path, tmp_path / "product.tar.gz")
        with tarfile.open(tmp_path / "product.tar.gz") as archive:
            names = {
                member.name.removeprefix("server/gpupool/").removeprefix("_native/") for member in archive
            }
        assert names == {
            *(
                "bin/gpupool-worker",
                "client/libcuda.so.1",
                "cudart/libcudart.so.13",
                "libraries/libcublas.so.13",
            ),
            *("tls/libgpupool_tls.so", "proto/gpupool/v1/pool_pb2.py", "proto/gpupool/v1/pool_pb2_grpc.py"),
        }

    def test_has_the_packages_of_the_pool_and_theirs(self) -> None:
        names = bundle.packages("3.12")
        wanted = {
            "grpcio",
            "grpcio-health-checking",
            "protobuf",
            "cryptography",
            "cffi",
            "pycparser",
            "sqlalchemy",
        }
        assert wanted | {"stamina", "tenacity", "typer", "mdurl"} <= set(names)
        assert "numpy" not in names
        assert all("==" in line for line in bundle.locked(names))
